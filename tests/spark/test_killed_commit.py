"""A driver that is ended with kill -9 while it commits a batch, and the one that comes after it."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

import pytest

from liftbridge_aio.spark.connection import close_connections
from support.spark.broker_thread import BrokerThread
from support.spark.halting_query import BOUND, wait_for
from support.spark.kill_points import KILL_POINTS, stall_at
from support.spark.log_client import LogClient
from support.spark.played_query import COMMIT, PlayedQuery

if TYPE_CHECKING:
    from conftest import StartRealServer


@pytest.mark.parametrize("point", KILL_POINTS)
def test_a_killed_commit_is_finished_by_the_next_driver(
    own_broker: BrokerThread, stream_name: str, point: str
) -> None:
    with LogClient(own_broker.address) as log:
        query = PlayedQuery(log, log.create(stream_name, 2))
        query.sink().commit(query.run(0, "z"), 0)
        first, again = query.run(1, "a", "b", "c"), query.run(1, "c", "b", "a")
        with own_broker.stalled(**stall_at(point, stream_name, 0)) as is_stalled:
            driver = subprocess.Popen([sys.executable, "-c", COMMIT], stdin=subprocess.PIPE)
            assert driver.stdin is not None
            driver.stdin.write(query.as_input(1, first))
            driver.stdin.close()
            wait_for(lambda: is_stalled() or driver.poll() is not None)
            assert driver.poll() is None
            driver.kill()
            driver.wait(BOUND)
        query.sink().commit(again, 1)
        query.sink().commit(query.run(2, "d"), 2)
        assert query.committed() == sorted(f"{task}{value}" for task in "01" for value in "abcdz")


def test_a_server_killed_between_the_steps_of_a_batch_repeats_nothing(
    start_real_server: StartRealServer, stream_name: str
) -> None:
    """A lone server that was restarted hides what it stored last until the next publish."""
    node = start_real_server()

    def restart() -> None:
        node.kill()
        node.launch()

    with LogClient(node.address) as log:
        query = PlayedQuery(log, log.create(stream_name, 2))
        query.sink().commit(query.run(0, "z"), 0)
        restart()
        first = query.task(1, 0, ("a", "b"), 0)
        restart()
        second = query.task(1, 1, ("a", "b"), 0)
        restart()
        query.sink().commit([first, second], 1)
        restart()
        query.sink().commit(query.run(1, "b", "a"), 1)
        close_connections()
        restart()
        query.sink().commit(query.run(1, "A"), 1)
        query.sink().commit(query.run(2, "c"), 2)
    with LogClient(node.address) as log:
        committed = sorted(message.value.decode() for message in log.committed(stream_name))
    close_connections()
    assert committed == sorted(f"{task}{value}" for task in "01" for value in "abcz")

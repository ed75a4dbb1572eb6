"""A driver that is ended with kill -9 while it commits a batch, and the one that comes after it."""

from __future__ import annotations

import subprocess
import sys

import pytest

from support.spark.broker_thread import BrokerThread
from support.spark.halting_query import BOUND, wait_for
from support.spark.kill_points import KILL_POINTS, stall_at
from support.spark.log_client import LogClient
from support.spark.played_query import COMMIT, PlayedQuery


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

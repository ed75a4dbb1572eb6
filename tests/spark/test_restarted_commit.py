"""A server that is ended with kill -9 between the steps of a batch that is committed once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from liftbridge_aio.spark.connection import close_connections
from support.spark.log_client import LogClient
from support.spark.played_query import PlayedQuery

if TYPE_CHECKING:
    from conftest import StartRealServer


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
        first = query.task(1, 0, ["0a", "0b"], 0)
        restart()
        second = query.task(1, 1, ["1a", "1b"], 0)
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

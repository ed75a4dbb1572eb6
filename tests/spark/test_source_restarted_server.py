"""A server that is killed and started again: it answers before it remembers its streams."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

pytest.importorskip("pyspark")

from liftbridge_aio.spark.connection import close_connections
from spark.log_client import LogClient
from spark.micro_batches import MicroBatches, flat

if TYPE_CHECKING:
    from conftest import StartRealServer


@pytest.fixture(autouse=True)
def _no_connections_left() -> Iterator[None]:
    yield
    close_connections()


def test_a_query_goes_on_over_the_restart_of_a_real_server_without_repeating_a_row(
    start_real_server: StartRealServer, stream_name: str
) -> None:
    node = start_real_server()
    with LogClient(node.address) as log:
        log.create(stream_name)
        log.publish(stream_name, [b"%d" % number for number in range(10)])
    selected = ({"stream": stream_name}, {"subscribePattern": f"{stream_name}.*"})
    patient = {"startingOffsets": "earliest", "liftbridge.notFoundTimeout": "20"}
    queries = [
        MicroBatches(node.address, failOnDataLoss=strict, **chosen, **patient)
        for chosen in selected
        for strict in ("true", "false")
    ]
    for query in queries:
        assert len(flat(query.run())) == 10
    node.kill()
    node.launch()  # and no waiting until it is itself again
    for query in queries:
        assert query.run() == []
    with LogClient(node.address) as log:
        log.publish(stream_name, [b"new"])
    for query in queries:
        assert flat(query.run()) == [(stream_name, 0, 10, b"new")]

from __future__ import annotations

import pytest

from liftbridge_aio.errors import MalformedData
from liftbridge_aio.wire import rpc
from support.wire.proto_file import LIFTBRIDGE, Method

TABLE = [value for value in vars(rpc).values() if isinstance(value, rpc.Rpc)]


def test_the_table_is_the_service_of_the_proto_file() -> None:
    table = {
        Method(
            entry.name,
            entry.request.__name__,
            entry.reply.__name__,
            entry.streams_requests,
            entry.streams_replies,
        )
        for entry in TABLE
        if entry.service == "proto.API"
    }
    assert len(LIFTBRIDGE.methods) == 16
    assert table == set(LIFTBRIDGE.methods)


def test_each_procedure_has_a_constant_of_its_own_name() -> None:
    for name, value in vars(rpc).items():
        if isinstance(value, rpc.Rpc) and value is not rpc.HEALTH_CHECK:
            assert name.replace("_", "") == value.name.upper()


def test_paths_are_those_of_the_wire() -> None:
    assert rpc.PUBLISH_ASYNC.path == "/proto.API/PublishAsync"
    assert rpc.HEALTH_CHECK.path == "/grpc.health.v1.Health/Check"


@pytest.mark.parametrize("reply", [b"\x0a\x02\x08\x07", b"\x08\x07", b"\x0a\x05n", b"\xff"])
def test_a_reply_that_cannot_be_read_says_of_which_call(reply: bytes) -> None:
    with pytest.raises(MalformedData, match="FetchMetadata"):
        rpc.FETCH_METADATA.read_reply(reply)

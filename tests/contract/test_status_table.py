"""The table of refusals: what each procedure says, code and text.

Rows that need a state of their own stand with the tests of that state: read-only, paused, empty,
optimistic concurrency, sizes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import betterproto2
import pytest
from grpclib.const import Status

from liftbridge_aio.wire import proto, rpc
from support.raw import End, Wire

Code = proto.PublishAsyncErrorCode
STREAM = "{stream}"
"""Stands for a stream of two partitions that exists."""


NO_KEY = (
    "Failed on preconditions for stream's encryption handler: "
    "kwp: invalid AES key size; want 16 or 32, got 0"
)


@dataclass(frozen=True)
class Row:
    """One refusal: the call, with STREAM in its strings, and its end."""

    procedure: rpc.Rpc[Any, Any]
    fields: dict[str, Any]
    status: Status
    text: str

    def request(self, stream: str) -> betterproto2.Message:
        filled = {
            name: value.replace(STREAM, stream) if isinstance(value, str) else value
            for name, value in self.fields.items()
        }
        request: betterproto2.Message = self.procedure.request(**filled)
        return request

    @property
    def name(self) -> str:
        fields = ",".join(f"{name}={value!r}" for name, value in self.fields.items())
        return f"{self.procedure.name}({fields})"


def rows(procedure: rpc.Rpc[Any, Any], *refusals: tuple[dict[str, Any], Status, str]) -> list[Row]:
    return [Row(procedure, *refusal) for refusal in refusals]


TABLE = [
    *rows(
        rpc.CREATE_STREAM,
        ({"subject": "s"}, Status.INVALID_ARGUMENT, "Name cannot be empty"),
        ({"name": "n"}, Status.INVALID_ARGUMENT, "Subject is invalid"),
        ({"name": "n", "subject": "a b"}, Status.INVALID_ARGUMENT, "Subject is invalid"),
        ({"name": "n", "subject": "a\tb"}, Status.INVALID_ARGUMENT, "Subject is invalid"),
        ({"name": "n", "subject": "a..b"}, Status.INVALID_ARGUMENT, "Subject is invalid"),
        ({"name": "n", "subject": ".a"}, Status.INVALID_ARGUMENT, "Subject is invalid"),
        ({"name": "n", "subject": "a."}, Status.INVALID_ARGUMENT, "Subject is invalid"),
        ({"name": "__cursors", "subject": "s"}, Status.INVALID_ARGUMENT, "Stream is reserved"),
        ({"name": "__activity", "subject": "s"}, Status.INVALID_ARGUMENT, "Stream is reserved"),
        (
            {"name": "n", "subject": "s", "replication_factor": 2},
            Status.INVALID_ARGUMENT,
            "Invalid replicationFactor 2, cluster size 1",
        ),
        (
            {"name": "n", "subject": "s", "replication_factor": -2},
            Status.INVALID_ARGUMENT,
            "Invalid replicationFactor -2",
        ),
        (
            {"name": STREAM, "subject": "another"},
            Status.ALREADY_EXISTS,
            "stream already exists",
        ),
        (
            {"name": "n", "subject": "s", "encryption": proto.NullableBool(value=True)},
            Status.FAILED_PRECONDITION,
            NO_KEY,
        ),
    ),
    *rows(
        rpc.DELETE_STREAM,
        ({"name": "unknown"}, Status.NOT_FOUND, "stream does not exist"),
        ({"name": ""}, Status.NOT_FOUND, "stream does not exist"),
        ({"name": "__cursors"}, Status.INVALID_ARGUMENT, "Stream is reserved"),
        ({"name": "__activity"}, Status.INVALID_ARGUMENT, "Stream is reserved"),
    ),
    *(
        row
        for procedure in (rpc.PAUSE_STREAM, rpc.SET_STREAM_READONLY)
        for row in rows(
            procedure,
            ({"name": "unknown"}, Status.NOT_FOUND, "stream not found"),
            ({"name": ""}, Status.NOT_FOUND, "stream not found"),
            (
                {"name": "unknown", "partitions": [0]},
                Status.NOT_FOUND,
                "stream does not exist",
            ),
            ({"name": STREAM, "partitions": [2]}, Status.NOT_FOUND, "partition does not exist"),
            (
                {"name": STREAM, "partitions": [-1]},
                Status.NOT_FOUND,
                "partition does not exist",
            ),
            (
                {"name": STREAM, "partitions": [0, 2]},
                Status.NOT_FOUND,
                "partition does not exist",
            ),
        )
    ),
    *rows(
        rpc.SUBSCRIBE,
        ({"stream": "unknown"}, Status.NOT_FOUND, "No such partition"),
        ({"stream": ""}, Status.NOT_FOUND, "No such partition"),
        ({"stream": STREAM, "partition": 2}, Status.NOT_FOUND, "No such partition"),
        ({"stream": STREAM, "partition": -1}, Status.NOT_FOUND, "No such partition"),
        (
            {"stream": "unknown", "start_position": proto.StartPosition(9)},
            Status.NOT_FOUND,
            "No such partition",
        ),
        (
            {"stream": STREAM, "start_position": proto.StartPosition(9)},
            Status.INVALID_ARGUMENT,
            "Unknown StartPosition 9",
        ),
        (
            {"stream": STREAM, "stop_position": proto.StopPosition(9)},
            Status.INVALID_ARGUMENT,
            "Unknown StopPosition 9",
        ),
        (
            {"stream": STREAM, "consumer": proto.Consumer(group_id="g")},
            Status.INVALID_ARGUMENT,
            "Consumer id cannot be empty when group id is provided",
        ),
    ),
    *rows(
        rpc.FETCH_PARTITION_METADATA,
        ({"stream": "unknown"}, Status.NOT_FOUND, "partition not found"),
        ({"stream": ""}, Status.NOT_FOUND, "partition not found"),
        ({"stream": STREAM, "partition": 2}, Status.NOT_FOUND, "partition not found"),
        ({"stream": STREAM, "partition": -1}, Status.NOT_FOUND, "partition not found"),
    ),
    *rows(
        rpc.PUBLISH,
        ({"stream": ""}, Status.INVALID_ARGUMENT, "no stream provided"),
        ({"stream": "unknown"}, Status.NOT_FOUND, "no such stream: unknown"),
        ({"stream": STREAM, "partition": 2}, Status.NOT_FOUND, "no such partition: 2"),
        ({"stream": STREAM, "partition": -1}, Status.NOT_FOUND, "no such partition: -1"),
    ),
    *rows(
        rpc.PUBLISH_TO_SUBJECT,
        ({"subject": ""}, Status.UNKNOWN, "failed to publish to NATS: nats: invalid subject"),
    ),
    *(
        row
        for procedure in (rpc.SET_CURSOR, rpc.FETCH_CURSOR)
        for row in rows(
            procedure,
            ({"stream": "", "cursor_id": "c"}, Status.INVALID_ARGUMENT, "No stream provided"),
            ({"stream": "s", "cursor_id": ""}, Status.INVALID_ARGUMENT, "No cursorId provided"),
            ({"stream": "", "cursor_id": ""}, Status.INVALID_ARGUMENT, "No stream provided"),
        )
    ),
    Row(
        rpc.Rpc("NoSuchCall", proto.DeleteStreamRequest, proto.DeleteStreamResponse),
        {},
        Status.UNIMPLEMENTED,
        "unknown method NoSuchCall for service proto.API",
    ),
]


@pytest.mark.parametrize("row", [pytest.param(row, id=row.name) for row in TABLE])
async def test_a_call_is_refused(wire: Wire, stream_name: str, row: Row) -> None:
    await wire.create(stream_name, partitions=2)

    end = await wire.refusal(row.procedure, row.request(stream_name))
    assert end == End(row.status, row.text)


@pytest.mark.parametrize(
    ("stream", "partition", "text"),
    [
        ("", 0, "no such stream: "),
        ("unknown", 0, "no such stream: unknown"),
        (STREAM, 2, "no such partition: 2"),
        (STREAM, -1, "no such partition: -1"),
    ],
)
async def test_a_session_reports_what_cannot_be_found(
    wire: Wire, stream_name: str, stream: str, partition: int, text: str
) -> None:
    """Even an empty stream name is NOT_FOUND here, and INVALID_ARGUMENT in the unary call."""
    await wire.create(stream_name, partitions=2)

    async with wire.publish_session() as session:
        await session.send(
            proto.PublishRequest(
                stream=stream.replace(STREAM, stream_name),
                partition=partition,
                correlation_id="id",
            )
        )
        reply = await session.next()
    assert reply.correlation_id == "id"
    assert reply.async_error == proto.PublishAsyncError(code=Code.NOT_FOUND, message=text)

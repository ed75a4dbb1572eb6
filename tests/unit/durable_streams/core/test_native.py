from __future__ import annotations

import base64
import json

from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio import Message
from liftbridge_aio.durable_streams.core.native import NativeLog, NativeView, message_json
from liftbridge_aio.model import UUID_HEADER
from liftbridge_aio.transactions.core.uuid import Flags, build_uuid
from liftbridge_aio.transactions.log_format import ACK_HEADERS

PRODUCER = b"\x01ladle"


def raw(fields: dict[str, str], name: str) -> bytes:
    if name in fields:
        return fields[name].encode()
    return base64.b64decode(fields[f"{name}_base64"])


@given(st.binary(), st.binary(), st.integers(0, 2**62), st.binary())
def test_nothing_of_a_message_is_lost(
    key: bytes, value: bytes, timestamp: int, content: bytes
) -> None:
    message = Message("orders", 0, 7, key, value, timestamp, {"trace": content})
    found = json.loads(message_json(message))
    assert found["offset"] == 7
    assert int(found["timestamp"]) == timestamp
    assert raw(found, "value") == value
    assert not key or raw(found, "key") == key
    assert raw(found["headers"], "trace") == content


def message(offset: int, clock: int = 0, flags: Flags | None = None) -> Message:
    """Return a plain message, or one of a producer; one without a clock is an ack."""
    headers = {} if clock else ACK_HEADERS
    if flags is not None:
        headers = {UUID_HEADER: build_uuid(PRODUCER, clock, flags)}
    return Message("orders", 0, offset, b"", b"%d" % offset, 0, transaction_headers=headers)


def test_messages_of_a_transaction_stand_together_at_its_ack() -> None:
    view = NativeView(committed=True, skip_truncated=False)
    plain, ack = message(3, clock=1), message(6)
    shown = [
        *view.show([plain, message(0, 161, Flags.CONTINUE)]),
        *view.show([message(2, 177, Flags.CONTINUE), ack, message(7, 200, Flags.OUTSIDE)]),
        *view.show([message(8)]),
    ]
    assert [position for position, _ in shown] == [3, 6, 7, 8]
    found = [json.loads(b"[%b]" % text) for _, text in shown]
    assert [[each["offset"] for each in row] for row in found] == [[3], [0, 2], [7], []]
    assert [each["position"] for row in found for each in row] == [3, 6, 6, 7]


def test_uncommitted_messages_stand_where_they_are_and_acks_are_hidden() -> None:
    view = NativeView(committed=False, skip_truncated=False)
    shown = view.show([message(0, 161, Flags.CONTINUE), message(1), message(2, clock=1)])
    assert [(at, json.loads(text) if text else None) for at, text in shown] == [
        (0, {"offset": 0, "timestamp": "0", "value": "0"}),
        (1, None),
        (2, {"offset": 2, "timestamp": "0", "value": "2"}),
    ]


@given(st.integers(0, 9), st.booleans())
def test_the_name_of_a_native_log_says_what_it_is(partition: int, committed: bool) -> None:
    log = NativeLog("orders.eu", partition, 1_795_701_881_523_533_007, committed)
    assert NativeLog.parse(log.name) == log
    assert NativeLog.parse("durable-streams.7f6b") is None

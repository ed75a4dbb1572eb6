from __future__ import annotations

import base64
import json

from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.durable_streams.core.native import message_json


def raw(fields: dict[str, str], name: str) -> bytes:
    if name in fields:
        return fields[name].encode()
    return base64.b64decode(fields[f"{name}_base64"])


@given(st.binary(), st.binary(), st.integers(0, 2**62), st.binary())
def test_nothing_of_a_message_is_lost(
    key: bytes, value: bytes, timestamp: int, content: bytes
) -> None:
    found = json.loads(message_json(7, key, value, {"trace": content}, timestamp))
    assert found["offset"] == 7
    assert int(found["timestamp"]) == timestamp
    assert raw(found, "value") == value
    assert not key or raw(found, "key") == key
    assert raw(found["headers"], "trace") == content

"""How values are shown."""

from __future__ import annotations

import base64
import json

from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.cli.output import json_bytes, json_headers, readable


@given(st.binary())
def test_json_gives_back_every_byte(data: bytes) -> None:
    shown = json.loads(json.dumps(json_bytes("value", data)))
    if "value" in shown:
        assert shown["value"].encode() == data
    else:
        assert base64.b64decode(shown["value_base64"]) == data


@given(st.binary())
def test_a_readable_value_has_no_control_character(data: bytes) -> None:
    assert not [char for char in readable(data) if ord(char) < 32 or 127 <= ord(char) < 160]


def test_readable_text_stays_as_it_is() -> None:
    assert readable("Grüße, 世界".encode()) == "Grüße, 世界"


def test_headers_that_are_no_text_stand_apart() -> None:
    assert json_headers({"a": b"1"}) == {"headers": {"a": "1"}}
    assert json_headers({"a": b"1", "b": b"\xff"}) == {
        "headers": {"a": "1"},
        "headers_base64": {"b": "/w=="},
    }

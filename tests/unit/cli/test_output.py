"""The formatting of values."""

from __future__ import annotations

import base64
import json
import re
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.cli.output import (
    json_bytes,
    json_headers,
    json_line,
    moment,
    readable,
    write_table,
)


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


@given(st.text())
def test_a_readable_value_is_one_line_in_the_order_that_it_has(text: str) -> None:
    shown = readable(text.encode())
    assert shown.splitlines() in ([], [shown])
    turned = {"LRE", "RLE", "PDF", "LRO", "RLO", "LRI", "RLI", "FSI", "PDI"}
    assert not [char for char in shown if unicodedata.bidirectional(char) in turned]


def test_what_fools_a_terminal_is_shown_as_what_it_is() -> None:
    fooling = "user\u202enimda\u2028\u200bx\u2066\u061c"
    assert readable(fooling.encode()) == r"user\u202enimda\u2028\u200bx\u2066\u061c"
    assert json.loads(json_line(json_bytes("value", fooling.encode())))["value"] == fooling


@pytest.mark.parametrize("text", ["Grüße, 世界", "می‌خواهم", "שלום", "👩‍💻 🏴‍☠️"])
def test_readable_text_stays_as_it_is(text: str) -> None:
    assert readable(text.encode()) == text


def test_headers_that_are_no_text_stand_apart() -> None:
    assert json_headers({"a": b"1"}) == {"headers": {"a": "1"}}
    assert json_headers({"a": b"1", "b": b"\xff"}) == {
        "headers": {"a": "1"},
        "headers_base64": {"b": "/w=="},
    }


COLUMNS = ("Stream", "Partition", "Replicas", "High watermark", "State", "Latest message")
ROWS = [
    (name, number, "a-rather-long-id another-rather-long-id", 9_000_000, "paused", moment(0))
    for name in ("orders", "orders.refunds.europe")
    for number in range(2)
]


@pytest.mark.parametrize("width", [40, 80, 120, 200])
def test_a_terminal_that_is_too_narrow_cuts_nothing_off(
    width: int, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True)
    monkeypatch.setenv("COLUMNS", str(width))
    write_table("Partitions", COLUMNS, ROWS, spare=("Replicas", "Latest message"))
    out, err = capsys.readouterr()
    kept = [name for name in COLUMNS if name not in err]
    assert ("State" in kept, "Replicas" in kept) == (True, width not in {80, 120})
    for row in ROWS:
        for name, cell in zip(COLUMNS, row, strict=True):
            assert (str(cell) in out) == (name in kept)
    assert "…" not in out
    if width > 40:  # a table
        assert max(len(re.sub(r"\x1b\[\d*m", "", line)) for line in out.splitlines()) <= width

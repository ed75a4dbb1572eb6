"""Text from elsewhere is written by one rule, whatever it holds."""

from __future__ import annotations

import json

from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio._core.foreign_text import (
    error_text,
    json_bytes,
    report_bytes,
    report_text,
    shown,
)

ANY_TEXT = st.text(st.characters())  # with lone surrogates


@given(ANY_TEXT, st.integers(0, 50))
def test_a_report_is_utf8_and_not_too_long(text: str, most: int) -> None:
    cut = report_bytes(text, most)
    assert len(cut) <= most
    assert report_text(text).startswith(cut.decode())
    assert report_bytes(text, 10 * len(text)).decode() == report_text(text)


@given(st.text())
def test_unicode_stays_as_it_is(text: str) -> None:
    assert report_text(text) == text == shown(text.encode())


@given(st.dictionaries(ANY_TEXT, ANY_TEXT))
def test_json_survives_lone_surrogates(value: dict[str, str]) -> None:
    written = json_bytes(json.dumps(value, ensure_ascii=False))
    assert json.loads(written) == json.loads(json.dumps(value))


def test_an_error_without_text_has_an_empty_one() -> None:
    class Unprintable(Exception):
        def __str__(self) -> str:
            raise ValueError("no text")

    assert error_text(Unprintable()) == ""
    assert error_text(ValueError("\udcff")) == "\\udcff"


@given(st.binary())
def test_any_bytes_can_be_shown(data: bytes) -> None:
    assert shown(data).encode() == shown(data).encode("utf-8", "strict")

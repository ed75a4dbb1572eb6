"""Messages that a server cannot bear are refused before anything is sent."""

from __future__ import annotations

import pytest

from liftbridge_aio._core.message_check import (
    MAX_HEADER_NAME_BYTES,
    MAX_HEADERS,
    check_content,
    check_size,
)
from liftbridge_aio.errors import InvalidRequest, MessageTooLarge, WrongType


@pytest.mark.parametrize("letter", ["k", "ü"])
def test_a_header_name_that_ends_a_server_is_refused(letter: str) -> None:
    longest = letter * (MAX_HEADER_NAME_BYTES // len(letter.encode()))
    check_content(b"", None, {longest: b""})
    with pytest.raises(InvalidRequest, match="32767 bytes"):
        check_content(b"", None, {longest + letter: b""})


def test_more_headers_than_a_server_can_count_are_refused() -> None:
    headers = {str(number): b"" for number in range(MAX_HEADERS)}
    check_content(b"", None, headers)
    with pytest.raises(InvalidRequest, match="65533 headers"):
        check_content(b"", None, {**headers, "one more": b""})


def test_half_a_character_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="UTF-8"):
        check_content(b"", None, {"\ud800": b""})


@pytest.mark.parametrize("headers", [5, [("a", b"")], "a"])
def test_headers_are_a_mapping(headers: object) -> None:
    with pytest.raises(WrongType, match="map names to bytes"):
        check_content(b"", None, headers)  # type: ignore[arg-type] # what callers without types do


def test_room_is_kept_for_what_the_server_adds() -> None:
    check_size(744, 1000)
    with pytest.raises(MessageTooLarge, match="745 bytes"):
        check_size(745, 1000, stream="orders")

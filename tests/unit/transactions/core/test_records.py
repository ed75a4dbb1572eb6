"""Records are cut into messages and put together again, whatever stands between them."""

from __future__ import annotations

from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.transactions.core import records
from liftbridge_aio.transactions.core.records import (
    PART_BYTES,
    Assembler,
    Kind,
    LogRecord,
    Mark,
    decode_mark,
    parts_of,
)

A: Final = b"a" * 16
B: Final = b"b" * 16


def assembled(log: list[tuple[Mark | None, bytes]], start: int = 0) -> list[LogRecord]:
    assembler = Assembler()
    found = [assembler.feed(offset, *log[offset]) for offset in range(start, len(log))]
    return [record for record in found if record is not None]


@pytest.mark.parametrize(
    ("size", "count"),
    [(0, 1), (1, 1), (PART_BYTES, 1), (PART_BYTES + 1, 2), (3 * PART_BYTES, 3)],
)
def test_a_record_is_as_many_messages_as_it_needs(size: int, count: int) -> None:
    value = bytes(size)
    parts = list(parts_of(A, value))
    assert len(parts) == count
    assert all(decode_mark(mark.encode()) == mark for mark, _ in parts)
    assert assembled(list(parts)) == [LogRecord(count - 1, value)]


def test_a_mark_of_another_version_is_refused() -> None:
    header = Mark(Kind.CLAIM, A).encode()
    for other in (b"", header[:-1], b"\x02" + header[1:], b"\x01\x07" + header[2:]):
        with pytest.raises(ValueError, match=r".+"):
            decode_mark(other)
    assert decode_mark(None) is None


@given(st.data())
def test_whole_records_are_found_from_any_offset(data: st.DataObject) -> None:
    """Writers crash in the middle of records, and others put markers and messages between."""
    log: list[tuple[Mark | None, bytes]] = []
    whole: list[tuple[int, LogRecord]] = []
    writer = 0
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records, "PART_BYTES", 2)
        for value in data.draw(st.lists(st.binary(max_size=7), max_size=8)):
            identity = bytes([writer]) * 16
            begin = len(log)
            parts = list(parts_of(identity, value))
            kept = data.draw(st.integers(0, len(parts)))
            for part in parts[:kept]:
                log.append(part)
                if data.draw(st.booleans()):
                    log.append(
                        data.draw(st.sampled_from([(None, b"x"), (Mark(Kind.MARKER, B), b"")]))
                    )
            if kept == len(parts):
                last = max(at for at in range(begin, len(log)) if log[at] == parts[-1])
                whole.append((begin, LogRecord(last, value)))
            else:
                writer += 1
                log.append((Mark(Kind.CLAIM, bytes([writer]) * 16), b""))
        start = data.draw(st.integers(0, len(log)))
        assert assembled(log, start) == [record for begin, record in whole if begin >= start]

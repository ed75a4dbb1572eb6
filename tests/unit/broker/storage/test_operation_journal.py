"""Operations on disk are restored unchanged, and a long journal is condensed."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import fields
from pathlib import Path
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.broker.storage.core.operations import (
    ChangeLeader,
    CreateStream,
    Operation,
    PartitionPlacement,
    PauseStream,
    PublishActivity,
    ResumeStream,
)
from liftbridge_aio.broker.storage.core.stream_config import StreamConfig
from liftbridge_aio.broker.storage.journal import Journal
from liftbridge_aio.broker.storage.operation_journal import OperationJournal, decode, encode

MANY = 2_000
"""Number of entries from which a journal is condensed."""

TEXTS = st.text(st.characters(), max_size=10)  # with lone surrogates
NUMBERS = st.integers(-(2**63), 2**63 - 1)
BY_ANNOTATION: dict[str, st.SearchStrategy[object]] = {
    "str": TEXTS,
    "int": NUMBERS,
    "bool": st.booleans(),
    "int | None": st.none() | NUMBERS,
    "bool | None": st.none() | st.booleans(),
    "tuple[str, ...]": st.lists(TEXTS, max_size=3).map(tuple),
    "tuple[int, ...]": st.lists(NUMBERS, max_size=3).map(tuple),
}


def any_of(kind: type[object]) -> st.SearchStrategy[object]:
    """Any value of a dataclass whose fields have the annotations above."""
    return st.builds(kind, **{one.name: BY_ANNOTATION[str(one.type)] for one in fields(kind)})  # type: ignore[arg-type]


BY_ANNOTATION["StreamConfig"] = any_of(StreamConfig)
BY_ANNOTATION["tuple[PartitionPlacement, ...]"] = st.lists(
    any_of(PartitionPlacement), max_size=3
).map(tuple)


@pytest.mark.parametrize("kind", get_args(Operation))
@given(data=st.data(), index=st.integers(1, 2**63 - 1))
def test_every_operation_is_restored_unchanged(
    kind: type[Operation], data: st.DataObject, index: int
) -> None:
    operation = data.draw(any_of(kind))
    assert isinstance(operation, kind)

    again = decode(encode(index, operation))

    assert again == (index, operation)
    assert hash(again) == hash((index, operation))  # no list where a tuple was


@pytest.mark.parametrize(
    "entry",
    [
        b"",
        b"\xff",
        b"{",
        b"[]",
        b"7",
        b"{}",
        b'{"index":1,"kind":"Nothing","fields":{}}',
        b'{"index":1,"kind":"DeleteStream","fields":{}}',
        b'{"index":1,"kind":"DeleteStream","fields":{"stream":"s","more":1}}',
        b'{"index":1,"kind":"DeleteStream","fields":[]}',
        b'{"index":1,"kind":"CreateStream","fields":{"config":{"unknown":1},"partitions":[]}}',
    ],
)
def test_an_entry_that_is_no_operation_is_refused(entry: bytes, tmp_path: Path) -> None:
    journal = Journal(tmp_path / "journal")
    journal.append(encode(1, PublishActivity(index=1)))
    journal.append(entry)
    journal.close()
    opened = Journal(tmp_path / "journal")

    with pytest.raises(OSError, match="journal") as refused:
        OperationJournal(opened)

    assert "entry 2 " in str(refused.value)
    opened.close()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "journal"


@pytest.fixture
def journal(path: Path) -> Iterator[Journal]:
    opened = Journal(path)
    yield opened
    opened.close()


def kept_after_restart(path: Path) -> list[tuple[int, Operation]]:
    opened = Journal(path)
    try:
        return list(OperationJournal(opened).stored)
    finally:
        opened.close()


def test_stored_operations_are_there_after_a_restart(path: Path, journal: Journal) -> None:
    operations = OperationJournal(journal)
    assert operations.stored == []
    operations.append(1, CREATED)
    operations.append(2, pause(7))
    journal.close()

    assert kept_after_restart(path) == [(1, CREATED), (2, pause(7))]


@pytest.mark.parametrize(("count", "is_shortened"), [(MANY - 1, False), (MANY, True)])
def test_a_long_journal_is_shortened_when_it_is_opened(
    path: Path, journal: Journal, count: int, is_shortened: bool
) -> None:
    operations = OperationJournal(journal)
    operations.append(1, CREATED)
    for index in range(2, count + 1):
        operations.append(index, pause(index) if index % 2 else RESUMED)
    journal.close()

    kept = kept_after_restart(path)

    assert (len(kept) < count) is is_shortened
    assert (kept[0][0], max(index for index, _ in kept)) == (1, count)
    assert kept_after_restart(path) == kept
    entries = Journal(path).entries
    assert len(entries) == len(kept)


def test_a_journal_that_would_hardly_shrink_is_left_alone(path: Path, journal: Journal) -> None:
    operations = OperationJournal(journal)
    operations.append(1, CREATED)
    for index in range(2, MANY + 1):
        matters = index % 3
        leader = ChangeLeader(stream="s", partition=0, leader="me")
        operations.append(index, leader if matters else PublishActivity(index=index))
    journal.close()
    before = path.read_bytes()

    assert len(kept_after_restart(path)) == MANY
    assert path.read_bytes() == before


def test_an_entry_is_readable_by_people() -> None:
    entry = json.loads(encode(2, PauseStream(stream="ü", partitions=(1,), resume_all=True, at=3)))

    assert entry == {
        "index": 2,
        "kind": "PauseStream",
        "fields": {"stream": "ü", "partitions": [1], "resume_all": True, "at": 3},
    }


CREATED = CreateStream(
    name="s",
    subject="s",
    group="",
    config=StreamConfig(),
    created=1,
    partitions=(PartitionPlacement(replicas=("me",), leader="me"),),
)
RESUMED = ResumeStream(stream="s", partitions=(0,), at=1)


def pause(at: int) -> PauseStream:
    return PauseStream(stream="s", partitions=(0,), resume_all=False, at=at)

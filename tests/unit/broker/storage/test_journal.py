"""The journal: entries survive, incomplete ones do not."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Callable
from itertools import chain, count
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.broker.storage.journal import CorruptJournal, Journal
from support.broker.killing import each_kill

ENTRIES = [b"create", b"", b"pause" * 20, b"delete"]


def written(path: Path, entries: list[bytes]) -> Journal:
    journal = Journal(path)
    for entry in entries:
        journal.append(entry)
    return journal


def entries_of(path: Path) -> list[bytes]:
    journal = Journal(path)
    journal.close()
    return list(journal.entries)


@given(runs=st.lists(st.lists(st.binary(max_size=30), max_size=4), max_size=4))
def test_entries_outlive_the_process(runs: list[list[bytes]]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "journal"
        for number, run in enumerate(runs):
            journal = written(path, run)
            assert list(journal.entries) == list(chain(*runs[:number]))
            journal.close()

        assert entries_of(path) == list(chain(*runs))


def test_a_journal_cut_off_at_any_byte_loses_only_the_torn_entry(tmp_path: Path) -> None:
    path = tmp_path / "journal"
    written(path, ENTRIES).close()
    whole = path.read_bytes()
    ends = [sum(44 + len(one) for one in ENTRIES[: number + 1]) for number in range(4)]
    assert ends[-1] == len(whole)

    for cut in range(len(whole)):
        path.write_bytes(whole[:cut])
        kept = ENTRIES[: sum(end <= cut for end in ends)]
        journal = Journal(path)
        journal.append(b"after")
        journal.close()
        assert entries_of(path) == [*kept, b"after"]


def test_a_flipped_bit_is_an_error_unless_it_is_in_the_last_entry(
    tmp_path: Path,
) -> None:
    path = tmp_path / "journal"
    written(path, ENTRIES).close()
    whole = path.read_bytes()
    last = len(whole) - 44 - len(ENTRIES[-1])

    for at in range(len(whole)):
        path.write_bytes(whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :])
        if at < last:
            with pytest.raises(CorruptJournal, match="is damaged at byte"):
                Journal(path)
            assert len(path.read_bytes()) == len(whole)
        else:
            assert entries_of(path) == ENTRIES[:-1]


def test_rewriting_is_atomic(tmp_path: Path) -> None:
    paths = (tmp_path / f"journal{number}" for number in count())
    path = tmp_path

    def prepare() -> Callable[[], object]:
        nonlocal path
        path = next(paths)
        journal = written(path, ENTRIES)
        return lambda: journal.rewrite([b"snapshot", b"more"])

    def look(is_done: bool) -> None:
        found = entries_of(path)
        assert found == [b"snapshot", b"more"] or (found == ENTRIES and not is_done)

    assert each_kill(prepare, look) >= 2


def test_appending_continues_after_a_rewrite(tmp_path: Path) -> None:
    journal = written(tmp_path / "journal", ENTRIES)

    journal.rewrite([b"snapshot"])
    journal.append(b"next")
    journal.close()
    journal.close()

    assert entries_of(tmp_path / "journal") == [b"snapshot", b"next"]


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
def test_a_failed_append_leaves_nothing_behind(tmp_path: Path) -> None:
    import resource  # noqa: PLC0415 - Windows has none

    journal = written(tmp_path / "journal", ENTRIES)
    size = (tmp_path / "journal").stat().st_size
    _, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size + 10, hard))
    try:
        with pytest.raises(OSError, match="File too large"):
            journal.append(b"x" * 100)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert (tmp_path / "journal").stat().st_size == size
    journal.append(b"later")
    journal.close()
    assert entries_of(tmp_path / "journal") == [*ENTRIES, b"later"]

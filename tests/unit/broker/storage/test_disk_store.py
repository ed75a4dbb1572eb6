"""Segments in a folder: changes are atomic when the process ends."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from liftbridge_aio.broker.storage.disk_store import DiskSegmentStore
from support.broker.disk_logs import contents, filled, log_files, message, store_in
from support.broker.killing import each_kill

BEFORE = [0, 1, 2, 3, 4, 5, 6, 7]


def append(store: DiskSegmentStore) -> None:
    store._segments[-1].append(message(8))


def roll(store: DiskSegmentStore) -> None:
    store.create(8)


def compact(store: DiskSegmentStore) -> None:
    store.rewrite(store._segments[0], [message(1)])


def compact_the_end_away(store: DiskSegmentStore) -> None:
    store.rewrite(store._segments[1], [message(3)])


def retain_less(store: DiskSegmentStore) -> None:
    store.remove(store._segments[0])


def remove_from_the_middle(store: DiskSegmentStore) -> None:
    store.remove(store._segments[1])


def truncate(store: DiskSegmentStore) -> None:
    store._segments[2].truncate(7)


def empty(store: DiskSegmentStore) -> None:
    store._segments[2].truncate(6)


def delete(store: DiskSegmentStore) -> None:
    store.delete()


def reopen(store: DiskSegmentStore) -> None:
    store.close()
    with log_files(store._folder)[-1].open("ab") as file:
        file.write(b"half a rec")
    (store._folder / "00000000000000000000.log.tmp").write_bytes(b"half a file")
    log_files(store._folder)[0].with_suffix(".index").write_bytes(b"damaged")
    store_in(store._folder).open()


@pytest.mark.parametrize(
    ("step", "after", "next_offset"),
    [
        (append, [*BEFORE, 8], 9),
        (roll, BEFORE, 8),
        (compact, BEFORE[1:], 8),
        (compact_the_end_away, [0, 1, 2, 3, 6, 7], 8),
        (retain_less, BEFORE[3:], 8),
        (remove_from_the_middle, [0, 1, 2, 6, 7], 8),
        (truncate, BEFORE[:7], 7),
        (empty, BEFORE[:6], 6),
        (reopen, BEFORE, 8),
        (delete, [], 0),
    ],
)
def test_changes_are_atomic(
    tmp_path: Path, step: Callable[[DiskSegmentStore], None], after: list[int], next_offset: int
) -> None:
    if step is compact:
        after = [1, *BEFORE[3:]]
    folders = (tmp_path / str(number) / "0" for number in count())
    folder = tmp_path

    def prepare() -> Callable[[], object]:
        nonlocal folder
        folder = next(folders)
        store = filled(
            folder,
            [message(offset) for offset in (0, 1, 2)],
            [message(offset) for offset in (3, 4, 5)],
            [message(offset) for offset in (6, 7)],
        )
        return lambda: step(store)

    def look(is_done: bool) -> None:
        for _ in range(2):  # the second start finds the result of the first
            store = store_in(folder)
            segments = store.open()
            found = contents(segments)
            assert found.lost == []
            assert found.offsets in ([after] if is_done else [BEFORE, after])
            following = segments[-1].next_offset if segments else 0
            assert following == (8 if found.offsets == BEFORE else next_offset)
            assert all(path.suffix in {".log", ".index"} for path in folder.glob("*"))
            if segments:
                segments[-1].truncate(segments[-1].next_offset)
            store.close()

    assert each_kill(prepare, look) >= 1


def test_truncating_a_sealed_segment_is_atomic(tmp_path: Path) -> None:
    folders = (tmp_path / str(number) for number in count())
    folder = tmp_path

    def prepare() -> Callable[[], object]:
        nonlocal folder
        folder = next(folders)
        store = filled(folder, [message(offset) for offset in range(6)], [message(6)])
        sealed, last = store._segments
        store.remove(last)
        return lambda: sealed.truncate(4)

    def look(is_done: bool) -> None:
        store = store_in(folder)
        segments = store.open()
        found = contents(segments)
        assert found.lost == []
        assert found.offsets == [0, 1, 2, 3] if is_done else found.offsets[:4] == [0, 1, 2, 3]
        assert segments[-1].next_offset == len(found.offsets)
        assert len(found.offsets) in {4, 6}
        store.close()

    assert each_kill(prepare, look) >= 2


def test_compacted_offsets_at_the_end_are_not_assigned_again(
    tmp_path: Path,
) -> None:
    folder = tmp_path / "log"
    store = filled(folder, [message(offset) for offset in range(6)], [message(6)])
    store.rewrite(store._segments[0], [message(0), message(2)])
    store.remove(store._segments[1])
    store.close()

    (last,) = store_in(folder).open()

    assert (last.next_offset, last.last_offset) == (6, 2)


def test_a_closed_store_opens_again_without_reading_everything(tmp_path: Path) -> None:
    store = filled(tmp_path / "log", [message(0), message(1)])
    before = store.open()
    store.close()

    after = store.open()

    assert list(after) == list(before)
    after[0].append(message(2))
    assert contents(after).offsets == [0, 1, 2]


def test_a_deleted_log_begins_again(tmp_path: Path) -> None:
    store = filled(tmp_path / "log", [message(0)])

    store.delete()

    assert list(tmp_path.iterdir()) == []
    assert list(store.open()) == []
    store.create(0).append(message(0, b"new"))
    store.close()
    assert contents(store_in(tmp_path / "log").open()).messages == [message(0, b"new")]


def test_segments_cannot_overlap(tmp_path: Path) -> None:
    store = filled(tmp_path / "log", [message(0), message(1)])

    with pytest.raises(ValueError, match="beyond 1"):
        store.create(1)


def test_a_segment_of_another_store_is_refused(tmp_path: Path) -> None:
    store = filled(tmp_path / "log", [message(0)])
    other = filled(tmp_path / "other", [message(0)])

    with pytest.raises(ValueError, match="does not belong to this store"):
        store.remove(other._segments[0])

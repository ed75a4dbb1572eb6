"""Segments on disk: damage is neither served nor skipped in silence."""

from __future__ import annotations

import errno
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.broker.storage.core.record import encode, record_size
from liftbridge_aio.broker.storage.core.segment import LostSegment
from liftbridge_aio.broker.storage.disk_store import DiskSegmentStore
from liftbridge_aio.broker.storage.open_files import OpenFiles
from liftbridge_aio.model import Message
from support.broker.disk_logs import contents, filled, log_files, message, store_in

SIX = [message(offset) for offset in range(6)]
SIZE = record_size(SIX[0])  # of each of them

# Larger than one read, so that reads split records.
LARGE = st.sampled_from([0, 10, 5_000, 300_000])


@contextmanager
def new_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        yield Path(name) / "log"


def flip(path: Path, bit: int) -> None:
    data = bytearray(path.read_bytes())
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


@given(
    sizes=st.lists(LARGE, min_size=1, max_size=12),
    timestamps=st.lists(st.integers(0, 20), min_size=12, max_size=12),
    is_restarted=st.booleans(),
    is_sealed=st.booleans(),
    wanted=st.tuples(st.integers(0, 13), st.integers(1, 13), st.integers(0, 13)),
)
def test_appended_messages_are_read(
    sizes: list[int],
    timestamps: list[int],
    is_restarted: bool,
    is_sealed: bool,
    wanted: tuple[int, int, int],
) -> None:
    messages = [
        message(offset, bytes(size), timestamps[offset]) for offset, size in enumerate(sizes)
    ]
    with new_folder() as folder:
        store = filled(folder, messages)
        (segment,) = store._segments
        if is_sealed:
            store.create(len(messages))
        if is_restarted:
            store.close()
            store = store_in(folder)
            segment = store._segments[0] if store.open() else segment
        offset, limit, end = wanted

        assert segment.read(offset, limit, end) == messages[offset:end][:limit]
        assert (segment.count, segment.next_offset) == (len(messages), len(messages))
        assert (segment.first_offset, segment.last_offset) == (0, len(messages) - 1)
        assert segment.first_timestamp == timestamps[0]
        assert segment.last_timestamp == timestamps[len(messages) - 1]
        assert segment.size_bytes == sum(map(record_size, messages))
        assert segment.size_bytes == log_files(folder)[0].stat().st_size
        for moment in range(22):
            later = [one.offset for one in messages if one.timestamp >= moment]
            assert segment.offset_from(moment) == (later[0] if later else None)
        store.close()


def test_a_write_cut_off_at_any_byte_loses_only_that_message() -> None:
    for cut in range(SIZE, 3 * SIZE + 1):
        with new_folder() as folder:
            filled(folder, SIX[:3])._files.close()
            with log_files(folder)[0].open("r+b") as file:
                file.truncate(cut)
            store = store_in(folder)
            (segment,) = store.open()

            whole = cut // SIZE
            found = contents([segment])
            assert (found.messages, found.lost) == (SIX[:whole], [])
            assert segment.next_offset == whole
            assert log_files(folder)[0].stat().st_size == whole * SIZE
            segment.append(message(whole, b"goes on"))
            store.close()
            store = store_in(folder)
            assert contents(store.open()).messages == [*SIX[:whole], message(whole, b"goes on")]
            store.close()


@pytest.mark.parametrize("end", ["close", "kill"])
@pytest.mark.parametrize("which", ["only", "sealed", "last"])
@pytest.mark.parametrize("damage", ["missing", "emptied", "cut", "overwritten"])
def test_a_segment_without_any_message_left_is_refused(
    tmp_path: Path, end: str, which: str, damage: str
) -> None:
    folder = tmp_path / "log"
    runs = [SIX] if which == "only" else [SIX[:3], SIX[3:]]
    store = filled(folder, *runs)
    if end == "close":
        store.close()
    else:
        store._files.close()
    path = log_files(folder)[-1 if which == "last" else 0]
    if damage == "missing":
        path.unlink()
    else:
        size = path.stat().st_size
        path.write_bytes({"emptied": b"", "cut": path.read_bytes()[:9]}.get(damage, b"?" * size))
    if damage == "overwritten" and which == "sealed":
        path.write_bytes(b"?" * 100)  # not the size in its index, so that it is scanned
    before = {one: one.read_bytes() for one in folder.iterdir()}

    for _ in range(2):  # refused again, and unchanged
        with pytest.raises(LostSegment, match=path.name):
            store_in(folder).open()
        assert {one: one.read_bytes() for one in folder.iterdir()} == before

    for one in folder.glob(f"{path.stem}.*"):  # as the error says
        one.unlink()
    store = store_in(folder)
    assert all(one in SIX for one in contents(store.open()).messages)
    store.close()


@given(bit=st.integers(0, 6 * SIZE * 8 - 1), has_index=st.booleans(), is_open=st.booleans())
def test_a_flipped_bit_in_a_sealed_segment_is_reported(
    bit: int, has_index: bool, is_open: bool
) -> None:
    hit = bit // 8 // SIZE
    with new_folder() as folder:
        store = filled(folder, SIX, [message(6)])
        if not is_open:
            store.close()
        path = log_files(folder)[0]
        flip(path, bit)
        if not has_index:
            path.with_suffix(".index").unlink()
        segments = store._segments
        if not is_open:
            store = store_in(folder)
            store.open()

        found = contents(segments if is_open else store._segments)

        assert found.messages == [*SIX[:hit], *SIX[hit + 1 :], message(6)]
        assert found.lost == [hit]
        store.close()


@given(bits=st.lists(st.integers(0, 6 * SIZE * 8 - 1), min_size=1, max_size=20, unique=True))
def test_damage_loses_only_the_damaged_messages(bits: list[int]) -> None:
    hit = {bit // 8 // SIZE for bit in bits}
    with new_folder() as folder:
        filled(folder, SIX, [message(6)]).close()
        for bit in bits:
            flip(log_files(folder)[0], bit)
        store = store_in(folder)

        found = contents(store.open())

        assert found.offsets == [offset for offset in range(7) if offset not in hit]
        assert set(found.lost) == hit
        store.close()


@given(data=st.data())
def test_a_damaged_index_is_rebuilt(data: st.DataObject) -> None:
    with new_folder() as folder:
        filled(folder, SIX, [message(6)]).close()
        index = log_files(folder)[0].with_suffix(".index")
        if data.draw(st.booleans()):
            flip(index, data.draw(st.integers(0, index.stat().st_size * 8 - 1)))
        else:
            index.write_bytes(index.read_bytes()[: data.draw(st.integers(0, 90))])
        store = store_in(folder)

        found = contents(store.open())

        assert (found.messages, found.lost) == ([*SIX, message(6)], [])
        store.close()


@pytest.mark.parametrize("has_index", [True, False])
@pytest.mark.parametrize("cut", [SIZE, 4 * SIZE + 7])
def test_a_sealed_segment_that_is_cut_off_reports_the_loss(
    tmp_path: Path, cut: int, has_index: bool, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / "log"
    filled(folder, SIX, [message(6)]).close()
    path = log_files(folder)[0]
    path.write_bytes(path.read_bytes()[:cut])
    if not has_index and cut % SIZE == 0:
        cut += 1
        path.write_bytes(path.read_bytes() + b"x")
    if not has_index:
        path.with_suffix(".index").unlink()

    for _ in range(2):  # the second start must find it, too
        caplog.clear()
        store = store_in(folder)
        found = contents(store.open())
        store.close()

        assert found.offsets == [*range(cut // SIZE), 6]
        assert found.lost == list(range(cut // SIZE, 6))
        assert f"messages from offset {cut // SIZE} to 5" in caplog.text


def test_a_missing_segment_is_reported(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = tmp_path / "log"
    filled(folder, SIX[:2], SIX[2:4], SIX[4:]).close()
    for path in folder.glob(f"{log_files(folder)[1].stem}.*"):
        path.unlink()

    store = store_in(folder)
    found = contents(store.open())

    assert (found.offsets, found.lost) == ([0, 1, 4, 5], [2, 3])
    assert "messages from offset 2 to 3" in caplog.text


def test_a_removed_segment_is_not_reported(tmp_path: Path) -> None:
    folder = tmp_path / "log"
    store = filled(folder, SIX[:2], SIX[2:4], SIX[4:])
    store.remove(store._segments[1])
    store.close()

    found = contents(store_in(folder).open())

    assert (found.offsets, found.lost) == ([0, 1, 4, 5], [])


def test_records_inside_a_message_are_not_read(tmp_path: Path) -> None:
    at = SIZE + 44 + 3  # position of the second message's value
    nested = message(1, encode(message(1, b"not me"), at) * 2)
    store = filled(tmp_path / "log", [SIX[0], nested, message(2)])
    (segment,) = store._segments
    flip(segment.path, (SIZE + 10) * 8)  # in its header, so that its length is unknown

    found = contents([segment])

    assert (found.messages, found.lost) == ([SIX[0], message(2)], [1])


@pytest.mark.skipif(sys.platform == "win32", reason="needs a limit on the size of files")
def test_a_failed_write_leaves_the_segment_unchanged(tmp_path: Path) -> None:
    import resource  # noqa: PLC0415 - Windows has none

    store = filled(tmp_path / "log", SIX)
    (segment,) = store._segments
    before = segment.path.read_bytes()
    _, hard = limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) + SIZE // 2, hard))
    try:
        with pytest.raises(OSError, match=r".") as raised:
            segment.append(message(6))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)

    assert raised.value.errno == errno.EFBIG
    assert segment.path.read_bytes() == before
    assert (segment.count, segment.next_offset) == (6, 6)
    segment.append(message(6))
    assert contents([segment]).messages == [*SIX, message(6)]


def test_the_number_of_open_files_is_limited(tmp_path: Path) -> None:
    files = OpenFiles(limit=3)
    stores = [DiskSegmentStore(tmp_path / str(number), "s", 0, files) for number in range(4)]
    for store in stores:
        for offset in range(5):
            store.create(offset).append(message(offset))

    assert [contents(store._segments).offsets for store in stores] == [[0, 1, 2, 3, 4]] * 4
    assert len(files._descriptors) == 3
    files.close()
    assert contents(stores[0]._segments).offsets == [0, 1, 2, 3, 4]


def test_random_offsets_of_a_long_segment_are_found(tmp_path: Path) -> None:
    messages: list[Message] = [message(offset) for offset in range(0, 4000, 2)]
    store = filled(tmp_path / "log", messages)
    (segment,) = store._segments

    for offset in range(0, 4000, 37):
        assert segment.read(offset, 1, 4000)[0].offset == offset + offset % 2
        assert segment.offset_from(offset) == offset + offset % 2
    segment.truncate(2001)
    assert segment.read(1990, 100, 4000) == messages[995:1001]
    assert (segment.count, segment.last_offset, segment.next_offset) == (1001, 2000, 2001)
    assert segment.last_timestamp == 2000
    assert segment.offset_from(2001) is None

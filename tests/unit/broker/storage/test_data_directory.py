"""The data directory: one broker at a time, one format, complete deletions."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from pathlib import Path

import pytest

from liftbridge_aio.broker.storage.core.operations import CreateStream, PartitionPlacement
from liftbridge_aio.broker.storage.core.stream_config import StreamConfig
from liftbridge_aio.broker.storage.data_directory import DataDirectory, DataDirectoryError
from liftbridge_aio.broker.storage.storage import DiskStorage
from support.broker.disk_logs import message
from support.broker.killing import each_kill


def with_logs(path: Path, *logs: tuple[int, int]) -> DataDirectory:
    directory = DataDirectory(path)
    for stream_id, partition in logs:
        store = directory.log_store(stream_id, partition, "s")
        store.open()
        store.create(0).append(message(0))
    return directory


def created(name: str, partitions: int = 1) -> CreateStream:
    placement = PartitionPlacement(replicas=("a",), leader="a")
    return CreateStream(
        name=name,
        subject=name,
        group="",
        config=StreamConfig(),
        created=0,
        partitions=(placement,) * partitions,
    )


def folders(path: Path) -> list[str]:
    return sorted(str(one.relative_to(path / "streams")) for one in path.glob("streams/*/*"))


def test_a_second_broker_is_refused_while_the_first_runs(tmp_path: Path) -> None:
    first = DataDirectory(tmp_path)

    with pytest.raises(DataDirectoryError, match="in use by another broker"):
        DataDirectory(tmp_path)

    first.close()
    DataDirectory(tmp_path).close()


def test_a_stream_in_the_journal_has_its_folders_before_any_log(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    DiskStorage(directory).store(1, created("s", partitions=2))
    directory.close()

    directory = DataDirectory(tmp_path)
    storage = DiskStorage(directory)
    storage.check_streams()
    assert [*storage.operations] == [(1, created("s", partitions=2))]
    directory.close()


@pytest.mark.parametrize(
    ("format_text", "complaint"),
    [
        ("2", "has format 2, which is newer than 1; use a newer version"),
        ("one", "format is damaged: it should hold a number, and holds 'one'"),
        ("0", "format is damaged"),
        ("9" * 5000, "format is damaged"),
        (None, "format is missing"),
    ],
)
def test_an_unknown_format_is_refused(
    tmp_path: Path, format_text: str | None, complaint: str
) -> None:
    DataDirectory(tmp_path).close()
    assert (tmp_path / "format").read_text() == "1\n"
    if format_text is None:
        (tmp_path / "format").unlink()
    else:
        (tmp_path / "format").write_text(format_text)

    for _ in range(2):  # a refused folder is not locked
        with pytest.raises(DataDirectoryError, match=complaint):
            DataDirectory(tmp_path)


def test_a_folder_with_something_else_in_it_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "thesis.txt").write_text("")

    with pytest.raises(DataDirectoryError, match=r"it holds 'thesis\.txt'; choose an empty"):
        DataDirectory(tmp_path)

    assert [one.name for one in tmp_path.iterdir()] == ["thesis.txt"]


def test_the_root_of_a_file_system_is_accepted(tmp_path: Path) -> None:
    (tmp_path / "lost+found").mkdir()

    DataDirectory(tmp_path).close()

    assert (tmp_path / "journal").exists()


def test_a_path_that_is_no_folder_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")

    with pytest.raises(DataDirectoryError, match=r"file cannot be used: .*File exists"):
        DataDirectory(tmp_path / "file")


def test_a_damaged_journal_is_refused(tmp_path: Path) -> None:
    directory = DataDirectory(tmp_path)
    directory.journal.append(b"one")
    directory.journal.append(b"two")
    directory.close()
    data = (tmp_path / "journal").read_bytes()
    (tmp_path / "journal").write_bytes(b"?" + data[1:])

    for _ in range(2):
        with pytest.raises(DataDirectoryError, match="journal is damaged at byte 0"):
            DataDirectory(tmp_path)


def test_the_first_start_can_be_interrupted_anywhere(tmp_path: Path) -> None:
    paths = (tmp_path / str(number) for number in count())
    path = tmp_path
    held: list[DataDirectory] = []

    def prepare() -> Callable[[], object]:
        nonlocal path
        path = next(paths)
        return lambda: held.append(DataDirectory(path))

    def look(is_done: bool) -> None:
        if is_done:
            held.pop().close()
        directory = DataDirectory(path)
        directory.journal.append(b"works")
        directory.close()

    assert each_kill(prepare, look) >= 4


def test_an_interrupted_removal_of_a_stream_is_finished_later(tmp_path: Path) -> None:
    paths = (tmp_path / str(number) for number in count())
    path = tmp_path
    directory: DataDirectory

    def prepare() -> Callable[[], object]:
        nonlocal path, directory
        path = next(paths)
        directory = with_logs(path, (1, 0), (2, 0), (2, 1), (22, 0))
        return lambda: directory.remove_stream(2)

    def look(is_done: bool) -> None:
        directory.close()
        if is_done:
            assert folders(path) == ["1/0", "22/0"]
        again = DataDirectory(path)
        again.check_streams({1: created("s"), 22: created("s")}, 22)
        assert folders(path) == ["1/0", "22/0"]
        assert sorted(one.name for one in path.glob("streams/*")) == ["1", "22"]
        again.close()

    assert each_kill(prepare, look) >= 2


def test_an_interrupted_deletion_of_a_log_is_finished(tmp_path: Path) -> None:
    directory = with_logs(tmp_path, (1, 0), (1, 1))
    left = tmp_path / "streams" / "1" / "0.deleted"
    left.mkdir()
    (left / "00000000000000000000.log").write_bytes(b"")

    directory.check_streams({1: created("s", 2)}, 1)

    assert folders(tmp_path) == ["1/0", "1/1"]
    directory.close()


def test_streams_without_a_journal_are_not_removed(tmp_path: Path) -> None:
    with_logs(tmp_path, (1, 0), (2, 0)).close()

    directory = DataDirectory(tmp_path)
    with pytest.raises(DataDirectoryError, match=r"journal is empty .* put back a copy"):
        directory.check_streams({}, 0)

    assert folders(tmp_path) == ["1/0", "2/0"]
    directory.close()


def test_files_of_others_are_left_alone(tmp_path: Path) -> None:
    directory = with_logs(tmp_path, (1, 0))
    strangers = [tmp_path / "streams" / name for name in (".DS_Store", "7", "notes")]
    for file in strangers[:2]:
        file.touch()
    strangers[2].mkdir()

    directory.check_streams({1: created("s")}, 1)

    assert all(one.exists() for one in strangers)
    directory.close()

"""The segments of one log in a folder.

Whenever the process ends, the next start finds the state before or after a change: files are
replaced by renaming, and what is left of an interrupted change is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from liftbridge_aio.model import Message, StreamPartition

from .atomic_files import TEMPORARY_SUFFIX, delete_folder, replace_file, write_temporary
from .core.record import encode
from .core.segment import LostSegment, Segment
from .core.segment_index import SegmentIndex
from .disk_segment import INDEX_SUFFIX, LOG_SUFFIX, DiskSegment
from .open_files import OpenFiles
from .segment_recovery import lost_segment, open_last, open_sealed, stored_index


class DiskSegmentStore:
    """Segments as files; each is named after its base offset, in 20 digits."""

    def __init__(self, folder: Path, stream: str, partition: int, files: OpenFiles) -> None:
        """Use a folder, which need not exist.

        Args:
            folder: folder of this log alone.
            stream: name of the stream.
            partition: number of the partition.
            files: opens the files.
        """
        self._folder = folder
        self._partition = StreamPartition(stream, partition)
        self._files = files
        self._segments: list[DiskSegment] = []
        self._is_recovered = False

    def open(self) -> Sequence[Segment]:
        """Return the stored segments, oldest first; none: the log is new.

        Raises:
            LostSegment: a file of messages is missing, empty or a directory.
            OSError: the folder cannot be read or cleaned up.
        """
        if not self._is_recovered:  # only this object changes the folder afterwards
            try:
                self._recover()
            except IsADirectoryError as error:
                raise LostSegment(
                    f"{error.filename} is a directory, where a file of a log was; put back a copy"
                    " of the whole data directory"
                ) from error
            self._is_recovered = True
        return tuple(self._segments)

    def _recover(self) -> None:
        paths = self._clean_up()
        self._segments = [
            open_sealed(path, self._partition, int(following.stem), self._files)
            for path, following in pairwise(paths)
        ]
        self._segments += [open_last(path, self._partition, self._files) for path in paths[-1:]]

    def create(self, base_offset: int) -> Segment:
        """Create the next segment.

        Raises:
            OSError: the file cannot be created; nothing has changed.
            ValueError: the last segment has offsets beyond `base_offset`.
        """
        if self._segments:
            last = self._segments[-1]
            if base_offset < last.next_offset:
                raise ValueError(
                    f"{last.path} ends at offset {last.next_offset}, beyond {base_offset}"
                )
            last.seal(base_offset)
        else:
            self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{base_offset:020}{LOG_SUFFIX}"
        path.touch(exist_ok=False)
        segment = DiskSegment(path, self._partition, SegmentIndex(base_offset), self._files)
        self._segments.append(segment)
        return segment

    def rewrite(self, segment: Segment, messages: Iterable[Message]) -> Segment:
        """Atomically replace `segment` by one with only `messages`.

        Raises:
            OSError: it cannot be written; `segment` is unchanged.
        """
        number, old = self._find(segment)
        index = SegmentIndex(old.base_offset)
        written = write_temporary(old.path, _records(messages, index))
        index.next_offset = old.next_offset
        try:
            # The index is written first: one that covers less than the file is not trusted, so if
            # the process ends in between, nothing was rewritten.
            replace_file(old.path.with_suffix(INDEX_SUFFIX), [index.encode()])
            self._files.release(str(old.path))
            written.replace(old.path)
        except OSError:
            written.unlink(missing_ok=True)
            raise
        self._segments[number] = DiskSegment(old.path, self._partition, index, self._files)
        return self._segments[number]

    def remove(self, segment: Segment) -> None:
        """Delete a segment.

        Raises:
            OSError: a file cannot be removed.
        """
        number, old = self._find(segment)
        if 0 < number < len(self._segments) - 1:  # or the gap would look like a lost file
            self._segments[number - 1].seal(self._segments[number + 1].base_offset)
        del self._segments[number]
        self._files.release(str(old.path))
        # An index without its segment means a loss, so the index is deleted first.
        old.path.with_suffix(INDEX_SUFFIX).unlink(missing_ok=True)
        old.path.unlink(missing_ok=True)

    def close(self) -> None:
        """Close the files; `open` may follow."""
        if self._segments:
            self._segments[-1].persist_index()
        for segment in self._segments:
            self._files.release(str(segment.path))

    def delete(self) -> None:
        """Delete the log.

        Raises:
            OSError: a file cannot be removed.
        """
        self.close()
        self._segments = []
        delete_folder(self._folder)

    def _find(self, segment: Segment) -> tuple[int, DiskSegment]:
        for number, one in enumerate(self._segments):
            if one is segment:
                return number, one
        raise ValueError("the segment does not belong to this store")

    def _clean_up(self) -> list[Path]:
        """Remove what is left of an interrupted change, and return the segments in order."""
        if not self._folder.exists():
            return []
        segments: list[Path] = []
        for path in sorted(self._folder.iterdir()):
            if path.suffix == LOG_SUFFIX and path.stem.isdecimal():
                segments.append(path)
            elif path.suffix == TEMPORARY_SUFFIX:
                path.unlink()
            elif path.suffix == INDEX_SUFFIX and not path.with_suffix(LOG_SUFFIX).exists():
                missing = path.with_suffix(LOG_SUFFIX)
                raise lost_segment(missing, "is missing", stored_index(missing))
        return segments


def _records(messages: Iterable[Message], index: SegmentIndex) -> Iterator[bytes]:
    for message in messages:
        record = encode(message, index.size)
        index.add(len(record), message.offset, message.timestamp)
        yield record

"""The segments of one log in a folder.

Whatever step a process ends in, the next start finds the state before the step or after it: files
are replaced by renaming, and what is left of half a step is removed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path

from liftbridge_aio.model import Message

from .disk_segment import INDEX_SUFFIX, LOG_SUFFIX, DiskSegment, LogPlace
from .file_replacement import TEMPORARY_SUFFIX, replace_file, write_temporary
from .folder_deletion import delete_folder
from .open_files import OpenFiles
from .record import encode
from .segment import Segment
from .segment_index import SegmentIndex
from .segment_recovery import open_last, open_sealed


class DiskSegmentStore:
    """Segments as files; each is named after its base offset, in 20 digits."""

    def __init__(self, folder: Path, stream: str, partition: int, files: OpenFiles) -> None:
        """Use a folder, which need not exist.

        Args:
            folder: of this log alone.
            stream: whose messages are in it.
            partition: whose messages are in it.
            files: opens the files.
        """
        self._folder = folder
        self._place = LogPlace(stream, partition)
        self._files = files
        self._segments: list[DiskSegment] = []
        self._is_known = False

    def open(self) -> Sequence[Segment]:
        """Return what is kept, oldest first; none: the log is new.

        Raises:
            OSError: the folder cannot be read, or not be cleaned up.
        """
        if not self._is_known:  # else nobody but us has changed the folder since
            paths = self._clean_up()
            self._segments = [
                open_sealed(path, self._place, int(following.stem), self._files)
                for path, following in pairwise(paths)
            ]
            self._segments += [open_last(path, self._place, self._files) for path in paths[-1:]]
            self._is_known = True
        return tuple(self._segments)

    def create(self, base_offset: int) -> Segment:
        """Begin a segment, which follows all others.

        Raises:
            OSError: the file cannot be made; nothing has changed.
            ValueError: an earlier segment goes further.
        """
        if self._segments:
            last = self._segments[-1]
            if base_offset < last.next_offset:
                text = f"{last.path} goes on to offset {last.next_offset}, beyond {base_offset}"
                raise ValueError(text)
            last.seal(base_offset)
        else:
            self._folder.mkdir(parents=True, exist_ok=True)
        path = self._folder / f"{base_offset:020}{LOG_SUFFIX}"
        path.touch(exist_ok=False)
        segment = DiskSegment(path, self._place, SegmentIndex(base_offset), self._files)
        self._segments.append(segment)
        return segment

    def rewrite(self, segment: Segment, messages: Iterable[Message]) -> Segment:
        """Put in the place of `segment` one that keeps only `messages`, all of them or nothing.

        Raises:
            OSError: it cannot be written; `segment` is as it was.
        """
        number, old = self._find(segment)
        index = SegmentIndex(old.base_offset)
        written = write_temporary(old.path, _records(messages, index))
        index.next_offset = old.next_offset
        try:
            # An index that knows of less than the file has is not believed, so this goes first:
            # should the process end in between, nothing was rewritten.
            replace_file(old.path.with_suffix(INDEX_SUFFIX), [index.encode()])
            self._files.release(str(old.path))
            written.replace(old.path)
        except OSError:
            written.unlink(missing_ok=True)
            raise
        self._segments[number] = DiskSegment(old.path, self._place, index, self._files)
        return self._segments[number]

    def remove(self, segment: Segment) -> None:
        """Forget a segment and what is in it.

        Raises:
            OSError: a file cannot be removed.
        """
        number, old = self._find(segment)
        if 0 < number < len(self._segments) - 1:  # else the gap would look like a lost file
            self._segments[number - 1].seal(self._segments[number + 1].base_offset)
        del self._segments[number]
        self._files.release(str(old.path))
        old.path.unlink(missing_ok=True)
        old.path.with_suffix(INDEX_SUFFIX).unlink(missing_ok=True)

    def close(self) -> None:
        """Close the files; nothing is forgotten, and `open` may follow."""
        for segment in self._segments:
            self._files.release(str(segment.path))

    def delete(self) -> None:
        """Forget everything.

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
        text = "the segment is not of this store, or no longer"
        raise ValueError(text)

    def _clean_up(self) -> list[Path]:
        """Remove what is left of half a step, and return the segments in their order."""
        if not self._folder.exists():
            return []
        segments: list[Path] = []
        for path in sorted(self._folder.iterdir()):
            if path.suffix == LOG_SUFFIX and path.stem.isdecimal():
                segments.append(path)
            elif path.suffix == TEMPORARY_SUFFIX or (
                path.suffix == INDEX_SUFFIX and not path.with_suffix(LOG_SUFFIX).exists()
            ):
                path.unlink()
        return segments


def _records(messages: Iterable[Message], index: SegmentIndex) -> Iterator[bytes]:
    for message in messages:
        record = encode(message, index.size)
        index.add(len(record), message.offset, message.timestamp)
        yield record

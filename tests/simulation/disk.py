"""A disk that loses at a crash what was not synced, or tears it.

Files are real ones, as a process sees them; what a crash leaves of them is remembered. As with
journaling file systems, changes of names are stored in their order, by the next sync of any file;
the contents of a file by a sync of that file. At a crash a part of the other changes of names, and
a part of the other writes of each file, are on the disk; the next write is torn.
"""

from __future__ import annotations

import itertools
import random
import shutil
from collections import defaultdict
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

from liftbridge_aio.broker.storage import atomic_files, disk_store
from liftbridge_aio.broker.storage.open_files import OpenFiles

FOLDER: Final = 0
"""What a name of a folder stands for; other numbers stand for files."""


class Write(NamedTuple):
    """A change of the contents of a file; without data it is cut at the position."""

    position: int
    data: bytes | None

    def apply(self, before: bytes) -> bytes:
        """Return the contents after it."""
        filled = before[: self.position].ljust(self.position, b"\0")
        if self.data is None:
            return filled
        return filled + self.data + before[self.position + len(self.data) :]


class Disk:
    """The disk of a host.

    Args:
        root: the folder; what is elsewhere is on no disk.
        chance: decides what a crash leaves.
    """

    def __init__(self, root: Path, chance: random.Random) -> None:
        self.root = root
        self._chance = chance
        self._names: dict[str, int] = {}
        """The names that a process sees."""
        self._stored_names: dict[str, int] = {}
        self._stored: dict[int, bytes] = {}
        """The contents that were synced, by the number of a file."""
        self._changes: list[dict[str, int]] = []
        """The names after each change that is not synced."""
        self._writes: defaultdict[int, list[Write]] = defaultdict(list)
        """The writes of each file that are not synced."""
        self._numbers = itertools.count(1)
        self._image: dict[str, bytes | None] | None = None
        """What a crash has left, until it is restored; None stands for a folder."""

    def stand_ins(self) -> list[tuple[object, str, object]]:
        """Return what replaces the functions that change files, as `World.replaced` has it."""
        return [
            (OpenFiles, "write", self._noting(OpenFiles.write, self._on_write)),
            (OpenFiles, "truncate", self._noting(OpenFiles.truncate, self._on_truncate)),
            (OpenFiles, "sync", self._noting(OpenFiles.sync, self._on_sync)),
            (Path, "touch", self._noting(Path.touch, self._on_touch)),
            (Path, "mkdir", self._noting(Path.mkdir, self._on_mkdir)),
            (Path, "replace", self._noting(Path.replace, self._on_rename)),
            (Path, "rename", self._noting(Path.rename, self._on_rename)),
            (Path, "unlink", self._noting(Path.unlink, self._on_remove)),
            (shutil, "rmtree", self._noting(shutil.rmtree, self._on_remove)),
            *(
                (module, "write_temporary", self._write_temporary)
                for module in (atomic_files, disk_store)
            ),
        ]

    def crash(self) -> None:
        """Decide what is on the disk from now on, whatever is written until it is restored."""
        chance = self._chance
        names = chance.choice([self._stored_names, *self._changes])
        contents = dict(self._stored)
        for file, writes in self._writes.items():
            kept = chance.randint(0, len(writes))
            for each in writes[:kept]:
                contents[file] = each.apply(contents.get(file, b""))
            if kept < len(writes) and (torn := writes[kept]).data:
                part = torn.data[: chance.randrange(len(torn.data))]
                part = chance.choice((part, bytes(len(part))))  # or its blocks are empty
                contents[file] = torn._replace(data=part).apply(contents.get(file, b""))
        self._image = {
            name: None if file == FOLDER else contents.get(file, b"")
            for name, file in names.items()
        }

    def restore(self) -> None:
        """Make the files what the crash has left."""
        image, self._image = self._image or {}, None
        for path in self.root.iterdir():
            if path.is_dir():
                shutil.rmtree(path)
            elif path.name != "lock":  # it is made first of all
                path.unlink()
        self._names, self._stored, self._changes = {}, {}, []
        self._writes.clear()
        for name, data in sorted(image.items()):
            if data is None:
                Path(name).mkdir(exist_ok=True)
                self._names[name] = FOLDER
            else:
                Path(name).write_bytes(data)
                number = self._names[name] = next(self._numbers)
                self._stored[number] = data
        self._changes.clear()
        self._stored_names = dict(self._names)

    def _noting(self, change: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
        """Return a function that changes a file, and notes the change."""

        def noted(*arguments: Any, **options: Any) -> Any:
            result = change(*arguments, **options)
            path = str(arguments[1] if isinstance(arguments[0], OpenFiles) else arguments[0])
            if path.startswith(str(self.root)) and self._image is None:
                note(path, *arguments[1 + isinstance(arguments[0], OpenFiles) :])
            return result

        return noted

    def _write_temporary(self, path: Path, parts: Iterable[bytes]) -> Path:
        data = b"".join(parts)
        written = _write_temporary(path, [data])
        if str(path).startswith(str(self.root)) and self._image is None:
            self._names.pop(str(written), None)
            self._on_touch(str(written))
            self._on_write(str(written), data, 0)
            self._on_sync(str(written))
        return written

    def _on_write(self, path: str, data: bytes, position: int) -> None:
        self._writes[self._names[path]].append(Write(position, bytes(data)))

    def _on_truncate(self, path: str, size: int) -> None:
        self._writes[self._names[path]].append(Write(size, None))

    def _on_sync(self, path: str) -> None:
        file = self._names[path]
        for each in self._writes.pop(file, ()):
            self._stored[file] = each.apply(self._stored.get(file, b""))
        self._stored_names = dict(self._names)
        self._changes.clear()

    def _on_touch(self, path: str, *_: object) -> None:
        if path not in self._names:
            self._change({**self._names, path: next(self._numbers)})

    def _on_mkdir(self, path: str, *_: object) -> None:
        for each in reversed((path, *map(str, Path(path).parents))):
            if each.startswith(str(self.root)) and each not in self._names:
                self._change({**self._names, each: FOLDER})

    def _on_rename(self, path: str, target: Path) -> None:
        names = {}
        for name, file in self._names.items():
            if not _is_in(name, str(target)):
                renamed = str(target) + name[len(path) :] if _is_in(name, path) else name
                names[renamed] = file
        self._change(names)

    def _on_remove(self, path: str, *_: object) -> None:
        self._change({each: file for each, file in self._names.items() if not _is_in(each, path)})

    def _change(self, names: dict[str, int]) -> None:
        if names != self._names:
            self._names = names
            self._changes.append(names)


_write_temporary: Final = atomic_files.write_temporary


def _is_in(name: str, folder: str) -> bool:
    return name == folder or name.startswith(f"{folder}/")

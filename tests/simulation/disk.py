"""A disk that loses at a crash what was not synced, or tears it.

Files are real ones, as a process sees them; what a crash leaves of them is remembered. As with
journaling file systems, changes of names are stored in their order, by the next sync of any file;
the contents of a file by a sync of that file. At a crash a part of the other changes of names, and
a part of the other writes of each file, are on the disk; the next write is torn.
"""

from __future__ import annotations

import itertools
import os
import random
import shutil
from collections import defaultdict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

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
        is_synced: True: each change is stored at once, and a crash tears the next write only.
    """

    def __init__(self, root: Path, chance: random.Random, *, is_synced: bool = False) -> None:
        self.root = root
        self._chance = chance
        self.is_synced = is_synced
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

    def crash(self) -> None:
        """Decide what is on the disk from now on, whatever is written until it is restored."""
        chance, is_synced = self._chance, self.is_synced
        names = self._names if is_synced else chance.choice([self._stored_names, *self._changes])
        contents = dict(self._stored)
        for file, writes in self._writes.items():
            kept = len(writes) if is_synced else chance.randint(0, len(writes))
            for each in writes[:kept]:
                contents[file] = each.apply(contents.get(file, b""))
            before, torn = contents.get(file, b""), writes[min(kept, len(writes) - 1)]
            if torn.data and (is_synced or kept < len(writes)):
                part = torn.data[: chance.randrange(len(torn.data))]
                part = chance.choice((part, bytes(len(part))))  # or its blocks are empty
                position = len(before) if is_synced else torn.position
                contents[file] = Write(position, part).apply(before)
        self._image = {
            name: None if file == FOLDER else contents.get(file, b"")
            for name, file in names.items()
        }

    def restore(self) -> None:
        """Make the files what the crash has left, if there was one."""
        image, self._image = self._image, None
        if image is None:
            return
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

    @property
    def files(self) -> list[str]:
        """The paths of all files."""
        return [path for path, file in self._names.items() if file != FOLDER]

    def notes(self, path: str) -> bool:
        """Return True if what happens to a path is noted."""
        return self._image is None and _is_in(path, str(self.root))

    def _on_write(self, path: str, data: bytes, position: int) -> None:
        self._writes[self._names[path]].append(Write(position, bytes(data)))

    def _on_truncate(self, path: str, size: int) -> None:
        self._writes[self._names[path]].append(Write(size, None))

    def _on_sync(self, path: str) -> None:
        file = self._names[path]
        self._stored[file] = Path(path).read_bytes()
        self._writes.pop(file, None)
        self._stored_names = dict(self._names)
        self._changes.clear()

    def _on_open(self, path: str, mode: str = "r") -> None:
        if "w" in mode:
            self._change({**self._names, path: next(self._numbers)})

    def _on_touch(self, path: str, *_: object) -> None:
        if path not in self._names:
            self._change({**self._names, path: next(self._numbers)})

    def _on_mkdir(self, path: str, *_: object) -> None:
        for each in reversed((path, *map(str, Path(path).parents))):
            if _is_in(each, str(self.root)) and each not in self._names:
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


def stand_ins(disks: Sequence[Disk]) -> list[tuple[object, str, object]]:
    """Return what replaces the functions that change files, as `World.replaced` has it.

    Args:
        disks: those that note the changes; there may be more of them later.
    """

    def noting(change: Callable[..., Any], note: Callable[..., None]) -> Callable[..., Any]:
        """Return a function that changes a file, and notes the change."""

        def noted(*arguments: Any, **options: Any) -> Any:
            result = change(*arguments, **options)
            path, *rest = arguments[1:] if isinstance(arguments[0], OpenFiles) else arguments
            for disk in disks:
                if disk.notes(str(path)):
                    note(disk, str(path), *rest)
            return result

        return noted

    def sync(descriptor: int) -> None:
        opened = os.fstat(descriptor)
        for disk in disks:
            for path in disk.files:
                if disk.notes(path) and os.path.samestat(opened, Path(path).stat()):
                    disk._on_sync(path)

    return [
        (os, "fsync", sync),  # the disk of this machine need not do it
        (OpenFiles, "write", noting(OpenFiles.write, Disk._on_write)),
        (OpenFiles, "truncate", noting(OpenFiles.truncate, Disk._on_truncate)),
        (Path, "open", noting(Path.open, Disk._on_open)),
        (Path, "touch", noting(Path.touch, Disk._on_touch)),
        (Path, "mkdir", noting(Path.mkdir, Disk._on_mkdir)),
        (Path, "replace", noting(Path.replace, Disk._on_rename)),
        (Path, "rename", noting(Path.rename, Disk._on_rename)),
        (Path, "unlink", noting(Path.unlink, Disk._on_remove)),
        (shutil, "rmtree", noting(shutil.rmtree, Disk._on_remove)),
    ]


def _is_in(name: str, folder: str) -> bool:
    return name == folder or name.startswith(f"{folder}/")

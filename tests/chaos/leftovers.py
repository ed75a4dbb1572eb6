"""Resources of a process: tasks, descriptors, threads and memory, so that leaks can be seen."""

from __future__ import annotations

import asyncio
import gc
import importlib
import os
import pkgutil
import socket
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from liftbridge_aio import net

SETTLING: Final = 5.0
NETWORK: Final = net.__name__
PAGE: Final = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Holdings:
    """Resources held at one moment."""

    tasks: int
    open: Counter[str]
    """What descriptors are of; sockets with their addresses."""
    threads: int
    rss_mib: float
    objects: Counter[str] = field(default_factory=Counter)
    """Living objects of the client's network room, by their class."""

    @property
    def descriptors(self) -> int:
        """How many there are."""
        return self.open.total()

    def __str__(self) -> str:
        return (
            f"{self.tasks} tasks, {self.descriptors} descriptors, {self.threads} threads, "
            f"{self.rss_mib:.1f} MiB"
        )

    def more_than(self, before: Holdings) -> str:
        """Return the resources that grew, memory apart; empty if none."""
        differences = [
            f"{getattr(self, name) - getattr(before, name):+} {name}"
            for name in ("tasks", "descriptors", "threads")
            if getattr(self, name) != getattr(before, name)
        ]
        if differences:
            differences += [f"{n} x {name}" for name, n in (self.open - before.open).items()]
        differences += [
            f"+{count} {name}" for name, count in (self.objects - before.objects).items()
        ]
        return ", ".join(differences)


def rss_mib() -> float:
    """The memory of this process that is in RAM, in MiB."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE / 2**20


def holdings() -> Holdings:
    """Return the resources of this process now."""
    return Holdings(
        len(asyncio.all_tasks()),
        Counter(_descriptors()),
        threading.active_count(),
        rss_mib(),
        network_objects(),
    )


def _descriptors() -> Iterator[str]:
    for link in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # that of the folder itself
            name = str(link.readlink())
            if name.startswith("socket:"):
                with socket.socket(fileno=os.dup(int(link.name))) as raw:
                    name = f"socket {raw.family.name} {raw.getsockname()}"
                    with suppress(OSError):
                        name += f" > {raw.getpeername()}"
            yield name.partition(":[")[0]


def network_objects() -> Counter[str]:
    """Return the number of live objects of the client's network package, by class.

    Its modules are loaded when they are first needed, and have objects of their own, which are no
    rest: so they are all loaded here.
    """
    for module in pkgutil.iter_modules(net.__path__, f"{NETWORK}."):
        importlib.import_module(module.name)
    gc.collect()
    # `__module__` is no text where a class has a slot of that name.
    return Counter(
        type(each).__qualname__
        for each in gc.get_objects()
        if str(type(each).__module__).startswith(NETWORK)
    )


async def settled_holdings(before: Holdings) -> Holdings:
    """Return the resources once they are no more than before, or after five seconds."""
    loop = asyncio.get_running_loop()
    until = loop.time() + SETTLING
    while (now := holdings()).more_than(before) and loop.time() < until:  # noqa: ASYNC110 - no event
        await asyncio.sleep(0.1)
    return now

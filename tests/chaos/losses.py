"""What the servers have lost of what the witness had read or stored, past the clients."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Collection
from typing import Final

from chaos.witness import Partition, Witness
from liftbridge_aio.testing import Event, EventKind, History
from simulation.programs.program import STREAM

PAUSE: Final = 2.0
"""Seconds between two looks, least."""
OVERLAP: Final = 2000
"""Messages of each partition that are read again: servers cut off those of some seconds."""
WITNESS: Final = "witness"
"""With which the names of the producers begin that are the witness."""


class WitnessedLosses:
    """Messages gone from the logs after the witness had read or stored them.

    In a log that was cut, offsets are used anew, and readers that have read further cannot know
    what is new at those. So of a partition whose log was cut an acked order is excused if it is not
    in the log, or is at an offset from which somebody was given another one. An ack alone could be
    a mistake of the client: without a look of the witness it excuses nothing.

    Args:
        witness: looks while all replicas are in sync.
    """

    are_excused = True

    def __init__(self, witness: Witness) -> None:
        self.history = History()
        """Of the orders."""
        self.logs: dict[Partition, dict[int, bytes]] = {}
        """What there is by offset, when the witness has looked last."""
        self._witness = witness
        self._looked = float("-inf")
        self._gone: defaultdict[Partition, dict[int, bytes]] = defaultdict(dict)
        """What was at an offset and is no more; all of partitions whose log was cut."""
        self._excused: dict[str, set[bytes]] = {}

    @property
    def places(self) -> Collection[Partition]:
        """The partitions whose log was cut."""
        return self._gone.keys()

    def excused(self, stream: str) -> set[bytes]:
        """Return the values that readers of a stream need not see, as servers have lost them."""
        return self._excused.get(stream, set())

    async def look(self, stream: str = "") -> None:
        """Find out what is gone, unless that was just done; see `look_now`."""
        if time.monotonic() > self._looked + PAUSE:
            await self.look_now(stream)

    async def look_now(self, only: str = "") -> None:
        """Find out what is gone.

        Args:
            only: the stream to look at; empty: at all.

        Raises:
            ServersLost: a partition cannot be read.
        """
        events = [*self.history.events]
        since = {place: max(log, default=0) - OVERLAP for place, log in self.logs.items()}
        found = await self._witness.logs({place: max(0, at) for place, at in since.items()})
        for place, log in found.items():
            if only not in {"", place[0]}:
                continue
            known = self.logs.setdefault(place, {})
            self._compare(place, known, log)
            for offset in [each for each in known if each > max(log, default=-1)]:
                del known[offset]
            known |= log
        kept = {value for log in self.logs.values() for value in log.values()}
        for event in events:
            is_sure = event.kind is EventKind.ACKED and event.actor.startswith(WITNESS)
            if is_sure and event.value not in kept:
                _ = self._gone[STREAM, event.partition]
        self._excused = {
            stream: self._gone_from(stream, events) for stream in {each[0] for each in self._gone}
        }
        self._looked = time.monotonic()

    def _compare(self, place: Partition, known: dict[int, bytes], log: dict[int, bytes]) -> None:
        """Note what is gone, by other values or an earlier end; cleaners make gaps."""
        begin, end = min(log, default=0), max(log, default=-1)
        for offset, value in known.items():
            if offset > end or (offset >= begin and log.get(offset, value) != value):
                self._gone[place][offset] = value

    def _gone_from(self, stream: str, events: list[Event]) -> set[bytes]:
        found: set[bytes] = set()
        for place, gone in self._gone.items():
            if place[0] != stream:
                continue
            log = self.logs.get(place, {})
            kept = {*log.values()}
            found |= {*gone.values()} - kept
            found |= {log[offset] for offset in gone if offset in log}
            for event in events if stream == STREAM else ():
                if event.partition != place[1]:
                    continue
                if event.kind is EventKind.ACKED and event.value not in kept:
                    found.add(event.value)
                elif event.offset is not None and log.get(event.offset) not in {None, event.value}:
                    found.add(log[event.offset])
        return found

"""Losses in the servers' logs: whose they are, and whether offsets are true. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from chaos.evidence import Evidence
from liftbridge_aio.testing import Defect, DefectKind, Event, EventKind

WITNESS: Final = b"raw-"
"""Prefix of the values that the witness publishes."""
Place = tuple[str, int]


class LogLosses:
    """Messages gone from the servers' logs after readers had learnt of them.

    In a log that was cut, offsets are used anew, and readers that have read further cannot know
    what is new at those. So a loss is the servers' where the value is not in such a log, or stands
    in it at an offset from which somebody was given something else.

    An ack alone could be a mistake of the client. Of streams whose messages are all acked with ALL
    a log was cut, beyond doubt, if something is missing that a reader was given from the very
    offset that the ack named, or of which the witness was told that it is stored.
    """

    def __init__(self, evidence: Evidence) -> None:
        self._evidence = evidence
        self.reused: dict[Place, set[int]] = {}
        """By partition whose log was cut: the offsets that were given out anew."""
        for stream in (*evidence.streams_all, *evidence.streams_leader):
            for (of, partition), log in evidence.log.items():
                if of != stream:
                    continue
                gone = {
                    event.offset
                    for event in self._deliveries(stream, partition)
                    if event.offset is not None and event.value not in log
                }
                if stream not in evidence.streams_all or self._is_cut(stream, partition):
                    self.reused[stream, partition] = gone

    @property
    def cut(self) -> list[Place]:
        """The partitions that lost what readers had been given or what was acked with ALL."""
        return sorted(
            place
            for place, offsets in self.reused.items()
            if offsets or place[0] in self._evidence.streams_all
        )

    def explain(self, stream: str, defect: Defect) -> bool:
        """Return True if a loss is the servers' fault."""
        place = (stream, defect.partition)
        if defect.kind is not DefectKind.LOST or place not in self.reused:
            return False
        offset = self._evidence.log[place].get(defect.value)
        return offset is None or offset in self.reused[place]

    def untrue_offsets(self) -> list[str]:
        """Acks and deliveries that named another offset than the log has, in words.

        Partitions whose logs were cut are left out, and acks that came before all replicas had the
        message: two nodes that hold themselves to be the leader may give it different ones.
        """
        found: list[str] = []
        for (stream, partition), log in self._evidence.log.items():
            if self.reused.get((stream, partition)):
                continue
            acked = [
                (f"an ack named {offset}", value, offset)
                for (of, number, value), offset in self._evidence.journal.offsets.items()
                if (of, number) == (stream, partition) and of in self._evidence.streams_all
            ]
            given = [
                (f"{event.actor} was given it from {event.offset}", event.value, event.offset)
                for event in self._deliveries(stream, partition)
            ]
            wrong = [
                f"{value!r} stands in {stream}/{partition} at {log[value]} and {what}"
                for what, value, offset in (*acked, *given)
                if offset is not None and log.get(value, offset) != offset
            ]
            found += wrong[:1]
            if wrong[1:]:
                found.append(f"{len(wrong) - 1} more such offsets in {stream}/{partition}")
        return found

    def _is_cut(self, stream: str, partition: int) -> bool:
        journal, log = self._evidence.journal, self._evidence.log[stream, partition]
        told = (
            event.value
            for event in journal.sends[stream].events
            if event.kind is EventKind.ACKED
            and event.partition == partition
            and event.value.startswith(WITNESS)
        )
        given = (
            event.value
            for event in self._deliveries(stream, partition)
            if event.offset is not None
            and journal.offsets.get((stream, partition, event.value)) == event.offset
        )
        return any(value not in log for value in (*told, *given))

    def _deliveries(self, stream: str, partition: int) -> Iterator[Event]:
        journal = self._evidence.journal
        for (of, _), events in (*journal.readings.items(), *journal.given_up.items()):
            if of == stream:
                yield from (
                    event
                    for event in events
                    if event.kind is EventKind.DELIVERED and event.partition == partition
                )

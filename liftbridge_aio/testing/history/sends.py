"""Sends and their outcomes by partition and value."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TypeAlias

from .history import OUTCOMES, Event, EventKind


class Sends:
    """All sends of one value to one partition; almost always a single one."""

    __slots__ = (
        "_more_keys",
        "_open",
        "_open_of_others",
        "acked",
        "key",
        "number",
        "producer",
        "refused",
        "sent",
        "unknown",
        "value",
    )

    def __init__(self, number: int, event: Event) -> None:
        """Create the entry of the first send.

        Args:
            number: the number of its event, by which sends are ordered.
            event: the event.
        """
        self.number = number
        self.producer = event.actor
        self.value = event.value
        self.key = event.key or None  # empty and None are the same on the wire
        self.sent = 1
        self.acked = 0
        self.unknown = 0
        self.refused = 0
        self._open = 1  # sends of `producer` without an outcome
        self._open_of_others: dict[str, int] | None = None
        self._more_keys: set[bytes | None] | None = None

    def again(self, event: Event) -> None:
        """Add another send of the same value."""
        self.sent += 1
        producer = event.actor
        if producer == self.producer:
            self._open += 1
        else:
            if self._open_of_others is None:
                self._open_of_others = {}
            self._open_of_others[producer] = self._open_of_others.get(producer, 0) + 1
        key = event.key or None
        if key != self.key:
            if self._more_keys is None:
                self._more_keys = set()
            self._more_keys.add(key)

    def settle(self, producer: str, outcome: EventKind) -> bool:
        """Set the outcome of a send of `producer`; return False if all its sends have one."""
        if producer == self.producer and self._open:
            self._open -= 1
        elif self._open_of_others and self._open_of_others.get(producer):
            self._open_of_others[producer] -= 1
        else:
            return False
        if outcome is EventKind.ACKED:
            self.acked += 1
        elif outcome is EventKind.UNKNOWN:
            self.unknown += 1
        else:
            self.refused += 1
        return True

    @property
    def allowed(self) -> int:
        """The number of deliveries allowed if each send is stored at most once."""
        return self.sent - self.refused

    @property
    def unsettled(self) -> int:
        """The number of sends without an outcome."""
        return self.sent - self.acked - self.unknown - self.refused

    @property
    def ordered(self) -> bool:
        """True if its order is checked: it was acked, and sent only once."""
        return self.acked == 1 == self.sent

    def had_key(self, key: bytes) -> bool:
        """Return True if it was sent with this key, or without a key if `key` is empty."""
        wanted = key or None
        return wanted == self.key or bool(self._more_keys and wanted in self._more_keys)


Ledger: TypeAlias = dict[int, dict[bytes, Sends]]
"""Sends by partition and value, in the order of sending."""


def enter_sends(events: Iterable[Event]) -> Ledger:
    """Group the sends by partition and value; `settle_sends` adds the outcomes."""
    ledger: Ledger = {}
    sent = EventKind.SENT
    for number, event in enumerate(events):
        if event.kind is sent:
            of_value = ledger.setdefault(event.partition, {})
            sends = of_value.get(event.value)
            if sends is None:
                of_value[event.value] = Sends(number, event)
            else:
                sends.again(event)
    return ledger


def settle_sends(ledger: Ledger, events: Sequence[Event]) -> list[int]:
    """Set the outcomes of the sends.

    Returns:
        Numbers of the outcome events that belong to no send without an outcome.
    """
    unfounded = []
    for number, (kind, _, producer, partition, value, _, _) in enumerate(events):
        if kind in OUTCOMES:
            sends = ledger.get(partition, {}).get(value)
            if sends is None or not sends.settle(producer, kind):
                unfounded.append(number)
    return unfounded

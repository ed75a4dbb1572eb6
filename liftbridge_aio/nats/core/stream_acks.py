"""The acks of several streams for one message, which all have its subject. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.model import Ack


class StreamAcks:
    """Collects one answer of each stream."""

    def __init__(self, streams: Sequence[str] | int) -> None:
        """Wait for these streams, or for so many, whichever they are."""
        self._streams = None if isinstance(streams, int) else tuple(streams)
        self._count = streams if isinstance(streams, int) else len(streams)
        self._answers: dict[str, Ack | LiftbridgeError] = {}
        self._missing: LiftbridgeError | None = None

    @property
    def complete(self) -> bool:
        """True if all have answered."""
        return len(self._answers) == self._count

    def take(self, ack: Ack, refusal: LiftbridgeError | None) -> bool:
        """Take an answer; tell whether it was waited for.

        Args:
            ack: says whose answer it is.
            refusal: what it means, if it is a no.
        """
        stream = ack.stream
        wanted = self._streams is None or stream in self._streams
        if not wanted or stream in self._answers or self.complete:
            return False
        self._answers[stream] = ack if refusal is None else refusal
        return True

    def give_up(self, missing: LiftbridgeError) -> None:
        """Wait no longer: `missing` is the outcome of those that have not answered."""
        names = ", ".join(map(repr, self._answers)) or "none"
        missing.message += f"; of {self._count} streams these have answered: {names}"
        self._missing = missing

    def outcomes(self) -> list[Ack | LiftbridgeError]:
        """Return an ack or an error of each: in the order asked for, or of their answers."""
        if self._streams is not None:
            answers = [self._answers.get(stream, self._missing) for stream in self._streams]
        else:
            absent = self._count - len(self._answers)
            answers = [*self._answers.values(), *[self._missing] * absent]
        return [answer for answer in answers if answer is not None]

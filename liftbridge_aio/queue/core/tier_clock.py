"""How long messages of a retry stream have yet to wait, though clocks are wrong. Pure."""

from __future__ import annotations

from math import inf

from liftbridge_aio.model import Message

from .moved_message import due_at


class TierClock:
    """The waits of one partition of a retry stream.

    A message is due at the time that its mover has noted, or a tier after its server stored it,
    whichever is sooner: the clock of the mover or of this computer may be wrong by hours. The time
    of the server is estimated from the messages: each was stored before it was looked at. If the
    server's clock was ahead and is right again, messages come sooner by as much.

    Args:
        tier: seconds that each message waits.
    """

    def __init__(self, tier: float) -> None:
        self._tier = tier
        self._looked_at = -1
        """The highest offset so far."""
        self._stored = -inf
        """When that was stored, by the server's clock."""
        self._ahead = -inf
        """The server's time minus that of the event loop, which does not jump, at least."""

    def remaining(self, message: Message, now: float, time_of_day: float) -> float:
        """Return the seconds until a message is due; 0 or less: it is.

        Args:
            message: the first one that waits.
            now: the time of the event loop.
            time_of_day: Unix seconds.
        """
        stored = message.timestamp / 1e9
        if message.offset > self._looked_at:
            ahead = stored - now
            is_set_back = stored < self._stored  # what was learned from its clock is wrong
            self._ahead = ahead if is_set_back else max(ahead, self._ahead)
            self._looked_at, self._stored = message.offset, stored
        by_server = stored + self._tier - (now + self._ahead)
        return min(due_at(message) - time_of_day, by_server)

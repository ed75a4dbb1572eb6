"""The remaining waits of messages in a retry stream, even if clocks are wrong. Pure."""

from __future__ import annotations

from math import inf

from liftbridge_aio.model import Message

from .moved_message import due_at


class TierClock:
    """The waits of one partition of a retry stream.

    A message is due at the time in its header, or one tier after the server stored it, whichever is
    sooner. The clocks of the member that moved it and of this computer may be wrong by hours. The
    server's clock is estimated from the messages: each was stored before it was read. If the
    server's clock was ahead and is corrected, messages are due sooner by the difference.

    Args:
        tier: seconds that each message waits.
    """

    def __init__(self, tier: float) -> None:
        self._tier = tier
        # State
        self._looked_at = -1
        """The highest offset seen."""
        self._stored = -inf
        """The time at which the server stored it, by the server's clock."""
        self._ahead = -inf
        """A lower bound of the server's clock minus the event loop's, which does not jump."""

    def remaining(self, message: Message, now: float, time_of_day: float) -> float:
        """Return the seconds until a message is due; 0 or less if it is due.

        Args:
            message: the first waiting message.
            now: the time of the event loop.
            time_of_day: Unix seconds.
        """
        stored = message.timestamp / 1e9
        if message.offset > self._looked_at:
            ahead = stored - now
            is_set_back = stored < self._stored  # the server's clock was corrected
            self._ahead = ahead if is_set_back else max(ahead, self._ahead)
            self._looked_at, self._stored = message.offset, stored
        by_server = stored + self._tier - (now + self._ahead)
        return min(due_at(message) - time_of_day, by_server)

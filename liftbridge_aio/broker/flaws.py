"""What Liftbridge 1.9.0 does wrong and the embedded broker does only if it is told to.

Each flaw names the test that shows it on a real server. `tests/unit/broker/test_flaws.py` shows
that the embedded broker then does the same.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from liftbridge_aio._core.arguments import check_flags

REPLAY_SECONDS: Final = 2.0
"""Seconds after a start for which a broker replays its Raft log, and knows nothing of it."""
PANIC_SECONDS: Final = 1.0
"""Seconds after a start at which a broker panics, before it has replayed the log."""
NOTE_INTERVAL: Final = 5.0
"""Seconds between two writes of the high watermark to the disk."""
LOST_ANSWERS: Final = 0.25
"""The share of Raft's answers that are lost: far more than on a real server."""
RAFT_TIMEOUT: Final = 5.0
"""Seconds that a server waits for Raft's answer to a call without a deadline."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Flaws:
    """The flaws of a broker, all off by default."""

    hides_committed: bool = False
    """A broker that was stopped forgets the high watermark of up to five seconds.

    Readers and cursors see nothing after the older one until the partition gets another message,
    or a follower fetches.

    Real: `contract/test_restart.py::test_acked_messages_are_unseen_until_the_next_publish`,
    `chaos/server_faults/unseen_after_kill.py`.
    """

    loses_answers: bool = False
    """One of four changes of streams and groups is applied, but its answer is lost.

    The call ends with "raft operation timed out" when its deadline comes, or after five seconds.

    Real: `chaos/server_faults/lost_raft_answer.py`.
    """

    forgets_streams: bool = False
    """For two seconds after each start a broker knows no streams and no groups.

    It takes no messages of its partitions and decides nothing meanwhile.

    Real: `faults/test_crash_loop.py::test_what_a_server_answers_before_it_knows_its_streams`.
    """

    cuts_committed: bool = False
    """A follower that starts while its leader is dead cuts its log to an older high watermark.

    It may lead next. Messages that were acked by all are lost then, and others get their offsets.

    Real: `chaos/server_faults/acked_by_all_lost.py`.
    """

    forgets_groups: bool = False
    """For two seconds after each start a broker knows no groups, also those that it coordinates.

    Others know them, and name it as their coordinator. A real server knows no streams either.

    Real: `chaos/server_faults/forgotten_group.py`.
    """

    panics_at_start: bool = False
    """Every other start, from the first one on, ends after a second with `BrokerPanicked`.

    Until then the port is open, and the broker knows no streams. A real server does so only while
    it has no streams, and rarely.

    Real: `chaos/server_faults/panic_at_start.py`.
    """

    def __post_init__(self) -> None:
        """Check the values.

        Raises:
            WrongType: one is neither True nor False.
        """
        check_flags(**{each.name: getattr(self, each.name) for each in fields(self)})

    @property
    def loses_watermark(self) -> bool:
        """True if a broker that was stopped begins with an older high watermark."""
        return self.hides_committed or self.cuts_committed


FLAWLESS: Final = Flaws()
"""No flaws."""


class BrokerPanicked(Exception):
    """A broker has ended by itself while it was starting; start it again."""

"""Number of messages of a run, so that a slow client takes no minutes. Pure."""

from __future__ import annotations

from typing import Final

from .cases import Case

PATIENCE: Final = 12.0
"""Seconds that a run of full length may take; a client that would take longer gets less."""
SHORTENED: Final = 4.0
"""Seconds that such a shortened run takes."""

_PROBE_SHARE: Final = 50
_LEAST: Final = 200


def probe_messages(case: Case) -> int:
    """Messages of the run before the first round, which shows how fast a client is."""
    return min(case.messages, max(case.messages // _PROBE_SHARE, _LEAST))


def run_messages(case: Case, messages_per_second: float) -> int:
    """Messages of each round for a client of this speed; never more than the case has."""
    if case.messages <= PATIENCE * messages_per_second:
        return case.messages
    fitting = int(SHORTENED * messages_per_second)
    return min(case.messages, max(fitting, _LEAST))

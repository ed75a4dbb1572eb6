"""Counts the calls of a connection without going through all of them for each new one."""

from __future__ import annotations

from typing import Any, Final

_SPARE: Final = 100
"""Ended calls that h2 may keep, besides as many as were open at the last count."""


def count_seldom(connection: Any) -> None:
    """Make h2 count the calls of a connection only if there may be too many, or many have ended.

    For each new call h2 goes through all of them, to compare their number with the limit and to
    forget those that have ended. 10,000 subscriptions took it a hundred million steps.

    Args:
        connection: an `H2Connection`, of a client or of a server.
    """
    count = connection._open_streams  # noqa: SLF001 - pinned by a test
    settings = (
        connection.remote_settings if connection.config.client_side else connection.local_settings
    )
    counted = 0

    def at_most(remainder: int) -> int:
        nonlocal counted
        kept = len(connection.streams)
        if kept >= min(settings.max_concurrent_streams, 2 * counted + _SPARE):
            kept = counted = int(count(remainder))
        return kept

    vars(connection)["_open_streams"] = at_most

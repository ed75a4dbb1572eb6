"""What the programs of NSQ have in common: the channel, and the count that ends a run."""

from __future__ import annotations

from typing import Final

CHANNEL: Final = "bench"
MAX_IN_FLIGHT: Final = 1_000
"""Unanswered messages of a consumer, the same for all."""

"""The number of Hypothesis examples: as many as a test sets, or fewer in a quick run."""

from __future__ import annotations

from hypothesis import settings

USUAL = 100
"""The examples that Hypothesis tries where neither a test nor a profile says otherwise."""


def examples(count: int) -> int:
    """Return ``count``, less by as much as the profile of this run tries fewer than usual."""
    return max(1, count * settings().max_examples // USUAL)

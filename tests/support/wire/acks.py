"""Acks with any content."""

from __future__ import annotations

from hypothesis import strategies as st

from liftbridge_aio.model import Ack, AckError, AckPolicy

_TEXTS = st.text(max_size=10)
_NUMBERS = st.integers(-(2**63), 2**63 - 1)

acks = st.builds(
    Ack,
    *(_TEXTS, _TEXTS, _TEXTS, _NUMBERS, _TEXTS, _TEXTS, st.sampled_from(AckPolicy)),
    *(_NUMBERS, _NUMBERS, st.sampled_from(AckError)),
)

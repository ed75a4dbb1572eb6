"""Which messages are in the target already."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.bridge.core.known_ids import KnownIds, unbroken


def test_a_window_forgets_the_oldest() -> None:
    window = KnownIds(2)
    for identity in (b"a", b"b", b"b", b"c"):
        window.add(identity)
    assert [each in window for each in (b"a", b"b", b"c")] == [False, True, True]


@given(st.sets(st.integers(0, 30), min_size=1))
def test_sequences_are_either_unbroken_or_further(sequences: set[int]) -> None:
    last, further = unbroken(sequences)
    assert set(range(min(sequences), last + 1)) | further == sequences
    assert last + 1 not in sequences
    assert all(each > last for each in further)

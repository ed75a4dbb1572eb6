"""The states of a lease: what its holder is told agrees with what the owner has."""

from __future__ import annotations

import enum

from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.queue.core.lease_state import (
    LEASE_MOVES,
    LOST,
    UNCONFIRMED,
    LeaseEvent,
    LeaseState,
    following,
)


class Journey(enum.Enum):
    """What becomes of an answer that is sent once."""

    LOST = "lost on the way"
    BOUNCED = "nobody listens"
    TAKEN = "taken, and confirmed"
    UNHEARD = "taken, and the verdict is lost"


END = st.sampled_from([LeaseEvent.EXPIRE, LeaseEvent.MOVE])


@given(st.lists(st.sampled_from(Journey), max_size=4), END, st.booleans())
def test_the_holder_knows_no_more_than_is_true(
    journeys: list[Journey], end: LeaseEvent, late: bool
) -> None:
    state = following(LeaseState.HELD, LeaseEvent.ANSWER)
    is_taken = False
    for journey in journeys:
        state = following(state, LeaseEvent.SEND)
        if journey is Journey.BOUNCED:
            state = following(state, LeaseEvent.BOUNCE)
        elif journey is not Journey.LOST:
            refused = late and not is_taken  # who has taken it once takes it again
            is_taken = is_taken or not late
            if journey is Journey.TAKEN:
                event = LeaseEvent.REFUSE if refused else LeaseEvent.CONFIRM
                state = following(state, event)
    state = following(state, end)
    if state is LeaseState.CONFIRMED:
        assert is_taken
    elif state is not LeaseState.IN_DOUBT:
        assert not is_taken
    if set(journeys) <= {Journey.BOUNCED} and len(journeys) < 2:
        assert state in {LeaseState.EXPIRED, LeaseState.MOVED}


@given(st.lists(st.sampled_from(LeaseEvent)))
def test_an_end_is_final(events: list[LeaseEvent]) -> None:
    state = LeaseState.HELD
    for event in events:
        before, state = state, following(state, event)
        if before is LeaseState.CONFIRMED or before in LOST:
            assert state is before


def test_every_state_has_an_end() -> None:
    open_states = {LeaseState.HELD, *UNCONFIRMED}
    assert set(LeaseState) == open_states | LOST.keys() | {LeaseState.CONFIRMED}
    for state in open_states:
        for event in (LeaseEvent.EXPIRE, LeaseEvent.MOVE):
            assert LEASE_MOVES[state, event] in LOST

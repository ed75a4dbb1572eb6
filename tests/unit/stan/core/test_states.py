from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from liftbridge_aio.stan.core.states import (
    CLIENT_STEPS,
    SUBSCRIPTION_STEPS,
    ClientEvent,
    ClientState,
    SubscriptionEvent,
    SubscriptionState,
)

TABLES = [
    pytest.param(CLIENT_STEPS, ClientState, ClientEvent, id="client"),
    pytest.param(SUBSCRIPTION_STEPS, SubscriptionState, SubscriptionEvent, id="subscription"),
]


@pytest.mark.parametrize(("steps", "states", "events"), TABLES)
def test_every_state_can_be_reached_and_left_for_closed(
    steps: Mapping[tuple[Any, Any], Any], states: Any, events: Any
) -> None:
    def reachable(start: Any) -> set[Any]:
        found = {start}
        for _ in states:
            found |= {after for (before, _), after in steps.items() if before in found}
        return found

    assert reachable(states.NEW) == set(states)
    assert all(states.CLOSED in reachable(state) for state in states)
    assert {event for _, event in steps} == set(events)
    assert reachable(states.CLOSED) == {states.CLOSED}

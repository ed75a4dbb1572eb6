"""The window of a committed reading: messages of transactions stand where these are acked."""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import NamedTuple

from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio import Message
from liftbridge_aio.queue.core.ack_window import Snapshot, WindowSettings
from liftbridge_aio.queue.core.attempt import Attempt
from liftbridge_aio.queue.core.committed_window import CommittedWindow


class Shown(NamedTuple):
    """A message that is shown, by its offset, at a position; the last there or not."""

    offset: int
    position: int
    is_last: bool = True


# A transaction of offsets 0, 2 and 4, acked at 5; a single message at 1, another at 3; then 6.
LOG = [
    Shown(1, 1), Shown(3, 3),
    Shown(0, 5, is_last=False), Shown(2, 5, is_last=False), Shown(4, 5),
    Shown(6, 6),
]  # fmt: skip


def window(snapshot: Snapshot | None = None) -> CommittedWindow[Attempt]:
    core = CommittedWindow(WindowSettings(), Attempt, snapshot)
    core.capacity = 100
    return core


def take(core: CommittedWindow[Attempt], shown: Shown) -> Attempt | None:
    core.move_to(shown.position, is_last=shown.is_last)
    return core.take(Message("orders", 0, shown.offset, b"", b"", 0), 0.0)


def taken(core: CommittedWindow[Attempt], log: list[Shown]) -> list[Attempt]:
    return [attempt for shown in log if (attempt := take(core, shown)) is not None]


def test_messages_are_committed_by_the_order_of_their_acks() -> None:
    core = window()
    attempts = taken(core, LOG)
    assert [attempt.offset for attempt in attempts] == [1, 3, 0, 2, 4, 6]
    for attempt in attempts:
        if attempt.offset not in {2, 6}:
            core.ack(attempt)
    assert core.snapshot() == Snapshot(7, {2: 0, 6: 0}, {2: 5})
    assert (core.base, core.span) == (5, 2)


def test_the_rest_of_a_transaction_is_handed_out_by_the_next_owner() -> None:
    core = window()
    for attempt in taken(core, LOG[:4]):
        if attempt.offset != 2:
            core.ack(attempt)
    snapshot = core.snapshot()
    assert snapshot == Snapshot(5, {2: 0}, {2: 5}, frozenset({0}))
    heir = window(snapshot)
    assert heir.snapshot() == snapshot
    assert [attempt.offset for attempt in taken(heir, LOG[2:])] == [2, 4, 6]


def test_a_transaction_that_is_read_again_is_not_handed_out_again() -> None:
    core = window()
    assert len(taken(core, LOG[:4])) == 4
    assert [attempt.offset for attempt in taken(core, LOG[2:])] == [4, 6]


def logs(draw: st.DrawFn) -> Iterator[Shown]:
    """Yield transactions and single messages."""
    offset = 0
    for size in draw(st.lists(st.integers(0, 3), min_size=1, max_size=6)):
        position = offset + size
        for number in range(size):
            yield Shown(offset + number, position, is_last=number == size - 1)
        if not size:
            yield Shown(position, position)
        offset = position + 1


@given(st.composite(lambda draw: list(logs(draw)))(), st.randoms(use_true_random=False), st.data())
def test_owners_that_follow_one_another_hand_out_what_is_not_settled(
    log: list[Shown], chance: random.Random, data: st.DataObject
) -> None:
    settled: set[int] = set()
    snapshot: Snapshot | None = None
    for _ in range(4):
        core = window(snapshot)
        start = 0 if snapshot is None else snapshot.base
        for shown in log[: data.draw(st.integers(0, len(log)))]:
            if shown.position < start:
                continue
            attempt = take(core, shown)
            assert (attempt is None) == (shown.offset in settled)
            if attempt is not None and chance.random() < 0.5:
                core.ack(attempt)
                settled.add(shown.offset)
            found = core.snapshot()
            assert found is not None
            left = [each for each in log if each.offset not in settled]
            assert not left or found.base <= left[0].position
        snapshot = core.snapshot() or snapshot

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


def window(snapshot: Snapshot | None = None) -> CommittedWindow[Attempt]:
    core = CommittedWindow(WindowSettings(), Attempt, snapshot)
    core.capacity = 100
    return core


def take(core: CommittedWindow[Attempt], shown: Shown) -> Attempt | None:
    core.move_to(shown.position, is_last=shown.is_last)
    return core.take(Message("orders", 0, shown.offset, b"", b"", 0), 0.0)


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

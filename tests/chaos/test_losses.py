"""What counts as lost by the servers: nothing but what the witness had read or stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

import pytest

from chaos.losses import WITNESS, WitnessedLosses
from chaos.witness import Partition, Witness
from simulation.programs.program import STREAM

FIRST, SECOND = (STREAM, 0), (STREAM, 1)


class Logs:
    """A witness that reads what a test has written."""

    def __init__(self) -> None:
        self.by_place = {FIRST: logged(5), SECOND: logged(5)}

    async def logs(self, since: Mapping[Partition, int]) -> dict[Partition, dict[int, bytes]]:
        return {
            place: {at: value for at, value in log.items() if at >= since.get(place, 0)}
            for place, log in self.by_place.items()
        }


def logged(count: int, *left_out: int) -> dict[int, bytes]:
    return {at: b"%d" % at for at in range(count) if at not in left_out}


@pytest.fixture
def logs() -> Logs:
    return Logs()


@pytest.fixture
def losses(logs: Logs) -> WitnessedLosses:
    return WitnessedLosses(cast("Witness", logs))


def acked(losses: WitnessedLosses, *values: bytes, producer: str = "p0") -> None:
    for value in values:
        losses.history.sent(value, 0, producer=producer, time=0.0)
        losses.history.acked(value, 0, producer=producer, time=1.0)


async def test_an_ack_alone_excuses_nothing(losses: WitnessedLosses) -> None:
    acked(losses, b"4", b"5")
    await losses.look_now()
    assert not losses.places
    assert not losses.excused(STREAM)


async def test_what_was_read_and_is_gone_excuses_what_is_gone_with_it(
    losses: WitnessedLosses, logs: Logs
) -> None:
    acked(losses, *logged(7).values())  # 5 and 6 were stored after the witness had read
    await losses.look_now()
    logs.by_place[FIRST] = logged(4)
    await losses.look_now()
    assert {*losses.places} == {FIRST}
    assert losses.excused(STREAM) == {b"4", b"5", b"6"}


async def test_what_the_witness_has_stored_and_is_gone_is_lost(losses: WitnessedLosses) -> None:
    acked(losses, b"5", producer=f"{WITNESS} 1")
    acked(losses, b"6")
    await losses.look_now()
    assert {*losses.places} == {FIRST}
    assert losses.excused(STREAM) == {b"5", b"6"}


async def test_what_stands_at_an_offset_that_was_given_anew_is_excused(
    losses: WitnessedLosses, logs: Logs
) -> None:
    await losses.look_now()
    losses.history.delivered(b"another", 0, offset=5, time=2.0)
    logs.by_place[FIRST] = {**logged(4), 4: b"new", 5: b"newer", 6: b"newest"}
    await losses.look_now()
    assert losses.excused(STREAM) == {b"4", b"new", b"newer"}


async def test_gaps_that_cleaners_make_are_no_losses(losses: WitnessedLosses, logs: Logs) -> None:
    await losses.look_now()
    logs.by_place[FIRST] = logged(6, 1, 2)
    await losses.look_now()
    assert not losses.places


async def test_losses_elsewhere_are_not_looked_for_where_they_may_be_hidden(
    losses: WitnessedLosses, logs: Logs
) -> None:
    logs.by_place["other", 0] = logged(5)
    await losses.look_now()
    logs.by_place["other", 0] = logged(4)
    await losses.look_now(STREAM)
    assert not losses.places
    await losses.look_now()
    assert {*losses.places} == {("other", 0)}

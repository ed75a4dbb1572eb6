"""Bringing a state about and doing everything in it at once."""

from __future__ import annotations

import asyncio
from collections.abc import (
    AsyncIterator,
    Awaitable,
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from functools import partial
from typing import Final

from liftbridge_aio import Client, LiftbridgeError, PublishManyFailed
from liftbridge_aio.cli.group_positions import cursor_of
from matrix.cells import Cell, On, Place, Stage
from matrix.operations import Operation
from matrix.outside import POSITION, group_of, output_by_task
from matrix.states import State
from matrix.worlds import World
from support.raw import Wire

HANGS: Final = "hangs"
MIDWAY_BOUND: Final = 200.0
"""Seconds that an operation may take to come to its middle, and the state to arise."""
AT_ONCE: Final = 8
"""Streams that are created or filled at a time."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """Outcome of an operation, and its time since it began or the state arose."""

    text: str
    seconds: float
    also: tuple[str, ...] = ()
    """The names of the error's base classes."""

    def went_as(self, texts: Collection[str]) -> bool:
        """Return True if it went in one of these ways; an error counts as its base classes too."""
        return not {self.text, *self.also}.isdisjoint(texts)

    def __str__(self) -> str:
        return f"{self.text} after {self.seconds:.1f} s"


async def outcomes(
    world: World, state: State, operations: Mapping[Operation, float], prefix: str
) -> dict[str, Outcome]:
    """Do all operations in a state, side by side.

    Args:
        world: The servers.
        state: The row.
        operations: The columns, and for each the seconds after which it has hung.
        prefix: What the names of streams begin with.

    Returns:
        How each went, by its heading.
    """
    async with AsyncExitStack() as stack:
        host, _, port = world.witness.rpartition(":")
        wire = Wire(host, int(port))
        stack.callback(wire.close)

        def new_client() -> Client:
            return Client(*world.addresses, options=state.options)

        director = await stack.enter_async_context(Client(*world.addresses))
        stage = Stage(world, director, wire)
        shared = Place(prefix, dict(state.settings), On.SHARED)
        places = [
            shared
            if one.on is On.SHARED
            else Place(f"{prefix}-{number}", {**state.settings, **one.settings})
            for number, one in enumerate(operations)
        ]
        different = list({place.stream: place for place in [shared, *places]}.values())
        await in_turns(different, partial(state.create, stage))
        stack.enter_context(output_by_task())
        cells = [
            Cell(stage, place, await stack.enter_async_context(new_client())) for place in places
        ]
        found = await _do_all(state, operations, stage, cells, different)
        await in_turns(different, partial(_forget, stage))
        return found


async def in_turns(places: Iterable[Place], work: Callable[[Place], Awaitable[None]]) -> None:
    """Do something with all places, a few at a time."""
    turn = asyncio.Semaphore(AT_ONCE)

    async def take_turn(place: Place) -> None:
        async with turn:
            await work(place)

    await asyncio.gather(*map(take_turn, places))


async def _store_positions(stage: Stage, places: Sequence[Place]) -> None:
    await asyncio.gather(
        *(
            stage.director.set_cursor(cursor_of(group_of(place)), place.stream, partition, POSITION)
            for place in places
            for partition, log in place.logs.items()
            if log
        )
    )


async def _do_all(
    state: State,
    operations: Mapping[Operation, float],
    stage: Stage,
    cells: Sequence[Cell],
    places: Sequence[Place],
) -> dict[str, Outcome]:
    running: dict[Operation, asyncio.Task[Outcome]] = {}
    midway = [(one, cell) for one, cell in zip(operations, cells, strict=True) if one.midway]
    async with _cancelled_at_the_end(stage, running):
        for one, cell in midway:
            running[one] = asyncio.create_task(_outcome(one, cell, MIDWAY_BOUND))
        await asyncio.gather(*(_first_of(cell.begun, running[one]) for one, cell in midway))
        await in_turns(places, partial(state.fill, stage))
        await _store_positions(stage, places)
        for cell in cells:
            cell.filled.set()
        await asyncio.gather(*(_first_of(cell.ready, running[one]) for one, cell in midway))
        await state.arise(stage, places)
        for one, cell in zip(operations, cells, strict=True):
            if not one.midway:
                running[one] = asyncio.create_task(_outcome(one, cell, operations[one]))
            elif not running[one].done():
                cell.state_has_arisen(operations[one])
        await asyncio.wait([running[one] for one in operations if one.on is On.SHARED])
        stage.looked.set()
        found = {one.name: await running[one] for one in operations}
    await asyncio.gather(*stage.later)
    return found


async def _first_of(event: asyncio.Event, task: asyncio.Task[Outcome]) -> None:
    """Wait for an event of an operation, or for its end."""
    waiting = asyncio.create_task(event.wait())
    await asyncio.wait({waiting, task}, return_when=asyncio.FIRST_COMPLETED)
    waiting.cancel()


async def _outcome(one: Operation, cell: Cell, bound: float) -> Outcome:
    try:
        async with cell.bounded(bound):
            return Outcome(await one.run(cell), cell.seconds)
    except PublishManyFailed as error:
        return _failed(error.__cause__ or error, cell)
    except Exception as error:  # noqa: BLE001 - whatever it is, it belongs to the cell
        if cell.hangs and not isinstance(error, LiftbridgeError):
            why = f" without a probe: {cell.not_probed}" if cell.not_probed else ""
            return Outcome(HANGS + why, cell.seconds)
        return _failed(error, cell)


def _failed(error: BaseException, cell: Cell) -> Outcome:
    if not isinstance(error, LiftbridgeError):
        return Outcome(f"raises {error!r}", cell.seconds)
    kinds = [kind.__name__ for kind in type(error).mro() if issubclass(kind, LiftbridgeError)]
    return Outcome(kinds[0], cell.seconds, tuple(kinds[1:-1]))


@asynccontextmanager
async def _cancelled_at_the_end(
    stage: Stage, running: dict[Operation, asyncio.Task[Outcome]]
) -> AsyncIterator[None]:
    try:
        yield
    except BaseException:
        for task in stage.later:
            task.cancel()
        raise
    finally:
        for each in running.values():
            each.cancel()
        await asyncio.gather(*running.values(), return_exceptions=True)


async def _forget(stage: Stage, place: Place) -> None:
    """Have the server do nothing for a stream any more, and not delete what its cleaner writes."""
    try:
        await stage.director.pause_stream(place.stream)
    except LiftbridgeError:
        return

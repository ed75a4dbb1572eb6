"""Every operation in every state of a partition: the cells of the matrix."""

from __future__ import annotations

from typing import Final

import pytest

from matrix import (  # noqa: F401 - they make the columns
    outside,
    publishing,
    queues,
    reading,
    spark_queries,
    transactions,
)
from matrix.conftest import EVERYTHING
from matrix.expected import TABLES, Expected, read_tables
from matrix.operations import OPERATIONS
from matrix.running import outcomes
from matrix.states import STATES, State
from matrix.worlds import World

EXPECTED: Final = read_tables(TABLES.read_text())


@pytest.mark.timeout(300)
async def test_every_operation_goes_as_the_table_says(
    world: World, state: State, stream_name: str
) -> None:
    cells: dict[str, Expected] = {}
    for one in OPERATIONS.values():
        expected = EXPECTED.expected(one.table, state.name, one.name, world.kind)
        if expected is not None and (EVERYTHING or not one.slow):
            cells[one.name] = expected
    chosen = {OPERATIONS[name]: expected.deadline for name, expected in cells.items()}
    found = await outcomes(world, state, chosen, stream_name)
    surprises = [
        f"{state.name} / {name}: {found[name]}, expected {expected}"
        for name, expected in cells.items()
        if not found[name].went_as(expected.texts) or found[name].seconds > expected.deadline
    ]
    assert not surprises, "\n".join(["", *surprises])


def test_the_tables_have_no_cell_too_many() -> None:
    operations = {(one.table, one.name) for one in OPERATIONS.values()}
    for (table, state), row in EXPECTED.rows.items():
        assert state in STATES
        assert {(table, name) for name in row.cells} <= operations

"""The page about pipelines is complete, and its example is one."""

from __future__ import annotations

import pytest

from liftbridge_aio.spark.core import pipeline_file
from liftbridge_aio.spark.core.pipeline_file import parse_pipeline
from scenario.judge import Found
from support.markdown import ROOT, blocks, names, table

PAGE = ROOT / "docs" / "pipelines.md"


@pytest.mark.parametrize(
    ("heading", "keys"),
    [
        ("Key", pipeline_file.TOP_KEYS),
        ("Source key", pipeline_file.SOURCE_KEYS),
        ("Step key", pipeline_file.STEP_KEYS),
        ("Sink key", pipeline_file.SINK_KEYS),
    ],
)
def test_every_key_is_in_its_table(heading: str, keys: tuple[str, ...]) -> None:
    assert {name for row in table(PAGE, heading) for name in names(row[0])} == set(keys)


def test_the_example_is_a_pipeline() -> None:
    [block] = blocks(PAGE, "toml")
    pipeline = parse_pipeline(block.code, "totals.toml", {}, "a:1")
    assert [sink.kind for sink in pipeline.sinks] == ["stream", "parquet"]


def test_the_table_of_the_scenario_is_that_of_a_run() -> None:
    rows = table(PAGE, "What")
    assert [row[0] for row in rows] == [line.what for line in Found(30_000).lines]
    assert all(row[-1] == "✓" for row in rows)

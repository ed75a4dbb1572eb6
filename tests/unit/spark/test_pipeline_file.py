"""Files that describe pipelines: what they mean, and the line of what is wrong in them."""

from __future__ import annotations

import re
import tomllib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio.spark.core.options import ReadOptions
from liftbridge_aio.spark.core.pipeline_file import PipelineFile, PipelineFileError, parse_pipeline
from liftbridge_aio.spark.core.positions import AtTime, NoOffsetStrategy
from liftbridge_aio.spark.core.toml_lines import FIRST_LINE, key_lines

WHOLE = '''\
servers = "a:1"
checkpoint = "positions"
trigger = "10 seconds"

[spark]
"spark.sql.shuffle.partitions" = 4

[sources.sales]
streams = ["sales", "returns"]
value = "at timestamp, shop string"
watermark = { column = "at", delay = "1 minute" }
options = { maxOffsetsPerTrigger = 1000, failOnDataLoss = false }

[steps.totals]
sql = """
SELECT shop, count(*) AS number
FROM sales GROUP BY shop
"""

[steps.checked]
python = "checks.py:checked"

[sinks.totals]
from = "totals"
stream = "totals"

[sinks.files]
from = "checked"
parquet = "files"
partition_by = ["shop"]

[sinks.screen]
from = "sales"
console = true
'''


def parsed(text: str) -> PipelineFile:
    return parse_pipeline(text, "p.toml", {"liftbridge.callTimeout": "3"}, "b:2")


def test_a_file_says_what_to_read_to_compute_and_to_write() -> None:
    pipeline = parsed(WHOLE)
    [sales] = pipeline.sources
    assert sales.options == {
        "liftbridge.callTimeout": "3",
        "startingOffsets": "earliest",
        "includeHeaders": "true",
        "maxOffsetsPerTrigger": "1000",
        "failOnDataLoss": "false",
        "servers": "a:1",
        "subscribe": "sales,returns",
    }
    assert (pipeline.checkpoint, pipeline.trigger) == ("positions", "10 seconds")
    assert pipeline.settings == {"spark.sql.shuffle.partitions": "4"}
    assert [step.python for step in pipeline.steps] == [None, ("checks.py", "checked")]
    totals, files, screen = pipeline.sinks
    assert (totals.options["stream"], totals.options["delivery"]) == ("totals", "exactly_once")
    assert (files.kind, files.target, files.partition_by) == ("parquet", "files", ("shop",))
    assert (screen.kind, screen.mode) == ("console", "append")


@pytest.mark.parametrize(
    ("before", "after", "problem"),
    [
        ('trigger = "10 seconds"', 'trigger = "often"', "trigger is"),
        ('servers = "a:1"', "servers = 1", "servers must be a text"),
        ("streams =", "stream =", "did you mean streams?"),
        ("maxOffsetsPerTrigger = 1000", "maxOffsetsPerTrigger = 0", "LIFTBRIDGE_INVALID_OPTION"),
        ("maxOffsetsPerTrigger", "maxOffsetPerTrigger", "did you mean maxOffsetsPerTrigger?"),
        ("maxOffsetsPerTrigger", "depth", "does not know the option depth"),
        ('delay = "1 minute"', 'delay = "long"', "'long' is no interval"),
        ("checks.py:checked", "checks.py", "is not"),
        ('value = "at', 'start = "noon"\nvalue = "at', "start is earliest, latest or a time"),
        ('value = "at', 'start = 2026-01-01\nvalue = "at', "start is earliest, latest or a time"),
        ('value = "at', 'on_bad_record = "drop"\nvalue = "at', "fail or skip or dead letter"),
        ('value = "at', 'on_bad_record = "dead letter"\nvalue = "at', "set both"),
        ('value = "at timestamp, shop string"', 'on_bad_record = "skip"', "sources with value"),
        ('from = "totals"', 'from = "totls"', "did you mean totals?"),
        ('stream = "totals"', "", "one of stream, parquet and console"),
        ('partition_by = ["shop"]', 'mode = "complete"', "can only be appended to"),
        ('partition_by = ["shop"]', 'delivery = "exactly_once"', "sinks with stream"),
        ("[steps.checked]", "[steps.Sales]", "Sales has the name of the source sales"),
        ("[steps.checked]", "[steps.sales]", "sales has the name of the source sales"),
        ("console = true", "console = 1", "console is true"),
        ("console = true", "console = true =", "Expected newline"),
    ],
)
def test_an_error_names_the_line(before: str, after: str, problem: str) -> None:
    wrong = WHOLE.replace(before, after, 1)
    line = WHOLE[: WHOLE.index(before)].count("\n") + 1
    with pytest.raises(PipelineFileError, match=re.escape(problem)) as caught:
        parsed(wrong)
    if not after:
        line -= 2  # where the table begins that lacks something
    assert str(caught.value).startswith(f"p.toml, line {line}: ")


@pytest.mark.parametrize("folder", ["files", "./x/../files/", "files/shop=ann", "positions/files"])
def test_two_sinks_cannot_have_one_folder(folder: str) -> None:
    second = f'\n[sinks.again]\nfrom = "sales"\nparquet = "{folder}"\n'
    with pytest.raises(PipelineFileError, match=r"is a folder of (the sink files|checkpoint), too"):
        parsed(WHOLE + second)


def test_a_source_begins_at_a_time() -> None:
    """As TOML writes a time, or as a text; options of the source still say where to begin."""
    for start in (
        "2026-01-31T12:00:00Z",
        '"2026-01-31T12:00:00+00:00"',
        "2026-01-31 13:00:00+01:00",
    ):
        source = parsed(WHOLE.replace("value =", f"start = {start}\nvalue =")).sources[0]
        read = ReadOptions.parse(source.options, streaming=True)
        assert (read.starting, read.starting_strategy) == (
            AtTime("startingTimestamp", 1_769_860_800 * 10**9),
            NoOffsetStrategy.LATEST,
        )
    option = 'options = { startingOffsets = "latest", '
    source = parsed(WHOLE.replace("options = { ", option)).sources[0]
    assert source.options["startingOffsets"] == "latest"


def test_intervals_have_short_units_too() -> None:
    for short, long in (("10s", "10 seconds"), ("500ms", "500 milliseconds"), ("2 h", "2 hours")):
        text = WHOLE.replace("10 seconds", short).replace("1 minute", short)
        pipeline = parsed(text)
        assert pipeline.trigger == long
        assert pipeline.sources[0].watermark is not None
        assert pipeline.sources[0].watermark.delay == long


def test_dead_letters_of_a_source_have_a_sink_of_their_own() -> None:
    keys = 'on_bad_record = "dead letter"\ndead_letters = "bad"\nvalue ='
    text = WHOLE.replace("value =", keys)
    sink = parsed(text).sinks[-1]
    assert (sink.name, sink.source, sink.dead_letters) == ("sales_dead_letters", "sales", True)
    assert (sink.options["stream"], sink.options["delivery"]) == ("bad", "exactly_once")
    with pytest.raises(PipelineFileError, match="rename it"):
        parsed(text.replace("[sinks.screen]", "[sinks.sales_dead_letters]"))


def test_what_no_sink_needs_is_told() -> None:
    assert parsed(WHOLE).mistakes == ()
    more = '[sources.old]\nstreams = ["old"]\n[steps.odd]\nsql = "SELECT * FROM old"\n'
    first = WHOLE.count("\n") + 1
    assert len(parsed(WHOLE + more).mistakes) == 1  # a function may take any view
    sql = WHOLE.replace('python = "checks.py:checked"', 'sql = "SELECT * FROM SALES"')
    assert parsed(sql + more).mistakes == (
        f"p.toml, line {first}: no sink needs the source old",
        f"p.toml, line {first + 2}: no sink needs the step odd",
    )


def test_what_is_missing_is_named() -> None:
    for table in ("sources", "sinks"):
        rest = re.sub(rf"\[{table}\.[\s\S]*?(?=\n\[(?!{table})|$)", "", WHOLE)
        with pytest.raises(PipelineFileError, match=f"there are no {table}|there is no source"):
            parsed(rest)
    with pytest.raises(PipelineFileError, match="checkpoint is missing"):
        parsed(WHOLE.replace('checkpoint = "positions"', ""))


def test_a_statement_begins_behind_its_quotes() -> None:
    lines = key_lines(WHOLE)
    at = ("steps", "totals", "sql")
    first = WHOLE.splitlines().index("SELECT shop, count(*) AS number") + 1
    assert (lines[at], lines[*at, FIRST_LINE]) == (first - 1, first)
    assert key_lines("a = 'b'")["a", FIRST_LINE] == 1


NAMES = st.from_regex(r"[a-z]{1,3}|[a-z]-[0-9]", fullmatch=True)
VALUES = st.sampled_from(['"x"', '"""\na = 1\n[b]\n"""', "'''\nc = 2'''", "1", "[\n1,\n2]"])


@given(st.dictionaries(NAMES, st.dictionaries(NAMES, VALUES), max_size=4), st.data())
def test_every_key_has_the_line_that_it_is_on(
    tables: dict[str, dict[str, str]], data: st.DataObject
) -> None:
    lines: list[str] = []
    expected: dict[tuple[str, ...], int] = {}
    for table, values in tables.items():
        lines += [""] * data.draw(st.integers(0, 2))
        lines.append(f"[{table}]  # a table")
        expected[table,] = len(lines)
        for key, value in values.items():
            first, *rest = f"{key} = {value}".split("\n")
            lines.append(first)
            expected[table, key] = len(lines)
            lines += rest
    text = "\n".join(lines)
    tomllib.loads(text)
    found = {path: line for path, line in key_lines(text).items() if path[-1] != FIRST_LINE}
    assert found == expected

"""`liftbridge-aio streams` and `partitions`: what is shown of partitions, and changing them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any

import pytest

from cli.conftest import ON_EMBEDDED, Run
from liftbridge_aio.cli.partition_states import PartitionState, say_what_failed
from liftbridge_aio.errors import RequestTimeout
from liftbridge_aio.model import PartitionInfo


def partitions(run: Run, stream: str) -> list[dict[str, Any]]:
    listed: list[dict[str, Any]] = run("partitions", "list", stream, "--json").json
    return listed


def states(run: Run, stream: str) -> list[tuple[bool, bool]]:
    """Of each partition, whether it is paused and whether it is read-only."""
    return [(one["paused"], one["readonly"]) for one in partitions(run, stream)]


def test_partitions_are_listed_as_their_leaders_know_them(run_on_each: Run, stream: str) -> None:
    run_on_each("streams", "create", stream, "--partitions", "2")
    run_on_each("publish", stream, "a", "b", "c", "--partition", "1")
    empty, full = partitions(run_on_each, stream)
    assert (empty["stream"], empty["id"]) == (stream, 0)
    assert (empty["high_watermark"], empty["newest_offset"]) == (-1, -1)
    assert empty["messages_received"] == {"first": None, "latest": None}
    assert (full["id"], full["high_watermark"], full["newest_offset"]) == (1, 2, 2)
    assert full["leader"]
    assert full["replicas"] == full["isr"] == [full["leader"]]
    received = full["messages_received"]
    assert 0 < received["first"] <= received["latest"]
    assert abs(received["latest"] / 1e9 - datetime.now(UTC).timestamp()) < 60

    table = run_on_each("partitions", "list", stream)
    day = datetime.fromtimestamp(received["latest"] / 1e9, UTC).isoformat(timespec="seconds")
    assert f"│ {full['leader']} " in table.out
    assert day in table.out
    assert table.err == ""


def test_without_a_name_the_partitions_of_all_streams_are_listed(run: Run, stream: str) -> None:
    run("streams", "create", f"{stream}.a")
    run("streams", "create", f"{stream}.b")
    listed = [one["stream"] for one in run("partitions", "list", "--json").json]
    assert {f"{stream}.a", f"{stream}.b", "__cursors"} <= set(listed)
    assert listed == sorted(listed)
    both = run("partitions", "list", f"{stream}.b", f"{stream}.a", f"{stream}.b", "--json").json
    assert [one["stream"] for one in both] == [f"{stream}.b", f"{stream}.a"]


@ON_EMBEDDED
def test_one_partition_is_shown_with_everything(run_on_each: Run, stream: str) -> None:
    run_on_each("streams", "create", stream, "--partitions", "2")
    run_on_each("publish", stream, "a", "--partition", "1")
    shown = run_on_each("partitions", "show", stream, "1", "--json").json
    assert shown == partitions(run_on_each, stream)[1]
    assert "high watermark" in run_on_each("partitions", "show", stream, "1").out
    missing = run_on_each("partitions", "show", stream, "2", "--timeout", "2s", code=1)
    assert "partition=2" in missing.err
    assert len(missing.err.splitlines()) == 1


def test_single_partitions_are_paused_and_resumed(run_on_each: Run, stream: str) -> None:
    run_on_each("streams", "create", stream, "--partitions", "3")
    run_on_each("publish", stream, "a", "--partition", "1")
    paused = run_on_each(
        "streams",
        "pause",
        stream,
        "--partition",
        "1",
        "--partition",
        "2",
        "--partition",
        "1",
        "--json",
    )
    assert paused.json == {
        "name": stream,
        "partitions": [1, 2],
        "paused": True,
        "resume_all": False,
    }
    assert states(run_on_each, stream) == [(False, False), (True, False), (True, False)]
    offsets = [one["newest_offset"] for one in partitions(run_on_each, stream)]
    assert offsets == [-1, 0, -1]
    assert "paused" in run_on_each("streams", "show", stream).out

    assert "partition 1 of" in run_on_each("streams", "resume", stream, "--partition", "1").err
    assert states(run_on_each, stream) == [(False, False), (False, False), (True, False)]
    assert partitions(run_on_each, stream)[1]["newest_offset"] == 0


def test_single_partitions_are_made_readonly_and_writable(run_on_each: Run, stream: str) -> None:
    run_on_each("streams", "create", stream, "--partitions", "2")
    run_on_each("streams", "readonly", stream, "--partition", "1")
    assert states(run_on_each, stream) == [(False, False), (False, True)]
    refused = run_on_each("publish", stream, "a", "--partition", "1", code=1)
    assert "read" in refused.err
    run_on_each("publish", stream, "a", "--partition", "0")
    done = run_on_each("streams", "readonly", stream, "--partition", "1", "--off", "--json")
    assert done.json == {"name": stream, "partitions": [1], "readonly": False}
    run_on_each("publish", stream, "a", "--partition", "1")


def test_a_whole_stream_is_paused_resumed_and_made_readonly(run_on_each: Run, stream: str) -> None:
    run_on_each("streams", "create", stream, "--partitions", "2")
    paused = run_on_each("streams", "pause", stream, "--resume-all", "--json").json
    assert paused == {"name": stream, "paused": True, "resume_all": True}
    assert states(run_on_each, stream) == [(True, False)] * 2
    run_on_each("publish", stream, "a")  # resumes both
    assert states(run_on_each, stream) == [(False, False)] * 2
    run_on_each("streams", "pause", stream)
    run_on_each("streams", "resume", stream)
    assert states(run_on_each, stream) == [(False, False)] * 2

    run_on_each("streams", "readonly", stream)
    assert states(run_on_each, stream) == [(False, True)] * 2
    done = run_on_each("streams", "readonly", stream, "--off", "--json").json
    assert done == {"name": stream, "readonly": False}
    assert states(run_on_each, stream) == [(False, False)] * 2


@pytest.mark.parametrize(
    "words",
    [
        ("streams", "show", "no-such-stream"),
        ("streams", "pause", "no-such-stream"),
        ("streams", "readonly", "no-such-stream"),
        ("partitions", "list", "no-such-stream"),
        ("partitions", "show", "no-such-stream", "0"),
        ("streams", "resume", "no-such-stream", "--partition", "0"),
    ],
)
def test_a_stream_that_is_not_there_is_one_line(run: Run, words: Sequence[str]) -> None:
    result = run(*words, "--json", "--timeout", "500ms", code=1)
    assert result.out == ""
    assert "no-such-stream" in result.err
    assert len(result.err.splitlines()) == 1


def test_a_leader_that_does_not_answer_hides_nothing_else(
    capsys: pytest.CaptureFixture[str],
) -> None:
    known = PartitionInfo(0, "b1", ("b1", "b2"), ("b2",), high_watermark=7, newest_offset=8)
    lost = PartitionState("s", known, RequestTimeout("no\nanswer", stream="s", partition=0))
    fields = lost.as_json()
    assert (fields["leader"], fields["isr"]) == ("b1", ("b2",))
    assert (fields["high_watermark"], fields["newest_offset"]) == (None, None)
    assert "no\nanswer" in fields["error"]
    assert lost.words() == "leader does not answer"

    assert say_what_failed([PartitionState("s", known), lost]) == 1
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith("error: 1 of 2 partitions")
    assert "no answer" in line
    assert say_what_failed([PartitionState("s", known)]) == 0

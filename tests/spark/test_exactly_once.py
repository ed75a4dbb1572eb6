"""Committing a batch exactly once: Spark's calls of the sink, in the order of its engine."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest

from liftbridge_aio.spark.connection import close_connections
from liftbridge_aio.spark.errors import BatchSuperseded
from liftbridge_aio.spark.write.sink import BatchSink
from spark.conftest import EVERY_SERVER
from support.spark.log_client import LogClient
from support.spark.played_query import COMMIT, KILLED_COMMIT, SCHEMA, PlayedQuery

PARTITIONS = 3
MESSAGES_OF_A_COMMIT = 3
"""At least: a claim, a decision, and an ack for each partition with rows."""

pytestmark = EVERY_SERVER


@pytest.fixture
def query(log: LogClient, stream_name: str) -> Iterator[PlayedQuery]:
    yield PlayedQuery(log, log.create(stream_name, PARTITIONS))
    close_connections()


A_DRIVER = "the same driver"
ANOTHER = "another driver"
RUNS: dict[str, Callable[[], None]] = {A_DRIVER: lambda: None, ANOTHER: close_connections}


@pytest.mark.parametrize("who", RUNS)
def test_a_batch_shows_its_rows_once_however_often_it_is_run(query: PlayedQuery, who: str) -> None:
    batch = query.run(7, "a", "b", "c", "d")
    assert query.committed() == []
    query.sink().commit(batch, 7)
    whole = sorted(f"{task}{value}" for task in "01" for value in "abcd")
    assert query.committed() == whole
    RUNS[who]()
    query.sink().commit(batch, 7)
    query.sink().commit(query.run(7, "d", "c", "b", "a", "x"), 7)
    assert query.committed() == whole
    query.sink().commit(query.run(8, "e"), 8)
    assert query.committed() == sorted([*whole, "0e", "1e"])


def test_an_attempt_that_failed_or_lost_shows_nothing(query: PlayedQuery) -> None:
    loser = query.task(7, 0, ["0a", "0b"], number=0)
    winner = query.task(7, 0, ["0b", "0a"], number=1)
    query.sink().abort([loser, None], 7)
    query.sink().commit([winner], 7)
    query.sink().abort([winner], 7)
    assert query.committed() == ["0a", "0b"]


def test_a_driver_that_was_replaced_adopts_what_its_successor_decided(query: PlayedQuery) -> None:
    query.sink().commit(query.run(1, "a"), 1)
    ours = query.run(2, "b")
    given = query.as_input(2, query.run(2, "B"))
    subprocess.run([sys.executable, "-c", COMMIT], input=given, check=True, timeout=60)
    query.sink().commit(ours, 2)
    query.sink().commit(query.run(3, "c"), 3)
    assert query.committed() == ["0B", "0a", "0c", "1B", "1a", "1c"]


def test_a_batch_before_the_last_one_commits_what_it_did_or_nothing(query: PlayedQuery) -> None:
    query.sink().commit(query.run(1, "a"), 1)
    query.sink().commit(query.run(3, "b"), 3)
    for forget in RUNS.values():
        forget()
        query.sink().commit(query.run(1, "A"), 1)
        with pytest.raises(BatchSuperseded, match=r"batch 2 of query .*checkpoint"):
            query.sink().commit(query.run(2, "c"), 2)
    assert query.committed() == ["0a", "0b", "1a", "1b"]


def test_queries_may_share_a_stream_of_decisions(query: PlayedQuery, stream_name: str) -> None:
    shared = {"decisionStream": f"{stream_name}-decisions"}
    other = PlayedQuery(query.log, query.stream)
    for batch in range(12):
        query.sink(**shared).commit(query.run(batch, f"a{batch}"), batch)
    other.sink(**shared).commit(other.run(0, "b"), 0)
    for batch in range(12, 24):
        query.sink(**shared).commit(query.run(batch, f"a{batch}"), batch)
    close_connections()
    other.sink(**shared).commit(other.run(0, "B"), 0)
    query.sink(**shared).commit(query.run(23, "A"), 23)
    expected = [f"{task}a{batch}" for task in (0, 1) for batch in range(24)]
    assert query.committed() == sorted([*expected, "0b", "1b"])


def test_a_batch_write_that_is_named_is_recognised(query: PlayedQuery, stream_name: str) -> None:
    def write(*values: str, **more: str) -> None:
        sink = BatchSink(query.options(**more), SCHEMA, overwrite=False)
        rows = [[f"{task}{value}" for value in values] for task in (0, 1)]
        sink.commit(
            [query.task(0, task, own, 0, sink._job, **more) for task, own in enumerate(rows)]
        )

    write("a", writeId=f"{stream_name} of Monday")
    write("A", writeId=f"{stream_name} of Monday")
    write("b", writeId=f"{stream_name} of Tuesday")
    assert query.committed() == ["0a", "0b", "1a", "1b"]
    write("c")
    write("c")
    assert query.committed() == ["0a", "0b", "0c", "0c", "1a", "1b", "1c", "1c"]


def test_a_name_that_was_used_for_other_rows_is_told(
    query: PlayedQuery, stream_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"{stream_name} of Monday"

    def write(*tasks: list[str]) -> str:
        caplog.clear()
        sink = BatchSink(query.options(writeId=name), SCHEMA, overwrite=False)
        sink.commit(
            [
                query.task(0, number, rows, 0, sink._job, writeId=name)
                for number, rows in enumerate(tasks)
            ]
        )
        return caplog.text

    assert "writeId" not in write(["a", "b"], ["c", "d"])
    for same in ([["d", "a"], ["b", "c"]], [["a", "b", "c"], ["d"]], [["b", "c", "d", "a"]]):
        assert "the 4 rows of this run are not, as they repeat those" in write(*same)
    for other in (
        [["a", "b"], ["c", "e"]],
        [["a", "b"], ["c", "d", "e"]],
        [["a", "a"], ["c", "d"]],
    ):
        told = write(*other)
        assert "whose 4 rows are committed; the " in told
        assert f"[LIFTBRIDGE_WRITE_ID_USED] writeId {name!r} was decided for other rows" in told
    assert query.committed() == ["a", "b", "c", "d"]


def test_a_decision_of_before_there_were_digests_is_completed(
    query: PlayedQuery, stream_name: str, caplog: pytest.LogCaptureFixture
) -> None:
    name = f"{stream_name} of Monday"
    sink = BatchSink(query.options(writeId=name), SCHEMA, overwrite=False)
    sink.commit([query.task(0, 0, ["a"], 0, sink._job)])  # as tasks without a name: no digest
    sink.commit([query.task(0, 0, ["b"], 0, sink._job, writeId=name)])
    assert "as many; if they are other rows, use another writeId" in caplog.text
    assert query.committed() == ["a"]


def test_a_batch_without_tasks_or_rows_is_committed(query: PlayedQuery) -> None:
    query.sink().commit([], 1)
    query.sink().commit(query.run(2), 2)
    query.sink().commit(query.run(2, "a"), 2)
    assert query.committed() == []


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_driver_killed_at_any_message_of_a_commit_repeats_nothing(
    query: PlayedQuery, when: str
) -> None:
    kills = 0
    while True:
        batch = kills
        driver = subprocess.run(
            [sys.executable, "-c", KILLED_COMMIT, str(kills + 1), when],
            input=query.as_input(batch, query.run(batch, f"{batch}a", f"{batch}b")),
            check=False,
        )
        if not driver.returncode:
            break
        assert driver.returncode == -signal.SIGKILL
        kills += 1
        query.sink().commit(query.run(batch, f"{batch}b", f"{batch}a"), batch)
        close_connections()
    assert kills >= MESSAGES_OF_A_COMMIT
    rows = [f"{task}{batch}{row}" for task in "01" for batch in range(kills + 1) for row in "ab"]
    assert query.committed() == sorted(rows)

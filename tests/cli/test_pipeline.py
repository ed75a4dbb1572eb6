"""Pipelines as their users run them: they add up, go on where they were, and end when told to."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path
from uuid import UUID

import pytest

from cli.conftest import COMMAND, Result, Run, Start, end, environment, finish
from liftbridge_aio import TLS, Client, Record
from liftbridge_aio._runtime.file_lock import FileLock
from liftbridge_aio.cli.connection import ConnectionFlags
from liftbridge_aio.cli.pipeline import _archive_plan
from liftbridge_aio.spark.core.options import ReadOptions
from liftbridge_aio.spark.core.write_id import WRITE_ID_HEADER, TaskAttempt, WriteId
from liftbridge_aio.spark.pipelines.archive import archive_lock, source_options

QUERY = UUID(int=5)

BOUND = 240.0
"""Seconds for a command with Spark; a tenth of it, but where jars come from a cold disk."""


def run_without_spark(stream: str, servers: str) -> Result:
    """Run commands of pipelines where neither pyspark nor pyarrow can be imported."""
    code = (
        "import sys\n"
        "sys.modules['pyspark'] = sys.modules['pyarrow'] = None\n"
        "from liftbridge_aio.cli import main\n"
        "assert main(['pipeline', 'repeats', sys.argv[1]]) == 0\n"
        "sys.exit(main(['pipeline', 'archive', 'a', '--to', 'b']))\n"
    )
    return finish(sys.executable, "-c", code, stream, servers=servers)


@pytest.fixture
def written_twice(broker_address: str, stream: str) -> tuple[str, str]:
    """Two streams that a query wrote to, in the second batch of which a task ran twice."""
    names = (f"{stream}-eu", f"{stream}-us")
    first = TaskAttempt(QUERY, 0, 0, 0, b"attempt1").write_ids(range(4))
    failed = TaskAttempt(QUERY, 1, 0, 0, b"attempt2").write_ids(range(3))
    second = TaskAttempt(QUERY, 1, 0, 1, b"attempt3").write_ids(range(5))

    async def publish() -> None:
        async with Client(broker_address) as client:
            for name in names:
                await client.create_stream(name)
            for number, content in enumerate([*first, *failed, *second]):
                to = names[number >= 4 and WriteId.decode(content).row == 1]
                headers = {WRITE_ID_HEADER: content}
                await client.publish_many(to, [Record(b"v", headers=headers)])
            async with client.producer() as producer, producer.transaction() as txn:
                await txn.publish(names[0], b"of somebody else")  # and an ack, which is no row

    asyncio.run(publish())
    return names


def test_repeats_are_counted_over_all_streams_that_a_query_writes_to(
    run: Run, written_twice: tuple[str, str]
) -> None:
    report = json.loads(run("pipeline", "repeats", *written_twice, "--json").out)
    batches = report.pop("batches")
    streams = list(written_twice)
    counts = {"rows": 9, "repeats": 3, "gaps": 0, "unmarked": 1}
    assert report == {"streams": streams, **counts}
    assert [list(batch.values()) for batch in batches] == [
        [str(QUERY), 0, 4, 0, 0, 1],
        [str(QUERY), 1, 5, 3, 0, 2],
    ]
    alone = json.loads(run("pipeline", "repeats", written_twice[0], "--json").out)
    assert (alone["repeats"], alone["gaps"]) == (2, 1)  # the row that the other stream has


def test_repeats_are_shown_by_batch(run: Run, written_twice: tuple[str, str]) -> None:
    *table, summary = run("pipeline", "repeats", *written_twice).out.splitlines()
    assert summary == "9 rows, 3 repeats, 0 gaps, 1 messages without a write id"
    rows = [re.findall(r"[\w-]+", line) for line in table if str(QUERY) in line]
    assert rows == [[str(QUERY), "1", "5", "3", "0", "2"]]


def test_a_stream_whose_repeats_cannot_be_counted_is_named(run: Run, stream: str) -> None:
    assert f"stream='{stream}'" in run("pipeline", "repeats", stream, code=1).err


def test_without_pyspark_repeats_are_counted_and_the_rest_names_the_extra(
    written_twice: tuple[str, str], broker_address: str
) -> None:
    done = run_without_spark(written_twice[0], broker_address)
    assert "2 repeats" in done.out
    assert done.code == 1
    [line] = done.err.splitlines()
    assert "pip install 'liftbridge-aio[spark]'" in line


def test_an_archive_needs_to_know_what_to_keep(run: Run, tmp_path: Path) -> None:
    to = ("--to", str(tmp_path / "archive"))
    assert "a --pattern" in run("pipeline", "archive", *to, code=2).err
    both = run("pipeline", "archive", "orders", "--pattern", "o.*", *to, code=2)
    assert "a --pattern" in both.err


def test_an_archive_whose_checkpoint_is_gone_is_left_alone(run: Run, tmp_path: Path) -> None:
    (tmp_path / "stream=orders").mkdir()
    ended = run("pipeline", "archive", "orders", "--to", str(tmp_path), code=1)
    assert "but no folder _checkpoint" in ended.err


def test_what_an_archive_cannot_do_is_said_before_spark_starts(run: Run, tmp_path: Path) -> None:
    def refused(*words: str) -> str:
        ended = run("pipeline", "archive", *words, "--to", str(tmp_path / "archive"), code=2)
        assert "starting Spark" not in ended.err
        return ended.err

    assert "is not a regular expression" in refused("--pattern", "[")
    assert "write name=value" in refused("orders", "--option", "failOnDataLoss")
    assert "did you mean failOnDataLoss?" in refused("orders", "--option", "failOnDataLos=false")
    assert "does not know the option depth" in refused("orders", "--option", "depth=3")
    assert "sets the option stream itself" in refused("orders", "--option", "stream=sales")
    assert not (tmp_path / "archive").exists()


def test_a_file_or_replay_that_is_wrong_is_refused_before_spark_starts(
    run: Run, tmp_path: Path
) -> None:
    def refused(*words: str, code: int) -> str:
        ended = run("pipeline", *words, code=code)
        assert "starting Spark" not in ended.err
        return ended.err

    file = tmp_path / "p.toml"
    file.write_text('checkpoint = "c"\n[sources.sales]\nstream = ["sales"]\n')
    for command in ("check", "run"):
        wrong = refused(command, str(file), code=2)
        assert f"{file}, line 3: there is no key stream; did you mean streams?" in wrong
        assert "cannot be read" in refused(command, str(tmp_path / "none"), code=2)
    assert "is no archive" in refused("replay", "--from", str(tmp_path), code=1)
    assert "does not exist" in refused("replay", "--from", str(tmp_path / "none"), code=1)
    places = ("--from", str(tmp_path), "--checkpoint", str(tmp_path / "p"))
    assert "did you mean ackPolicy?" in refused(
        "replay", *places, "--option", "ackPolcy=all", code=2
    )
    assert "cannot keep their order" in refused("replay", "a", "b", "--to", "c", *places, code=1)


def test_an_archive_talks_to_the_servers_as_flags_and_environment_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LIFTBRIDGE_MAX_RECEIVE_BYTES", "1000000")
    monkeypatch.setenv("LIFTBRIDGE_DATA_LANE", "0")
    plan = _archive_plan(
        ("orders",),
        None,
        Path("archive"),
        "earliest",
        1000,
        ("readTimeout=5",),
        ConnectionFlags(servers="a:1", timeout="3s"),
    )
    client = ReadOptions.parse(source_options(plan), streaming=True).connection.client_options()
    assert client.max_receive_bytes == 1_000_000
    assert (client.data_lane, client.call_timeout) == (False, 3.0)
    assert plan.options["readTimeout"] == "5"


def test_an_archive_speaks_tls_as_flags_and_environment_say(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("LIFTBRIDGE_TLS_KEY_PASSWORD", "hush")
    connection = ConnectionFlags(
        servers="liftbridge+tls://a,b:1?ca=/ca.pem&server_name=N", tls_cert=Path("/me.pem")
    )
    plan = _archive_plan(("orders",), None, Path("archive"), "earliest", 1, (), connection)
    options = ReadOptions.parse(source_options(plan), streaming=True).connection
    assert options.servers == ("a:9292", "b:1")
    assert options.client_options(os.environ).tls == TLS(
        ca="/ca.pem",
        cert="/me.pem",
        server_name="N",
        key_password="hush",  # noqa: S106 - of no key
    )
    assert "hush" not in repr(plan)


def test_two_archives_cannot_have_one_folder_at_a_time(run: Run, tmp_path: Path) -> None:
    with archive_lock(tmp_path / "archive"):
        ended = run("pipeline", "archive", "orders", "--to", str(tmp_path / "archive"), code=1)
    assert "another command archives to" in ended.err
    assert "starting Spark" not in ended.err
    with archive_lock(tmp_path / "archive"):
        (tmp_path / "archive" / ".spark-staging-1").mkdir()  # of a batch that is given up
    assert not (tmp_path / "archive" / ".spark-staging-1").exists()


def test_a_second_run_of_a_pipeline_says_so(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "p.toml"
    file.write_text(
        'checkpoint = "c"\n[sources.sales]\nstreams = ["sales"]\n'
        '[sinks.files]\nfrom = "sales"\nparquet = "files"\n'
        '[steps.odd]\nsql = "SELECT 1"\n'
    )
    (tmp_path / "c").mkdir()
    with FileLock(tmp_path / "c" / "_lock"):
        ended = run("pipeline", "run", str(file), code=1)
    assert "another command runs" in ended.err
    assert "starting Spark" not in ended.err
    (tmp_path / "files" / "_spark_metadata").mkdir(parents=True)
    (tmp_path / "files" / "_spark_metadata" / "9.compact").touch()
    for command in ("check", "run"):
        ended = run("pipeline", command, str(file), code=2)
        assert f"{file}, line 6: " in ended.err
        assert "Spark would skip its batches up to 9" in ended.err
        assert f"warning: {file}, line 7: no sink needs the step odd" in ended.err
        assert "starting Spark" not in ended.err


@pytest.mark.spark
@pytest.mark.timeout(BOUND + 60)
def test_an_archive_follows_its_stream_until_it_is_told_to_end(
    run: Run, start: Start, stream: str, tmp_path: Path
) -> None:
    import pyarrow.dataset as ds  # noqa: PLC0415

    def wait_for(pattern: str) -> None:
        while not list(tmp_path.glob(pattern)):
            assert process.poll() is None
            time.sleep(0.05)

    run("streams", "create", "s", "--subject", stream)
    run("publish", "s", "first", "second")
    to = ("--to", str(tmp_path / "archive"), "--master", "local[1]")
    process = start("pipeline", "archive", "s", *to, "--follow", "--every", "200ms")
    wait_for("archive/stream=s/*/batch=0/*.parquet")
    run("publish", "s", "third")
    wait_for("archive/stream=s/*/batch=1/*.parquet")
    process.send_signal(signal.SIGINT)
    ended = end(process, BOUND)
    assert ended.code == 0
    assert ended.err.splitlines()[0] == "starting Spark"
    assert re.fullmatch(r"[23] messages in [12] batches to .*/archive\n", ended.out)
    table = ds.dataset(tmp_path / "archive", format="parquet").to_table()
    assert sorted(table.column("value").to_pylist()) == [b"first", b"second", b"third"]


def is_gone_soon(group: int) -> bool:
    """Tell whether nothing of a process group is left; workers have to notice the end of Java."""
    for _ in range(400):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return True
        time.sleep(0.05)
    return False


@pytest.mark.spark
@pytest.mark.timeout(BOUND + 60)
def test_ctrl_c_while_spark_starts_ends_it_cleanly(
    run: Run, broker_address: str, stream: str, tmp_path: Path
) -> None:
    """Also where the whole foreground group gets the signal, as from a terminal.

    It waits until Spark is up, which takes a minute where jars come from a cold disk.
    """
    run("streams", "create", stream)
    own = tmp_path / "own"
    own.mkdir()
    process = subprocess.Popen(
        [*COMMAND, "pipeline", "archive", stream, "--to", str(tmp_path / "archive"), "--follow"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(broker_address) | {"TMPDIR": str(own)},
        start_new_session=True,
    )
    assert process.stderr is not None
    while "starting Spark" not in (line := process.stderr.readline()):
        assert line, "it ended"
    os.killpg(process.pid, signal.SIGINT)
    ended = end(process, BOUND)
    assert ended.code == 0
    assert re.fullmatch(r"(archiving to .*\n)?", ended.err)  # where Spark was up already
    assert list(own.iterdir()) == []
    assert is_gone_soon(process.pid)

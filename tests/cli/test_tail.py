"""`liftbridge-aio tail`: all partitions of a stream as one."""

from __future__ import annotations

import base64
import re
import signal
import subprocess
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta

import pytest
from anyio.from_thread import BlockingPortal
from hypothesis import given
from hypothesis import strategies as st

from cli.conftest import (
    BOUND,
    COMMAND,
    ON_EMBEDDED,
    ByClient,
    Run,
    Start,
    end,
    environment,
)
from liftbridge_aio import Client, Record
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.cli.arguments import (
    BadArgument,
    LastMessages,
    Until,
    parse_from,
    parse_until,
)
from liftbridge_aio.cli.connection import ConnectionFlags
from liftbridge_aio.cli.messages import Grep, GrepField, message_line
from liftbridge_aio.cli.reading import reading_client
from liftbridge_aio.model import Message, StartAt, StopAt

NOW = datetime(2026, 11, 21, 9, tzinfo=UTC)


@pytest.fixture
def three(prepare: ByClient, stream: str) -> str:
    """A stream of three partitions, with `a0 a1 a2`, `b0 b1` and nothing."""

    async def create(client: Client) -> None:
        await client.create_stream(stream, partitions=3)
        await client.publish_many(
            stream, [Record(b"a%d" % n, b"ann", partition=0) for n in range(3)]
        )
        to = {"to": b"bob"}
        await client.publish_many(
            stream, [Record(b"b%d" % n, headers=to, partition=1) for n in range(2)]
        )

    prepare(create)
    return stream


def values(run: Run, stream: str, *words: str) -> dict[int, list[str]]:
    """Return the output of `tail` by partition, in its order."""
    found: dict[int, list[str]] = {}
    for message in run("tail", stream, *words, "--json").objects:
        assert message["stream"] == stream
        found.setdefault(message["partition"], []).append(message["value"])
    return found


def test_all_partitions_are_read_to_the_newest_message(run_on_each: Run, three: str) -> None:
    everything = {0: ["a0", "a1", "a2"], 1: ["b0", "b1"]}
    for words in [(), ("--from", "earliest"), ("--from", "0"), ("--from", "-1h")]:
        assert values(run_on_each, three, *words, "--no-follow") == everything
    assert values(run_on_each, three, "--until", "latest") == everything
    assert values(run_on_each, three, "--until", "latest", "--no-follow") == everything


@ON_EMBEDDED
def test_where_it_begins_and_what_is_wanted(run_on_each: Run, three: str) -> None:
    both = ("--grep-in", "headers", "--grep-in", "value")
    cases: list[tuple[tuple[str, ...], dict[int, list[str]]]] = [
        (("--from", "last:1"), {0: ["a2"], 1: ["b1"]}),
        (("--from", "last:3"), {0: ["a0", "a1", "a2"], 1: ["b0", "b1"]}),
        (("--from", "latest"), {0: ["a2"], 1: ["b1"]}),
        (("--from", "2"), {0: ["a2"]}),
        (("--from", "new"), {}),
        (("--from", "2100-01-01T00:00Z"), {}),
        (("--partition", "1"), {1: ["b0", "b1"]}),
        (("--partition", "2", "--partition", "0", "--partition", "0"), {0: ["a0", "a1", "a2"]}),
        (("--from", "last:2", "--partition", "0"), {0: ["a1", "a2"]}),
        (("--grep", "[ab]1"), {0: ["a1"], 1: ["b1"]}),
        (("--grep", "^ann$", "--grep-in", "key"), {0: ["a0", "a1", "a2"]}),
        (("--grep", "^to=b", "--grep-in", "headers"), {1: ["b0", "b1"]}),
        (("--grep", "2|=", *both), {0: ["a2"], 1: ["b0", "b1"]}),
        (("--grep", "ann"), {}),
    ]
    for words, expected in cases:
        assert values(run_on_each, three, *words, "--no-follow") == expected, words


def test_it_ends_after_the_count_and_at_offsets_and_times(run_on_each: Run, three: str) -> None:
    two = run_on_each("tail", three, "--from", "earliest", "--count", "2", "--json")
    assert len(two.objects) == 2
    found = run_on_each("tail", three, "--grep", "[ab]1", "--count", "2", "--json").objects
    assert sorted(message["value"] for message in found) == ["a1", "b1"]
    until = ("--until", "1", "--partition", "0", "--partition", "1")
    assert values(run_on_each, three, *until) == {0: ["a0", "a1"], 1: ["b0", "b1"]}

    past = datetime.now(UTC).isoformat()
    run_on_each("publish", three, "a3", "--partition", "0")
    assert values(run_on_each, three, "--until", past)[0] == ["a0", "a1", "a2"]
    assert values(run_on_each, three, "--until", "1990-01-01T00:00Z") == {}
    soon = (datetime.now(UTC) + timedelta(seconds=0.7)).isoformat()
    assert values(run_on_each, three, "--until", soon)[0] == ["a0", "a1", "a2", "a3"]
    assert datetime.now(UTC).isoformat() >= soon


def test_the_last_messages_are_counted_where_compaction_left_gaps(run: Run, stream: str) -> None:
    run(
        *("streams", "create", stream, "--compact-enabled", "--segment-max-bytes", "100"),
        *("--cleaner-interval", "50ms"),
    )
    run("publish", stream, "first", "--key", "a")
    run("publish", stream, *map(str, range(20)), "--key", "b")

    def tail(start: str) -> list[str]:
        return run("tail", stream, "--from", start, "--no-follow").out.splitlines()

    # Compaction may go on between two readings, and so makes them differ for a while.
    deadline = time.monotonic() + BOUND
    while True:
        left = tail("earliest")
        last = tail(f"last:{len(left)}")
        if (len(left) <= 10 and last == left) or time.monotonic() > deadline:
            break
    assert last == left
    assert 1 < len(left) <= 10
    assert left[0].endswith("\t0\ta\tfirst")  # further back than so many offsets


@ON_EMBEDDED
def test_a_line_has_time_partition_offset_key_and_value(run_on_each: Run, three: str) -> None:
    read = run_on_each("tail", three, "--from", "last:1", "--no-follow", "--headers")
    first, second = (line.split("\t") for line in sorted(read.out.splitlines()))
    assert first[1:] == ["0", "2", "ann", "a2"]
    assert second[1:] == ["1", "1", "", "b1", "to=bob"]
    assert abs(datetime.fromisoformat(first[0]) - datetime.now(UTC)) < timedelta(minutes=1)
    assert read.err == ""


def test_it_follows_what_is_published_until_nobody_reads_any_more(
    start: Start, run: Run, stream: str
) -> None:
    run("streams", "create", stream, "--partitions", "2")
    run("publish", stream, "before", "--partition", "1")
    reader = start("tail", stream)
    assert reader.stdout is not None
    assert reader.stdout.readline().endswith("\t1\t0\t\tbefore\n")
    for partition in ("0", "1"):
        run("publish", stream, "after", "--partition", partition)
        assert reader.stdout.readline().split("\t")[1::3] == [partition, "after\n"]
    run("publish", stream, *["x" * 4096] * 100)  # more than a pipe takes unread
    assert "x" * 4096 in reader.stdout.readline()
    reader.stdout.close()
    reader.stdout = None
    code, _, err = end(reader)
    assert (code, err) == (141, "")


def test_bytes_that_are_no_text_do_no_harm(run: Run, stream: str) -> None:
    value = b"\x1b[2J\xff\n\t"
    run("publish", stream, value.decode("utf-8", "surrogateescape"), "--create")
    line = run("tail", stream, "--no-follow").out
    assert line.endswith("\\x1b[2J\\xff\\n\\t\n")
    assert len(line.splitlines()) == 1
    [message] = run("tail", stream, "--no-follow", "--json").objects
    assert base64.b64decode(message["value_base64"]) == value
    found = run("tail", stream, "--no-follow", "--grep", "\udcff\n\t$", "--json")
    assert found.objects == [message]


@pytest.mark.parametrize(
    ("template", "shown"),
    [
        ("%p %o %k %v\\n", "1 0  b0\n1 1  b1\n"),
        ("%t/%K/%V/%h;", "STREAM/0/2/to=bob;STREAM/0/2/to=bob;"),
        ("%s=%S%%\\t\\x41\\\\|", "b0=2%\tA\\|b1=2%\tA\\|"),
        ("", ""),
    ],
    ids=["usual", "lengths", "escapes", "empty"],
)
@pytest.mark.parametrize("command", ["tail", "subscribe"])
@ON_EMBEDDED
def test_a_template_formats_messages(
    run_on_each: Run, three: str, command: str, template: str, shown: str
) -> None:
    places = {
        "tail": ("--from", "earliest", "--no-follow"),
        "subscribe": ("--start", "earliest", "--stop", "latest"),
    }[command]
    read = run_on_each(command, three, "--partition", "1", *places, "--format", template)
    assert read.out == shown.replace("STREAM", three)


def test_a_template_writes_bytes_as_they_are(run: Run, stream: str, broker_address: str) -> None:
    run("publish", stream, "\udcff\t", "--create")
    words = ("tail", stream, "--no-follow", "--format", "%v\\0")
    environ = environment(broker_address)
    done = subprocess.run([*COMMAND, *words], env=environ, check=True, stdout=subprocess.PIPE)
    assert done.stdout == b"\xff\t\0"


def test_times_are_milliseconds_in_templates(run: Run, stream: str) -> None:
    run("publish", stream, "a", "--create")
    shown = run("tail", stream, "--no-follow", "--format", "%T").out
    assert abs(int(shown) / 1000 - time.time()) < 60


@ON_EMBEDDED
def test_a_group_stores_what_was_written_as_read(run_on_each: Run, three: str) -> None:
    words = ("tail", three, "--group", f"{three}-group", "--from", "earliest", "--json")
    first = run_on_each(*words, "--count", "2").objects
    second = run_on_each(*words, "--count", "3").objects
    read = sorted((one["partition"], one["offset"]) for one in first + second)
    assert read == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1)]
    for conflict in ["--no-follow", "--until=5", "--partition=0", "--from=last:3"]:
        refused = run_on_each("tail", three, "--group", "g", conflict, code=2)
        assert "--group goes without" in refused.err


def test_outages_are_reported_and_reading_goes_on(
    start: Start, run: Run, elsewhere: BlockingPortal
) -> None:
    broker = EmbeddedBroker()
    with elsewhere.wrap_async_context_manager(broker):
        at = ("--servers", broker.address)
        run("publish", "s", "before", "--create", *at)
        reader = start("tail", "s", "--json", *at)
        assert reader.stdout is not None
        assert reader.stderr is not None
        assert '"before"' in reader.stdout.readline()
        elsewhere.call(broker.faults.cut_links)
        assert reader.stderr.readline().startswith(f"lost the connection to {broker.address}: ")
        assert reader.stderr.readline().startswith("reading s/0 again at offset 1, from ")
        run("publish", "s", "after", *at)
        assert '"after"' in reader.stdout.readline()
        reader.send_signal(signal.SIGINT)
        assert reader.wait(BOUND) == 130


@pytest.mark.parametrize(
    ("flags", "environ", "seconds"),
    [({}, {}, None), ({"timeout": "7s"}, {}, 7), ({}, {"LIFTBRIDGE_RESUBSCRIBE_TIMEOUT": "8"}, 8)],
)
def test_outages_are_waited_for_without_limit_unless_told_otherwise(
    monkeypatch: pytest.MonkeyPatch,
    flags: dict[str, str],
    environ: dict[str, str],
    seconds: float | None,
) -> None:
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    client = reading_client(ConnectionFlags(**flags))  # type: ignore[arg-type]
    assert client.options.resubscribe_timeout == seconds


def test_a_paused_partition_is_read_if_it_may_be_resumed(run_on_each: Run, three: str) -> None:
    run_on_each("streams", "pause", three, "--partition", "1")
    failed = run_on_each("tail", three, "--no-follow", "--json", code=1)
    assert "partition=1" in failed.err
    assert failed.err.endswith("`tail` also takes --unpause\n")
    assert len(failed.err.splitlines()) == 1
    read = values(run_on_each, three, "--from", "last:1", "--no-follow", "--unpause")
    assert read == {0: ["a2"], 1: ["b1"]}


@pytest.mark.parametrize(
    ("words", "what", "code"),
    [
        (("--timeout", "500ms"), "stream='stream'", 1),
        (("--timeout", "500ms", "--from", "new"), "stream='stream'", 1),
        (("--until", "2100-01-01T00:00Z", "--timeout", "500ms"), "stream='stream'", 1),
        (("--from", "last:0"), "last:10", 2),
        (("--from", "last:few"), "last:10", 2),
        (("--from", "yesterday"), "earliest", 2),
        (("--until", "now"), "latest", 2),
        (("--until", "5", "--no-follow"), "give only one of them", 2),
        (("--grep", "(unclosed"), "is not a regular expression", 2),
        (("--grep", "x", "--grep-in", "everywhere"), "--grep-in", 2),
        (("--count", "0"), "--count", 2),
        (("--partition", "-1"), "partition", 2),
        (("--format", "%z"), "is not a template", 2),
        (("--format", "100%"), "is not a template", 2),
        (("--format", "\\q"), "is not a template", 2),
        (("--format", "%v", "--json"), "contradict", 2),
        (("--group", ""), "must not be empty", 2),
    ],
)
def test_what_cannot_be_read_is_told(
    run: Run, words: tuple[str, ...], what: str, code: int
) -> None:
    failed = run("tail", "stream", *words, code=code)
    assert what in failed.err
    assert failed.out == ""


@ON_EMBEDDED
def test_a_partition_that_is_not_there_is_one_line(run_on_each: Run, three: str) -> None:
    failed = run_on_each("tail", three, "--partition", "3", "--timeout", "1s", code=1)
    assert "partition=3" in failed.err
    assert len(failed.err.splitlines()) == 1


# What arguments mean


def test_starts_before_the_end() -> None:
    assert parse_from("last:10") == LastMessages(10)
    assert parse_from(" LAST:1 ") == LastMessages(1)
    assert parse_from("5") == StartAt.offset(5)


@given(st.text(max_size=12).map("last:".__add__))
def test_any_other_start_is_a_bad_argument(text: str) -> None:
    try:
        start = parse_from(text)
    except BadArgument:
        return
    assert isinstance(start, LastMessages)
    assert start.count >= 1


def test_ends_past_and_to_come() -> None:
    assert parse_until(None, follow=True, now=NOW) == Until()
    assert parse_until(None, follow=False, now=NOW) == Until(StopAt.latest())
    assert parse_until("latest", follow=False, now=NOW) == Until(StopAt.latest())
    assert parse_until("7", follow=True, now=NOW) == Until(StopAt.offset(7))
    assert parse_until("2026-11-21T09:00Z", follow=True, now=NOW) == Until(StopAt.time(NOW))
    later = NOW + timedelta(seconds=1)
    to_come = parse_until("2026-11-21T09:00:01Z", follow=True, now=NOW)
    assert to_come == Until(moment=later)
    assert to_come.covers(message(timestamp=_ns(later)))
    assert not to_come.covers(message(timestamp=_ns(later) + 1000))
    assert Until().covers(message(timestamp=2**62))


def _ns(moment: datetime) -> int:
    return int(moment.timestamp()) * 10**9


def message(
    key: bytes = b"",
    value: bytes = b"",
    timestamp: int = 0,
    headers: Mapping[str, bytes] | None = None,
) -> Message:
    return Message("s", 0, 0, key, value, timestamp, headers or {})


@given(st.binary(), st.binary())
def test_a_line_is_one_line_whatever_is_in_it(key: bytes, value: bytes) -> None:
    header = {"h": value}
    line = message_line(message(key, value, headers=header), headers=True)
    assert len(line.splitlines()) == 1
    assert len(line.split("\t")) == 6


@given(st.binary(min_size=1))
def test_every_byte_can_be_searched_for(data: bytes) -> None:
    typed = re.escape(data.decode("utf-8", "surrogateescape"))
    where: tuple[GrepField, ...] = ("value",)
    grep = Grep.parse(typed, where)
    assert grep.finds(message(value=b"<" + data + b">"))
    assert not grep.finds(message(key=data))

"""Each command against the embedded broker: what it does, what it writes, how it ends."""

from __future__ import annotations

import json
import time
import zlib
from dataclasses import fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from cli.conftest import Run, Start, end
from liftbridge_aio.cli.streams import StreamFlags
from liftbridge_aio.options import StreamOptions


def objects(text: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in text.splitlines()]


def test_what_is_published_is_read_back_with_every_field(run: Run, stream: str) -> None:
    run("streams", "create", stream, "--partitions", "2")
    acks = objects(
        run(
            *("publish", stream, "one", "two", "--json", "--partition", "1"),
            *("--key", "k", "--header", "a=1", "--header", "b=x=y", "--ack-policy", "all"),
        ).out
    )
    assert [ack["offset"] for ack in acks] == [0, 1]
    assert {(ack["partition"], ack["msg_subject"]) for ack in acks} == {(1, f"{stream}.1")}
    assert {ack["ack_policy"] for ack in acks} == {"all"}

    read = run(
        *("subscribe", stream, "--partition", "1", "--start", "earliest", "--stop", "latest"),
        "--json",
    )
    messages = objects(read.out)
    assert [message["value"] for message in messages] == ["one", "two"]
    first = messages[0]
    assert (first["offset"], first["partition"], first["key"]) == (0, 1, "k")
    assert first["headers"]["a"] == "1"
    assert first["headers"]["b"] == "x=y"
    assert datetime.fromisoformat(first["time"]).tzinfo == UTC
    assert abs(first["timestamp"] / 1e9 - datetime.now(UTC).timestamp()) < 60


@pytest.mark.parametrize(
    "words",
    [
        ("--servers", "HERE", "streams", "list"),
        ("streams", "--servers=HERE", "list"),
        ("--timeout", "5s", "streams", "--servers", "HERE", "list", "--json"),
        ("streams", "list", "--servers", "HERE", "--timeout=5s"),
    ],
)
def test_servers_are_named_before_the_command_or_after_it(
    run: Run, broker_address: str, stream: str, words: tuple[str, ...]
) -> None:
    run("streams", "create", stream)
    named = [word.replace("HERE", broker_address) for word in words]
    assert stream in run(*named, servers="127.0.0.1:1").out


def test_what_only_looks_like_the_servers_is_left_where_it_is(run: Run, stream: str) -> None:
    published = run("--timeout", "5s", "publish", stream, "a", "--create", "--", "--servers")
    assert published.out == f"0\t0\t{stream}\n0\t1\t{stream}\n"
    for words, expected in {
        ("--server", "a:1", "streams", "list"): 'Unknown command "--server"',
        ("--servers", "a:1", "nothing"): 'Unknown command "nothing"',
        ("--servers", "a:1", "broker"): "Unknown option: --servers",
        ("--servers", "a:1", "streams", "list", "--servers", "b:1"): "multiple times",
        ("--servers",): "",
    }.items():
        assert expected in run(*words, code=2 if expected else 0).err


def test_a_command_works_as_a_process_of_its_own(start: Start, run: Run, stream: str) -> None:
    assert end(start("publish", stream, "a", "--create")) == (0, f"0\t0\t{stream}\n", "")
    assert run("subscribe", stream, "--start", "0", "--count", "1") == (0, "0\t\ta\n", "")


def test_lines_of_stdin_are_published_one_by_one(run: Run, stream: str) -> None:
    lines = [f"line {number}" for number in range(300)]
    published = run("publish", stream, "-", "--create", stdin="\n".join(lines))
    assert [line.split("\t") for line in published.out.splitlines()] == [
        ["0", str(offset), stream] for offset in range(300)
    ]
    read = run("subscribe", stream, "--start", "0", "--stop", "299")
    assert read.out.splitlines() == [f"{offset}\t\t{line}" for offset, line in enumerate(lines)]


@pytest.mark.parametrize("size", [1_500_000, 9_000_000])
def test_a_line_that_is_too_long_is_named_and_those_before_it_are_acked(
    run: Run, stream: str, size: int
) -> None:
    lines = "\n".join(["a"] * 300 + ["x" * size, "after"])
    published = run("publish", stream, "-", "--create", stdin=lines, code=2)
    assert len(published.out.splitlines()) == 300
    assert "line 301: " in published.err
    assert f"stream='{stream}'" in published.err
    assert len(published.err.splitlines()) == 1
    read = run("subscribe", stream, "--start", "0", "--stop", "latest", "--format", "%v")
    assert read.out == "a" * 300


def test_a_line_may_be_as_long_as_a_message(run: Run, stream: str) -> None:
    lines = f"{'x' * 1_000_000}\n{'y' * 200_000}"
    run("publish", stream, "-", "--create", stdin=lines)
    read = run("subscribe", stream, "--start", "0", "--stop", "latest", "--format", "%v\\n")
    assert read.out == f"{lines}\n"


def test_a_value_that_is_refused_is_counted(run: Run, stream: str) -> None:
    words = ("publish", stream, "a", "b", "--create", "--header", f"h={'x' * 1_100_000}")
    assert "value 1: " in run(*words, code=2).err


def test_the_key_chooses_the_partition(run: Run, stream: str) -> None:
    run("streams", "create", stream, "--partitions", "3")
    ack = objects(run("publish", stream, "value", "--key", "hello", "--json").out)[0]
    assert ack["partition"] == zlib.crc32(b"hello") % 3


def test_messages_without_a_key_are_spread_over_the_partitions(run: Run, stream: str) -> None:
    run("streams", "create", stream, "--partitions", "3")
    acks = objects(run("publish", stream, *map(str, range(6)), "--json").out)
    assert sorted(ack["offset"] for ack in acks) == [0, 0, 0, 1, 1, 1]


def test_lines_of_a_file_have_keys(run: Run, stream: str, tmp_path: Path) -> None:
    run("streams", "create", stream, "--partitions", "2")
    lines = tmp_path / "lines"
    lines.write_bytes(b"ann::1\nbob::2\nnobody\nann::3::4\n::5")
    run("publish", stream, "--file", str(lines), "--key-separator", "::")
    read = run("tail", stream, "--from", "earliest", "--no-follow", "--format", "%p %k=%v\\n").out
    ann, bob = (zlib.crc32(name) % 2 for name in (b"ann", b"bob"))
    found = sorted(line.split(" ", 1)[1] for line in read.splitlines())
    assert found == ["=5", "=nobody", "ann=1", "ann=3::4", "bob=2"]
    assert {f"{ann} ann=1", f"{ann} ann=3::4", f"{bob} bob=2"} < set(read.splitlines())


def test_values_are_repeated_and_lines_end_at_the_count(run: Run, stream: str) -> None:
    began = time.monotonic()
    run("publish", stream, "a", "b", "--create", "--count", "5", "--rate", "20")
    assert time.monotonic() - began > 0.2 - 0.01  # four waits of a twentieth of a second
    run("publish", stream, "-", "--count", "2", stdin="c\nd\ne\n")
    read = run("subscribe", stream, "--start", "earliest", "--stop", "latest", "--format", "%v")
    assert read.out == "ababacd"


def test_internal_streams_are_listed_if_asked_for(run: Run, stream: str) -> None:
    run("streams", "create", stream)
    assert not any(each["name"].startswith("__") for each in run("streams", "list", "--json").json)
    internal = {each["name"] for each in run("streams", "list", "--internal", "--json").json}
    assert {"__cursors", "__activity", stream} <= internal


def test_subscribing_ends_after_the_count(run: Run, stream: str) -> None:
    run("publish", stream, "a", "b", "c", "--create")
    read = run("subscribe", stream, "--start", "-1h", "--count", "2")
    assert read.out == "0\t\ta\n1\t\tb\n"
    assert run("subscribe", stream, "--start", "latest", "--count", "1").out == "2\t\tc\n"


def test_expected_offsets_count_up_and_a_wrong_one_fails(run: Run, stream: str) -> None:
    run("streams", "create", stream, "--optimistic-concurrency-control")
    run("publish", stream, "a", "b", "--expected-offset", "0")
    failed = run("publish", stream, "c", "--expected-offset", "1", code=1)
    assert failed.out == ""
    assert stream in failed.err
    assert len(failed.err.splitlines()) == 1
    assert run("publish", stream, "c", "--expected-offset", "2").out == f"0\t2\t{stream}\n"


def test_without_acks_there_is_nothing_to_write(run: Run, stream: str) -> None:
    published = run("publish", stream, "a", "--create", "--ack-policy", "none", "--json")
    assert published.out == ""
    assert run("subscribe", stream, "--start", "0", "--count", "1").out == "0\t\ta\n"


def test_a_stream_is_created_listed_described_and_deleted(run: Run, stream: str) -> None:
    created = run(
        *("streams", "create", stream, "--subject", f"{stream}.subject", "--partitions", "2"),
        *("--retention-max-age", "7d", "--min-isr", "1", "--no-compact-enabled", "--json"),
    )
    assert json.loads(created.out) == {
        "name": stream,
        "subject": f"{stream}.subject",
        "partitions": 2,
        "created": True,
    }
    again = run("streams", "create", stream, code=1)
    assert f"[stream='{stream}']: give --exist-ok to accept that" in again.err
    existing = run("streams", "create", stream, "--exist-ok", "--json")
    assert json.loads(existing.out) == json.loads(created.out) | {"created": False}
    same = run("streams", "create", stream, "--exist-ok", "--partitions", "2").err
    assert same == f"stream {stream} exists already\n"
    other = run("streams", "create", stream, "--exist-ok", "--partitions", "5").err
    assert other == f"stream {stream} exists already, with 2 partitions, not 5\n"

    listed = json.loads(run("streams", "list", "--json").out)
    assert {"subject": f"{stream}.subject", "partitions": [0, 1]}.items() <= next(
        entry for entry in listed if entry["name"] == stream
    ).items()
    assert stream in run("streams", "list").out

    run("publish", stream, "a", "--partition", "1")
    described = json.loads(run("streams", "describe", stream, "--json").out)
    assert [(p["id"], p["high_watermark"]) for p in described["partitions"]] == [(0, -1), (1, 0)]
    assert f"{stream} on subject {stream}.subject" in run("streams", "describe", stream).out

    run("streams", "delete", stream)
    assert stream in run("streams", "describe", stream, code=1).err
    assert stream in run("streams", "delete", stream, code=1).err


def test_every_option_of_streams_is_a_flag() -> None:
    assert [field.name for field in fields(StreamFlags)] == [
        field.name for field in fields(StreamOptions)
    ]
    flags = StreamFlags(retention_max_age="1h30m", cleaner_interval="500ms", min_isr=2)
    assert flags.options() == StreamOptions(
        retention_max_age=5400.0, cleaner_interval=0.5, min_isr=2
    )


def test_a_cursor_is_stored_and_read(run: Run, stream: str) -> None:
    run("streams", "create", stream, "--partitions", "2")
    before = run("cursor", "get", "reader", stream)
    assert before.out == ""
    assert "no cursor" in before.err
    run("cursor", "set", "reader", stream, "41", "--partition", "1")
    assert run("cursor", "get", "reader", stream, "--partition", "1").out == "41\n"
    cursor = {"cursor_id": "reader", "stream": stream, "partition": 0, "offset": None}
    assert json.loads(run("cursor", "get", "reader", stream, "--json").out) == cursor


@pytest.mark.parametrize(
    ("words", "what"),
    [
        (("publish", "stream"), "give what to publish"),
        (("publish", "stream", "a", "-"), "give what to publish"),
        (("publish", "stream", "a", "--key", "k", "--key-separator", ":"), "not both"),
        (("publish", "stream", "a", "--key-separator", ""), "must not be empty"),
        (("publish", "stream", "a", "--count", "0"), "--count"),
        (("publish", "stream", "a", "--rate", "0"), "--rate"),
        (("publish", "stream", "value", "--header", "novalue"), "name=value"),
        (("publish", "stream", "value", "--ack-policy", "maybe"), "--ack-policy"),
        (("subscribe", "stream", "--start", "yesterday"), "new, latest, earliest"),
        (("subscribe", "stream", "--start", "2026-11-21T09:00"), "time zone"),
        (("subscribe", "stream", "--timeout", "soon"), "is not a duration"),
        (("streams", "list", "--servers", "host:port"), "the port of 'host' must be a number"),
        (("streams", "list", "--servers", "http://a:1"), "not http://"),
        (("streams", "list", "--servers", "a:1,ann:bread@host:1"), "write host:port only"),
        (("streams", "create", "stream", "--retention-max-age", "long"), "is not a duration"),
        (("streams", "create", "bad name"), "blanks"),
        (("streams", "create", "stream", "--partitions", "0"), "partitions must be"),
        (("cursor", "set", "reader", "stream", "-1"), "offset must be"),
        (("broker", "--port", "70000"), "65535"),
        (("gateway", "--port", "70000"), "65535"),
        (("publish", "stream", "-x"), "goes behind --, as in: publish jobs -- -x\n"),
        (("tail", "stream", "--from", "earlist"), "a time, -5m, or last:10\n"),
        (("streams", "create", "stream", "--replication-factor", "3"), "needs a server of its own"),
        (("nonsense",), "nonsense"),
        (("streams", "list", "--nonsense"), "--nonsense"),
    ],
)
def test_wrong_usage_is_said_on_stderr_with_exit_code_2(
    run: Run, words: tuple[str, ...], what: str
) -> None:
    result = run(*words, code=2)
    assert what in result.err
    assert "bread" not in result.err  # which may be a secret
    assert result.out == ""


def test_an_unknown_stream_is_one_line_on_stderr(run: Run, stream: str) -> None:
    result = run("subscribe", stream, "--timeout", "1s", code=1)
    assert result.out == ""
    assert stream in result.err
    assert len(result.err.splitlines()) == 1


def test_no_server_is_one_line_on_stderr(run: Run, unused_tcp_port: int) -> None:
    address = f"127.0.0.1:{unused_tcp_port}"
    result = run("streams", "list", "--timeout", "2s", servers=address, code=1)
    assert address in result.err
    assert len(result.err.splitlines()) == 1


def test_help_needs_neither_client_nor_broker(run: Run) -> None:
    for words in ((), ("--help",), ("streams", "create", "--help")):
        assert "Usage" in run(*words, servers="nowhere").out

"""`liftbridge-aio cursor`: what is listed, by whom it was stored and where."""

from __future__ import annotations

import asyncio
from contextlib import closing
from typing import Any

import pytest

from cli.conftest import ON_EMBEDDED, Run
from liftbridge_aio._core.addresses import parse_address
from support.raw import Wire


def cursor(cursor_id: str, stream: str, partition: int, offset: int | None) -> dict[str, Any]:
    return {"cursor_id": cursor_id, "stream": stream, "partition": partition, "offset": offset}


def test_cursors_are_listed_with_what_they_hold_now(run_on_each: Run, stream: str) -> None:
    run_on_each("streams", "create", stream, "--partitions", "2")
    for cursor_id, where, offset in [("b", "0", "1"), ("b", "0", "7"), ("a", "1", "3")]:
        run_on_each("cursor", "set", cursor_id, stream, offset, "--partition", where)
    # Commas part what servers keep; and cursors outlive their streams.
    run_on_each("cursor", "set", "a,b", f"{stream}.other", "5", "--force")

    expected = [cursor("a", stream, 1, 3), cursor("b", stream, 0, 7)]
    assert run_on_each("cursor", "list", stream, "--json").json == expected
    by_name = run_on_each("cursors", "list", stream, "--cursor-id", "b", "--json")
    assert by_name.json == expected[1:]
    everything = run_on_each("cursor", "list", "--json").json
    assert cursor("a,b", f"{stream}.other", 0, 5) in everything
    assert everything == sorted(
        everything, key=lambda one: (one["cursor_id"], one["stream"], one["partition"])
    )
    assert f"│ b      │ {stream} " in run_on_each("cursor", "list", stream).out
    assert f"│ {stream}.other (deleted) " in run_on_each("cursor", "list").out


def test_what_anybody_put_into_the_stream_of_cursors_is_no_cursor(
    run_on_each: Run, stream: str, address: str
) -> None:
    run_on_each("streams", "create", stream)
    run_on_each("cursor", "set", "real", stream, "1")
    refused = run_on_each("publish", "__cursors", "oops", code=2)
    assert refused.err.startswith("error: value 1: internal streams are written by the server")

    async def put() -> None:
        with closing(Wire(*parse_address(address))) as wire:
            await wire.publish("__cursors", b"nonsense")
            other = b"\n\x01x\x1a\x05bogus"  # of another name than its key
            await wire.publish("__cursors", other, key=b"bogus-key,b,0")

    asyncio.run(put())
    listed = run_on_each("cursor", "list", "--json").json
    assert cursor("real", stream, 0, 1) in listed
    assert {"bogus-key", "bogus", ""}.isdisjoint(one["cursor_id"] for one in listed)


@ON_EMBEDDED
def test_a_stored_cursor_can_be_told_in_json(run_on_each: Run, stream: str) -> None:
    run_on_each("streams", "create", stream)
    stored = run_on_each("cursor", "set", "reader", stream, "41", "--json")
    assert stored.json == cursor("reader", stream, 0, 41)
    assert run_on_each("cursor", "get", "reader", stream, "--json").json == stored.json


@ON_EMBEDDED
def test_a_partition_that_is_not_there_gets_no_cursor(run_on_each: Run, stream: str) -> None:
    gone = run_on_each("cursor", "set", "reader", f"{stream}.gone", "1", code=1)
    hint = "`streams list` shows the existing ones"
    assert gone.err == f"error: stream not found [stream='{stream}.gone']: {hint}\n"
    assert run_on_each("cursor", "get", "reader", f"{stream}.gone", code=1).err == gone.err
    run_on_each("streams", "create", stream)
    gone = run_on_each("cursor", "set", "reader", stream, "1", "--partition", "1", code=1)
    assert "the stream has 1 partitions" in gone.err
    none = run_on_each("cursor", "get", "reader", stream)
    assert none.err == f"no cursor 'reader' for partition 0 of {stream}\n"
    assert run_on_each("cursor", "list", stream, f"{stream}.gone", "--json").json == []


@pytest.mark.parametrize("words", [("cursor", "list"), ("cursor", "get", "reader", "s")])
def test_without_cursors_on_the_servers_that_is_said(
    run: Run, bare_broker_address: str, words: tuple[str, ...]
) -> None:
    limit = ("--timeout", "500ms")
    failed = run(*words, "--json", *limit, servers=bare_broker_address, code=1)
    assert failed.out == ""
    assert "cursors" in failed.err
    assert len(failed.err.splitlines()) == 1

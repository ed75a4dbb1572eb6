"""How commands that run for long come to an end."""

from __future__ import annotations

import asyncio
import json
import signal
import socket
from typing import IO

import pytest

from cli.conftest import BOUND, Run, Start, end
from liftbridge_aio.addresses import parse_address


def line(stdout: IO[str] | None) -> str:
    assert stdout is not None
    return stdout.readline()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_the_broker_tells_its_address_and_ends_well_by_signal(
    start: Start, number: signal.Signals
) -> None:
    broker = start("broker", "--port", "0", "--json")
    address = json.loads(line(broker.stdout))["address"]
    with socket.create_connection(parse_address(address), timeout=BOUND):
        broker.send_signal(number)
        code, out, _ = end(broker)
    assert (code, out) == (0, "")


def test_the_broker_ends_although_somebody_reads_from_it(start: Start, stream: str) -> None:
    broker = start("broker", "--port", "0")
    servers = ("--servers", line(broker.stdout).strip())
    assert end(start("publish", stream, "a", "--create", *servers))[0] == 0
    reader = start("subscribe", stream, "--start", "earliest", "--timeout", "1s", *servers)
    assert line(reader.stdout) == "0\t\ta\n"
    broker.send_signal(signal.SIGINT)
    assert end(broker)[0] == 0
    code, _, err = end(reader)
    assert code == 1
    assert stream in err.splitlines()[-1]


def test_a_taken_port_is_one_line(start: Start) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        code, out, err = end(start("broker", "--port", str(taken.getsockname()[1])))
    assert (code, out) == (1, "")
    assert "ddress already in use" in err
    assert len(err.splitlines()) == 1


def test_an_endless_subscribe_ends_by_ctrl_c(start: Start, run: Run, stream: str) -> None:
    run("publish", stream, "a", "--create")
    reader = start("subscribe", stream, "--start", "earliest")
    assert line(reader.stdout) == "0\t\ta\n"
    reader.send_signal(signal.SIGINT)
    assert end(reader) == (130, "", "")


def test_publishing_from_a_silent_stdin_ends_by_ctrl_c(start: Start, run: Run, stream: str) -> None:
    run("streams", "create", stream)
    publisher = start("publish", stream, "-")
    assert publisher.stdin is not None
    publisher.stdin.write("a\n")
    publisher.stdin.flush()
    assert line(publisher.stdout) == f"0\t{stream}\n"  # the ack comes before the next line does
    publisher.send_signal(signal.SIGINT)
    assert publisher.wait(BOUND) == 130
    assert end(publisher) == (130, "", "")


def test_a_reader_that_goes_away_ends_the_command_quietly(
    start: Start, run: Run, stream: str
) -> None:
    value = "x" * 4096  # a hundred of them are more than a pipe takes unread
    run("publish", stream, *[value] * 100, "--create")
    reader = start("subscribe", stream, "--start", "earliest")
    assert line(reader.stdout) == f"0\t\t{value}\n"
    assert reader.stdout is not None
    reader.stdout.close()
    reader.stdout = None
    code, _, err = end(reader)
    assert (code, err) == (141, "")


async def test_a_server_that_does_not_speak_grpc_is_one_line(start: Start) -> None:
    async def greet(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-hello\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
        process = start("streams", "list", "--servers", address, "--timeout", "2s")
        code, out, err = await asyncio.to_thread(end, process)
    assert (code, out) == (1, "")
    assert address in err
    assert len(err.splitlines()) == 1

"""The end of long-running commands."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import IO

import pytest

from cli.conftest import BOUND, COMMAND, Run, Start, end, environment, finish
from liftbridge_aio._core.addresses import parse_address
from liftbridge_aio.cli.console import Console


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


@pytest.mark.parametrize("command", [("subscribe", "--start"), ("tail", "--from")])
def test_an_endless_reading_ends_when_nobody_reads_it(
    start: Start, run: Run, stream: str, command: tuple[str, str]
) -> None:
    """As behind `| head`: no other message has to come for that."""
    name, begin = command
    run("publish", stream, "a", "--create")
    reader = start(name, stream, begin, "earliest")
    assert reader.stdout is not None
    assert line(reader.stdout).endswith("\ta\n")
    reader.stdout.close()
    assert reader.wait(BOUND) == 141
    assert reader.stderr is not None
    assert reader.stderr.read() == ""


def test_publishing_from_a_silent_stdin_ends_by_ctrl_c(start: Start, run: Run, stream: str) -> None:
    run("streams", "create", stream)
    publisher = start("publish", stream, "-")
    assert publisher.stdin is not None
    publisher.stdin.write("a\n")
    publisher.stdin.flush()
    assert line(publisher.stdout) == f"0\t0\t{stream}\n"  # the ack comes before the next line does
    publisher.send_signal(signal.SIGINT)
    assert publisher.wait(BOUND) == 130
    assert end(publisher) == (130, "", "")


def test_a_reader_of_acks_that_goes_away_ends_publishing_quietly(
    start: Start, run: Run, stream: str
) -> None:
    run("streams", "create", stream)
    publisher = start("publish", stream, "-")
    assert publisher.stdin is not None
    assert publisher.stdout is not None
    publisher.stdin.write("a\n")
    publisher.stdin.flush()
    assert line(publisher.stdout) == f"0\t0\t{stream}\n"
    publisher.stdout.close()
    publisher.stdout = None
    publisher.stdin.write("a\n" * 2000)  # no more than a pipe takes unread
    publisher.stdin.flush()
    code, _, err = end(publisher)
    assert (code, err) == (141, "")


def test_an_error_in_the_middle_of_publishing_is_one_line(
    start: Start, run: Run, stream: str
) -> None:
    run("streams", "create", stream, "--optimistic-concurrency-control")
    values = ["a"] * 300
    code, out, err = end(start("publish", stream, *values, "--expected-offset", "5"))
    assert (code, out) == (1, "")
    assert stream in err
    assert len(err.splitlines()) == 1


@pytest.mark.parametrize(
    "words", [("demo", "--messages", "300"), ("streams", "list"), ("--help",), ("tail", "--help")]
)
def test_output_that_nobody_reads_is_exit_code_141(
    words: tuple[str, ...], broker_address: str
) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    try:
        result = finish(*COMMAND, *words, servers=broker_address, stdout=writing)
    finally:
        os.close(writing)
    assert (result.code, result.err) == (141, "")


@pytest.mark.parametrize("encoding", ["latin-1", "ascii"])
def test_what_the_encoding_of_stdout_lacks_is_escaped(
    run: Run, stream: str, broker_address: str, encoding: str
) -> None:
    value = "é日本😀"
    run("publish", stream, value, "--create")
    env = environment(broker_address) | {"PYTHONIOENCODING": encoding}
    words = [*COMMAND, "tail", stream, "--no-follow"]
    shown, as_json = (
        subprocess.check_output(words + flags, timeout=BOUND, env=env).decode(encoding)
        for flags in ([], ["--json"])
    )
    assert json.loads(as_json)["value"] == value
    assert value.encode(encoding, "backslashreplace").decode(encoding) in shown


@pytest.mark.parametrize(
    ("closed", "words"),
    [("stdout", ("tail", "s")), ("stdout", ("streams", "list")), ("stdin", ("publish", "s", "-"))],
)
def test_a_closed_stdin_or_stdout_is_one_line(
    closed: str, words: tuple[str, ...], broker_address: str
) -> None:
    call = {"stdout": '"$@" >&-', "stdin": '"$@" <&-'}[closed]
    result = finish("/bin/sh", "-c", call, "sh", *COMMAND, *words, servers=broker_address)
    assert (result.code, result.out) == (1, "")
    assert f"{closed} is closed" in result.err
    assert len(result.err.splitlines()) == 1


def test_a_table_that_nobody_reads_is_a_broken_pipe() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    file = os.fdopen(writing, "w")
    with pytest.raises(BrokenPipeError):
        Console(file=file).print("text")
    with contextlib.suppress(BrokenPipeError):  # what is left unwritten
        file.close()


INTERRUPTED_IMPORT = """
import runpy, signal, sys
def interrupt(event, arguments):
    if event == "import" and arguments[0] == "cyclopts" and "cyclopts" not in sys.modules:
        WAY
sys.addaudithook(interrupt)
runpy.run_module("liftbridge_aio", run_name="__main__", alter_sys=True)
"""


@pytest.mark.parametrize(
    "way",
    ["signal.raise_signal(signal.SIGINT)", "exec('signal.raise_signal(signal.SIGINT)')"],
    ids=["in code of a file", "in code made from text"],
)
def test_ctrl_c_while_the_command_line_is_imported_is_quiet(way: str, tmp_path: Path) -> None:
    (tmp_path / "interrupted.py").write_text(INTERRUPTED_IMPORT.replace("WAY", way))
    path = os.pathsep.join([str(tmp_path), *sys.path])
    result = finish(sys.executable, "-m", "interrupted", "streams", "list", PYTHONPATH=path)
    assert result == (130, "", "")


INTERRUPTED_START = """
import signal, sys
def interrupt(event, arguments):
    if event == "import" and arguments[0] == "MODULE" and "MODULE" not in sys.modules:
        signal.raise_signal(signal.SIGINT)
sys.addaudithook(interrupt)
"""
SCRIPT = "import sys\nfrom liftbridge_aio.__main__ import main\nsys.exit(main())\n"


@pytest.mark.parametrize(
    ("module", "installed"),
    [
        *((name, True) for name in ("asyncio", "cyclopts", "betterproto2", "grpclib")),
        *(("liftbridge_aio.model", installed) for installed in (True, False)),
    ],
)
def test_ctrl_c_while_the_package_is_imported_is_quiet(
    module: str, installed: bool, tmp_path: Path, broker_address: str
) -> None:
    """From the first of its modules on, and those that a command imports when it runs."""
    (tmp_path / "sitecustomize.py").write_text(INTERRUPTED_START.replace("MODULE", module))
    program = tmp_path / "liftbridge-aio"  # as pip writes it
    program.write_text(SCRIPT)
    command = (sys.executable, str(program)) if installed else COMMAND
    path = os.pathsep.join([str(tmp_path), *sys.path])
    result = finish(*command, "streams", "list", servers=broker_address, PYTHONPATH=path)
    assert result == (130, "", "")


def test_ctrl_c_while_a_program_imports_the_package_is_its_own(tmp_path: Path) -> None:
    (tmp_path / "sitecustomize.py").write_text(
        INTERRUPTED_START.replace("MODULE", "liftbridge_aio.model")
    )
    code = "try:\n import liftbridge_aio\nexcept KeyboardInterrupt:\n print('caught')"
    path = os.pathsep.join([str(tmp_path), *sys.path])
    assert finish(sys.executable, "-c", code, PYTHONPATH=path) == (0, "caught\n", "")


IMPORTS_IN_THE_LOOP = """
import asyncio, sys
late = []
def note(event, arguments):
    if event == "import" and asyncio._get_running_loop() is not None:
        late.append(arguments[0])
sys.addaudithook(note)
from liftbridge_aio.__main__ import main
code = main()
late = [name for name in late if not name.startswith(("concurrent.", "queue", "_queue"))]
print(*late, file=sys.stderr, end="")
sys.exit(code)
"""


@pytest.mark.parametrize(
    "words",
    [
        ("streams", "list"),
        ("publish", "late-imports", "a", "--create", "--json"),
        ("demo", "--messages", "100", "--cuts", "1"),
        ("metadata",),
        ("groups", "list"),
        ("tail", "__activity", "--no-follow"),
    ],
)
def test_nothing_is_imported_while_the_event_loop_waits(
    words: tuple[str, ...], broker_address: str
) -> None:
    command = (*COMMAND[:3], "-c", IMPORTS_IN_THE_LOOP, *words)
    result = finish(*command, servers=broker_address)
    assert (result.code, result.err) == (0, "")


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

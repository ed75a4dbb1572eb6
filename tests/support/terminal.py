"""A terminal for the commands of a page: it runs servers in the background."""

from __future__ import annotations

import shlex
import shutil
import signal
import socket
import subprocess
import sys
import time
from typing import Final

import pytest

from liftbridge_aio.cli import main
from support.servers.ports import free_ports

BROKER: Final = "127.0.0.1:9292"
"""The address of brokers in the pages."""
WEB_PORT: Final = "8000"
"""The port of web services in the pages."""
_ON_SPARK: Final = ("archive", "replay")
BOUND: Final = 20.0
"""Seconds for the start or the end of a server."""


class Terminal:
    """Runs commands; free ports replace those that they name."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._broker: subprocess.Popen[str] | None = None
        self._service: subprocess.Popen[str] | None = None
        [port] = free_ports(1)
        self._web_port = str(port)
        self.address = ""
        """The address of the broker that was started last."""

    def run(self, line: str) -> None:
        """Run a command, and check that it succeeds."""
        text = line.replace(BROKER, self.address).replace(WEB_PORT, self._web_port)
        program, *words = shlex.split(text.removeprefix(f"LIFTBRIDGE_SERVERS={self.address} "))
        if program == "liftbridge-aio" and words[0] == "broker":
            self._start_broker(words)
        elif program == "liftbridge-aio" and words[0] == "pipeline" and words[1] in _ON_SPARK:
            command = [sys.executable, "-m", "liftbridge_aio", *words]  # one Spark in a process
            subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        elif program == "liftbridge-aio" and words[0] == "gateway":
            self._start_service(["liftbridge_aio", *words])
        elif program == "liftbridge-aio":
            assert main(words) == 0, line
        elif program == "curl":
            _fetch(words)
        elif program == "python":
            self._start_service(words[1:])
        else:
            self._start_service([program, *words])

    def _start_broker(self, words: list[str]) -> None:
        _end(self._broker)
        port = BROKER.rpartition(":")[2]
        words = [word for word in words if word not in {"--port", port}]
        self._broker = _background("liftbridge_aio", *words, "--port", "0")
        assert self._broker.stdout is not None
        self.address = self._broker.stdout.readline().strip()
        self._monkeypatch.setenv("LIFTBRIDGE_SERVERS", self.address)

    def _start_service(self, words: list[str]) -> None:
        _end(self._service)
        assert self._web_port in words, "a command names its port, so that a free one replaces it"
        self._service = _background(*words)
        deadline = time.monotonic() + BOUND
        while not _listens(int(self._web_port)):
            assert self._service.poll() is None, f"it ended: {words}"
            assert time.monotonic() < deadline, f"it did not start: {words}"
            time.sleep(0.05)

    def close(self) -> None:
        """End the servers."""
        _end(self._service)
        _end(self._broker)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _background(module: str, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", module, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )


def _end(process: subprocess.Popen[str] | None) -> None:
    if process is not None:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=BOUND)


def _fetch(words: list[str]) -> None:
    """Run curl if it is installed, and end it at the first line of what has no end."""
    if shutil.which("curl") is None:
        pytest.skip("curl is not installed")
    command = ["curl", "--fail", "--silent", "--noproxy", "*", *words]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        if "--no-buffer" in words:
            assert process.stdout.readline(), words
            process.terminate()
        else:
            process.communicate(timeout=BOUND)
            assert process.returncode == 0, words

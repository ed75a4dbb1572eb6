"""The commands of the pages run from top to bottom, on the brokers that they start."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import trustme

from docs.test_pages import PAGES
from liftbridge_aio.cli import main
from support.markdown import blocks

PORT: Final = "9292"
BOUND: Final = 20.0
ELSEWHERE: Final = {
    "python3 -m pip": "installs what the tests have installed",
    "python3 -m venv": "as CI does it on every commit",
    ".venv/bin/nox": "as CI does it on every commit, or longer than tests may take",
    "liftbridge-aio demo": "as CI does it on every commit, by `nox -s demo`",
    "liftbridge-aio pipeline": "starts Spark, as tests/spark does with the same commands",
}
"""Commands that do not run here, by how they begin, and why."""


def lines(page: Path) -> list[str]:
    found = [line for block in blocks(page, "console") for line in block.code.splitlines()]
    return [line for line in found if not line.startswith(tuple(ELSEWHERE))]


class Terminal:
    """Runs commands, brokers in a process of their own."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._monkeypatch = monkeypatch
        self._broker: subprocess.Popen[str] | None = None
        self._address = ""

    def run(self, line: str) -> None:
        """Run a command; the ports of brokers become free ones."""
        program, *words = shlex.split(line.replace(f"127.0.0.1:{PORT}", self._address))
        assert program == "liftbridge-aio"
        if words[0] != "broker":
            assert main(words) == 0, line
            return
        self.close()
        words = [word for word in words if word not in {"--port", PORT}]
        self._broker = subprocess.Popen(
            [sys.executable, "-m", "liftbridge_aio", *words, "--port", "0"],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._broker.stdout is not None
        self._address = self._broker.stdout.readline().strip()
        self._monkeypatch.setenv("LIFTBRIDGE_SERVERS", self._address)

    def close(self) -> None:
        """End the broker."""
        if self._broker is not None:
            self._broker.send_signal(signal.SIGTERM)
            self._broker.communicate(timeout=BOUND)


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Terminal]:
    """A terminal in a folder that has certificates and keys."""
    authority = trustme.CA()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    for name, identity in (("server", "127.0.0.1"), ("ann", "ann")):
        issued = authority.issue_cert(identity, common_name=name)
        issued.cert_chain_pems[0].write_to_path(str(tmp_path / f"{name}.pem"))
        issued.private_key_pem.write_to_path(str(tmp_path / f"{name}-key.pem"))
    monkeypatch.chdir(tmp_path)
    terminal = Terminal(monkeypatch)
    with Path(os.devnull).open() as nothing:
        monkeypatch.setattr("sys.stdin", nothing)
        yield terminal
    terminal.close()


@pytest.mark.parametrize(
    "page", [page for page in PAGES if lines(page)], ids=lambda page: page.stem
)
def test_the_commands_of_a_page_run(page: Path, terminal: Terminal) -> None:
    for line in lines(page):
        terminal.run(line)

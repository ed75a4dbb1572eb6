"""The commands of the pages run from top to bottom, on the brokers that they start."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest
import trustme

from docs.test_pages import PAGES
from support.markdown import Block, blocks
from support.terminal import Terminal

ELSEWHERE: Final = {
    "python3 -m pip": "installs what the tests have installed",
    "python3 -m pytest test_shop.py": "tests/simulation runs its failing seed",
    "python3 -m venv": "as CI does it on every commit",
    "nox -s simulation": "as CI does it on every commit, or longer than tests may take",
    ".venv/bin/nox": "as CI does it on every commit, or longer than tests may take",
    "liftbridge-aio bridge": "needs other servers: tests/bridge runs those of the pages",
    "liftbridge-aio demo": "as CI does it on every commit, by `nox -s demo`",
    "liftbridge-aio pipeline archive": "starts Spark: tests/spark runs those of docs/spark.md",
    "liftbridge-aio pipeline check": "starts Spark: tests/spark analyses the file",
    "liftbridge-aio pipeline replay": "starts Spark: tests/spark runs those of docs/spark.md",
    "liftbridge-aio pipeline run": "starts Spark: tests/spark runs such a file",
}
"""Commands that do not run here, by how they begin, and why."""
RUN_HERE: Final = [page for page in PAGES if page.stem != "spark"]
SERVICES: Final = {"fastapi", "aiohttp"}
"""The setups of blocks that are the file `service.py` of the commands after them."""


def lines(block: Block) -> list[str]:
    return [line for line in block.code.splitlines() if not line.startswith(tuple(ELSEWHERE))]


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
    "page",
    [page for page in RUN_HERE if any(lines(block) for block in blocks(page, "console"))],
    ids=lambda page: page.stem,
)
def test_the_commands_of_a_page_run(page: Path, terminal: Terminal) -> None:
    services = [block for block in blocks(page, "python") if block.setup in SERVICES]
    for block in blocks(page, "console"):
        for service in services:
            if service.line < block.line:
                Path("service.py").write_text(service.code)
        for line in lines(block):
            terminal.run(line)

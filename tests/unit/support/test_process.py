"""Servers end with the test run, however that ends."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

BOUND: Final = 10.0
ABANDONS_A_SERVER: Final = """
import sys
from pathlib import Path
from support.servers.process import ServerProcess
process = ServerProcess(("/bin/sh", "-c", "echo $$; exec sleep 60"), Path(sys.argv[1]))
process.start()
print("started", flush=True)
sys.stdin.read()
"""


def wait_for(condition: Callable[[], object]) -> None:
    deadline = time.monotonic() + BOUND
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def is_alive(pid: int) -> bool:
    """Return True if the process runs; an ended one that is not reaped does not."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def test_a_server_does_not_outlive_a_run_that_was_killed(tmp_path: Path) -> None:
    run = subprocess.Popen(
        [sys.executable, "-c", ABANDONS_A_SERVER, tmp_path],
        env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    try:
        assert run.stdout is not None
        assert run.stdout.readline() == b"started\n"
        log = tmp_path / "server.log"
        wait_for(lambda: log.exists() and log.read_text().endswith("\n"))
        pid = int(log.read_text())
        assert is_alive(pid)
    finally:
        run.kill()
        run.communicate()

    wait_for(lambda: not is_alive(pid))

"""Data directories of brokers that are killed, and on disks that are full."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from liftbridge_aio.broker.storage.data_directory import DataDirectory, DataDirectoryError

DATA_PATHS = ["lane"]

ON_A_FULL_DISK = """
import asyncio, resource, signal, sys
from liftbridge_aio.broker import EmbeddedBroker

signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
resource.setrlimit(resource.RLIMIT_FSIZE, (10, 10))

async def main():
    broker = EmbeddedBroker(data_dir=sys.argv[1])
    try:
        await broker.start()
    except OSError as error:
        print(broker.state.value, error)

asyncio.run(main())
"""

HOLDER = """
import sys
from pathlib import Path
from liftbridge_aio.broker.storage.data_directory import DataDirectory
directory = DataDirectory(Path(sys.argv[1]))
directory.journal.append(b"entry")
print("ready", flush=True)
sys.stdin.read()
"""


def test_a_killed_broker_holds_no_lock(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HOLDER, str(tmp_path)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"ready\n"
        with pytest.raises(DataDirectoryError, match="in use by another broker"):
            DataDirectory(tmp_path)
        holder.kill()
        holder.wait(timeout=30)

    directory = DataDirectory(tmp_path)

    assert list(directory.journal.entries) == [b"entry"]
    directory.close()


@pytest.mark.skipif(sys.platform == "win32", reason="files cannot be limited there")
def test_a_full_disk_is_an_internal_error(tmp_path: Path) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", ON_A_FULL_DISK, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )

    assert ended.stdout.startswith("stopped cannot store the operation: ")

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
FRONT_DOOR = "from liftbridge_aio import Client"
HEAVY = {
    "anyio",
    "betterproto2",
    "cyclopts",
    "google.protobuf",
    "grpclib",
    "h2",
    "msgspec",
    "nats",
    "pydantic",
    "rich",
}
MOST = 0.250  # seconds of processor time over an empty interpreter, on a shared processor too

TIMED = f"""
import time
began = time.process_time()
{FRONT_DOOR}
print(time.process_time() - began)
"""


@pytest.fixture(scope="module")
def bytecode(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where fresh interpreters keep their bytecode, as installed packages do."""
    return tmp_path_factory.mktemp("bytecode")


def run(code: str, bytecode: Path) -> str:
    """Run code in a fresh interpreter."""
    environment = dict(os.environ)
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    environment["PYTHONPYCACHEPREFIX"] = str(bytecode)
    environment["PYTHONPATH"] = os.pathsep.join([str(ROOT), *filter(None, sys.path)])
    result = subprocess.run(
        [sys.executable, "-c", code],
        env=environment,
        capture_output=True,
        check=True,
        text=True,
        timeout=30,
    )
    return result.stdout


def test_the_front_door_imports_nothing_heavy(bytecode: Path) -> None:
    loaded = set(run(f"import sys\n{FRONT_DOOR}\nprint(*sys.modules)", bytecode).split())
    assert "liftbridge_aio._client.client" in loaded
    assert not HEAVY & loaded


def test_the_front_door_opens_quickly(
    bytecode: Path, record_property: Callable[[str, object], None]
) -> None:
    # Processor time of one run is enough: others take longer where the machine is busy.
    took = math.inf
    for _ in range(15):
        took = min(took, float(run(TIMED, bytecode)))
        if took < MOST:
            break
    record_property("import_seconds", took)
    print(f"importing the client takes {took * 1000:.0f} ms")  # noqa: T201 - shown with -rP
    assert took < MOST, f"importing the client takes {took * 1000:.0f} ms"


CREATES_AND_PLANS = """
import sys
from pyspark.sql.types import BinaryType, StructField, StructType
from liftbridge_aio.spark.source import LiftbridgeDataSource
source = LiftbridgeDataSource({"servers": "127.0.0.1:9292", "stream": "orders"})
source.schema()
source.streamWriter(StructType([StructField("value", BinaryType())]), False)
print(*sys.modules)
"""

MAKES_ROWS = """
import sys
from liftbridge_aio.spark.core.options import ExtraColumns
from liftbridge_aio.spark.read.record_batches import Chunk, record_batch
from liftbridge_aio.spark.read.schema import arrow_schema
keys, headers = [b"k", None], [[("a", b"b")], []]
chunk = Chunk("orders", 1, keys, [b"1", b""], [3, 4], [5, 6], headers, ["x"] * 2)
columns = ExtraColumns(headers=True, subject=True, timestamp_nanos=True)
assert record_batch(chunk, arrow_schema(columns)).num_rows == 2
print(*sys.modules)
"""


def test_spark_processes_import_what_they_use_only(bytecode: Path) -> None:
    """Each is a process of its own, and the first query waits for them, one after another."""
    pytest.importorskip("pyspark")
    loaded = set(run(CREATES_AND_PLANS, bytecode).split())
    assert "liftbridge_aio.spark.write.sink" in loaded
    assert not HEAVY - {"anyio"} & loaded
    loaded = set(run(MAKES_ROWS, bytecode).split())
    assert "pyarrow" in loaded
    assert not {"pandas", "pyarrow.compute"} & loaded

"""One Spark session for all tests, and servers that its worker processes reach meanwhile.

Tests that use the session are marked `spark` by that; `pytest -m spark` runs them, in one process,
as a session takes a gigabyte of memory.

The variable LIFTBRIDGE_SPARK chooses another Spark than that of `local[2,2]`: `cluster` (worker
processes of their own), `standalone` (a master and a worker, `spark://…`) or `connect`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from conftest import EMBEDDED, PINNED, _unavailable
from liftbridge_aio.spark.connection import close_connections
from support.spark.broker_thread import BrokerThread
from support.spark.halting_query import SMALL_BATCHES
from support.spark.log_client import LogClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KIND: Final = os.environ.get("LIFTBRIDGE_SPARK", "local")
EVERY_SERVER: Final = pytest.mark.parametrize("spark_broker", [EMBEDDED, PINNED], indirect=True)
"""Marks a test that is to hold on the embedded broker and on the real server."""

TEST_TIMEOUT: Final = 400
"""Seconds for one test; the first one starts Spark."""

SETTINGS: Final = {
    "spark.driver.memory": "1g",
    "spark.sql.shuffle.partitions": "2",
    # To compile code takes longer than to interpret it for a few rows.
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing."
        "FileSystemBasedCheckpointFileManager"
    ),
}


@pytest.hookimpl(tryfirst=True)  # before `-m` is looked at
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark what needs Spark, and give it time; what pyspark leaves open is not ours to close."""
    for item in items:
        if "spark" not in getattr(item, "fixturenames", ()):
            continue
        item.add_marker(pytest.mark.spark)
        item.add_marker(pytest.mark.xdist_group("spark"))  # one process has the one session
        if item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(TEST_TIMEOUT))


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A Spark session with the data source `liftbridge`, one for the whole run.

    Tasks run in worker processes, two at a time, and are tried twice. Streams of one test must not
    outlive it: end each with `awaitTermination` or `stop`.
    """
    if find_spec("pyspark") is None:
        _unavailable("no pyspark: pip install 'liftbridge-aio[spark]'")
    if KIND == "local":
        yield from _local_session(tmp_path_factory.mktemp("spark"))
    elif KIND == "connect":
        yield from _connect_session(tmp_path_factory.mktemp("spark"))
    else:
        yield from _cluster_session(tmp_path_factory.mktemp("spark"))


def _local_session(folder: Path) -> Iterator[SparkSession]:
    from liftbridge_aio.spark.session.local_session import local_session  # noqa: PLC0415

    with local_session("tests", folder, master="local[2,2]", settings=SETTINGS) as session:
        yield session


def _cluster_session(folder: Path) -> Iterator[SparkSession]:
    from liftbridge_aio.spark.session.local_session import local_session  # noqa: PLC0415
    from support.spark.spark_servers import standalone_cluster  # noqa: PLC0415

    with ExitStack() as stack:
        master = "local-cluster[2,1,1024]"
        if KIND == "standalone":
            master = stack.enter_context(standalone_cluster(folder / "servers"))
        session = local_session("tests", folder, master=master, settings=SETTINGS)
        yield stack.enter_context(session)


def _connect_session(folder: Path) -> Iterator[SparkSession]:
    from liftbridge_aio.spark import register  # noqa: PLC0415
    from support.spark.spark_servers import connect_session  # noqa: PLC0415

    with connect_session(folder, SETTINGS) as session:
        register(session)
        yield session


@pytest.fixture
def small_batches(spark: SparkSession) -> Iterator[SparkSession]:
    """The session, in which rows reach functions and sinks a few at a time."""
    before = {name: str(spark.conf.get(name)) for name in SMALL_BATCHES}
    for name, value in SMALL_BATCHES.items():
        spark.conf.set(name, value)
    yield spark
    for name, value in before.items():
        spark.conf.set(name, value)


@pytest.fixture(scope="session")
def _shared_broker() -> Iterator[BrokerThread]:
    with BrokerThread() as broker:
        yield broker


@pytest.fixture
def spark_broker(request: pytest.FixtureRequest) -> str:
    """The address of a broker that serves while the test waits for Spark.

    It is the embedded one, shared by all tests; `EVERY_SERVER` adds the real server.
    """
    if getattr(request, "param", EMBEDDED) == EMBEDDED:
        broker: BrokerThread = request.getfixturevalue("_shared_broker")
        return broker.address
    address: str = request.getfixturevalue("real_server").address
    return address


@pytest.fixture
def own_broker() -> Iterator[BrokerThread]:
    """An embedded broker of the test's own, to be stopped and started again."""
    with BrokerThread() as broker:
        yield broker


@pytest.fixture
def log(spark_broker: str) -> Iterator[LogClient]:
    """A client of `spark_broker` in plain calls."""
    with LogClient(spark_broker) as client:
        yield client


@pytest.fixture
def no_connections_left() -> Iterator[None]:
    """Closes the connections that tasks in this process share."""
    yield
    close_connections()


@pytest.fixture
def checkpoint(tmp_path: Path) -> str:
    """A directory for the checkpoint of one query; the same one for the same query again."""
    return str(tmp_path / "checkpoint")


@pytest.fixture
def forget_last_commit(checkpoint: str) -> Callable[[], int]:
    """Makes a stopped query run its last batch again, as after a crash before Spark noted its end.

    Returns the number of that batch.
    """

    def forget() -> int:
        commits = Path(checkpoint, "commits")
        last = max(int(file.name) for file in commits.iterdir() if file.name.isdecimal())
        (commits / str(last)).unlink()
        (commits / f".{last}.crc").unlink(missing_ok=True)
        return last

    return forget

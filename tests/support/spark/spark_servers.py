"""Spark in processes of its own: a standalone cluster, and a server for Spark Connect."""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pyspark

from liftbridge_aio.spark.session.local_session import spark_environment
from support.servers.ports import free_ports
from support.servers.process import ServerProcess

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

HOME: Final = Path(pyspark.__file__).parent
START_TIMEOUT: Final = 60.0
HOST: Final = "127.0.0.1"


@contextmanager
def standalone_cluster(folder: Path) -> Iterator[str]:
    """Run a master and one worker with two cores, and give the master's URL."""
    [port] = free_ports(1)
    url = f"spark://{HOST}:{port}"
    deploy = "org.apache.spark.deploy"
    local = ("--host", HOST, "--webui-port", "0")
    master = (f"{deploy}.master.Master", "--port", str(port), *local)
    sizes = ("--cores", "2", "--memory", "2g", "--work-dir", str(folder / "work"))
    worker = (f"{deploy}.worker.Worker", *sizes, *local, url)
    with _spark(folder, "master", "spark-class", *master) as first:
        _wait(first, lambda: _listens(port))
        with _spark(folder, "worker", "spark-class", *worker) as second:
            _wait(second, lambda: "Successfully registered with master" in second.log)
            yield url


@contextmanager
def connect_session(folder: Path, settings: dict[str, str]) -> Iterator[SparkSession]:
    """Run a server for Spark Connect, and give a session that knows it only from afar."""
    from pyspark.sql import SparkSession  # noqa: PLC0415

    [port] = free_ports(1)
    everything = {
        **settings,
        "spark.connect.grpc.binding.address": HOST,
        "spark.connect.grpc.binding.port": str(port),
        "spark.driver.bindAddress": HOST,
        "spark.driver.host": HOST,
        "spark.master": "local[2]",
        "spark.sql.session.timeZone": "UTC",
        "spark.ui.enabled": "false",
    }
    words = [word for key, value in everything.items() for word in ("--conf", f"{key}={value}")]
    server = ("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", *words)
    with _spark(folder, "connect", "spark-submit", *server, "spark-internal") as process:
        _wait(process, lambda: _listens(port))
        session = SparkSession.builder.remote(f"sc://{HOST}:{port}").getOrCreate()
        try:
            yield session
        finally:
            session.stop()


@contextmanager
def _spark(folder: Path, name: str, command: str, *words: str) -> Iterator[ServerProcess]:
    folder.mkdir(parents=True, exist_ok=True)
    environment = {**os.environ, **spark_environment(folder), "SPARK_HOME": str(HOME)}
    process = ServerProcess((HOME / "bin" / command, *words), folder, name, environment)
    process.start()
    try:
        yield process
    finally:
        process.stop()


def _listens(port: int) -> bool:
    with closing(socket.socket()) as probe:
        return probe.connect_ex((HOST, port)) == 0


def _wait(process: ServerProcess, ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + START_TIMEOUT
    while not ready():
        assert process.running, process.log
        assert time.monotonic() < deadline, process.log
        time.sleep(0.1)

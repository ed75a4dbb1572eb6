"""Kafka beside ours: Spark's connector for it, and a broker of one node, both from Maven.

A broker runs in KRaft mode, so there is nothing beside it. It keeps Kafka's own settings but for
what one node needs.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks.peers.environments import FOLDER
from benchmarks.serving import processes_in
from support.servers.ports import free_ports
from support.servers.process import ServerProcess

NAME: Final = "kafka"
BROKER: Final = ("org.apache.kafka:kafka_2.13:3.9.2",)
# Each alone, as Spark has the rest. The token provider is older because no newer one was to be had
# where this was written; without security none of it is used but two lookups of settings.
CONNECTOR: Final = (
    "org.apache.spark:spark-sql-kafka-0-10_2.13:4.2.0",
    "org.apache.spark:spark-token-provider-kafka-0-10_2.13:4.0.0",
    "org.apache.kafka:kafka-clients:3.9.2",
    "org.apache.commons:commons-pool2:2.12.1",
)
_TIMEOUT: Final = 600.0
_START_TIMEOUT: Final = 60.0
_HEAP: Final = "-Xmx1g"
_HOST: Final = "127.0.0.1"
_CLUSTER: Final = "bGlmdGJyaWRnZS1haW8tMQ"
_LONGEST: Final = 400

_POM: Final = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>benchmarks</groupId>
  <artifactId>jars</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <dependencies>{dependencies}</dependencies>
</project>
"""
_DEPENDENCY: Final = """
    <dependency>
      <groupId>{group}</groupId>
      <artifactId>{artifact}</artifactId>
      <version>{version}</version>{exclusions}
    </dependency>"""
_ALONE: Final = """
      <exclusions><exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion></exclusions>"""

_SETTINGS: Final = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{host}:{control}
listeners=PLAINTEXT://{host}:{port},CONTROLLER://{host}:{control}
advertised.listeners=PLAINTEXT://{host}:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={data}
offsets.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
auto.create.topics.enable=false
"""


class KafkaUnavailable(Exception):
    """Kafka or its connector cannot be had or run here; the text says why."""


@dataclass(frozen=True, slots=True)
class RunningKafka:
    """A broker that takes calls.

    Attributes:
        address: `host:port`.
        pids: Its process.
    """

    address: str
    pids: tuple[int, ...]

    def reading(self, topic: str, **more: object) -> dict[str, str]:
        """Options of Spark's source."""
        texts = {name: str(value) for name, value in more.items()}
        return {**self._both, "subscribe": topic, "startingOffsets": "earliest", **texts}

    def writing(self, topic: str) -> dict[str, str]:
        """Options of Spark's sink; it waits for all replicas in sync, as ours does."""
        return {**self._both, "topic": topic, "kafka.acks": "all"}

    @property
    def _both(self) -> Mapping[str, str]:
        return {"kafka.bootstrap.servers": self.address}


def connector() -> tuple[Path, ...]:
    """The jars that Spark needs, fetched once.

    Raises:
        KafkaUnavailable: Maven is missing, or did not find them.
    """
    return _jars("kafka-connector", CONNECTOR, alone=True)


@contextmanager
def running_kafka(folder: Path) -> Iterator[RunningKafka]:
    """Run a broker until the block is left.

    Args:
        folder: For its settings, log and data.

    Raises:
        KafkaUnavailable: It cannot be had, or was not ready in time.
    """
    jars = _jars("kafka-broker", BROKER, alone=False)
    port, control = free_ports(2)
    settings = folder / "kafka.properties"
    settings.write_text(
        _SETTINGS.format(host=_HOST, port=port, control=control, data=folder / "kafka")
    )
    cluster = ("-t", _CLUSTER, "-c", str(settings))
    _run((*_java(jars), "kafka.tools.StorageTool", "format", *cluster))
    process = ServerProcess((*_java(jars), "kafka.Kafka", str(settings)), folder, "kafka")
    process.start()
    try:
        _wait(process, port)
        yield RunningKafka(f"{_HOST}:{port}", processes_in(folder))
    finally:
        process.kill()


def _wait(process: ServerProcess, port: int) -> None:
    deadline = time.monotonic() + _START_TIMEOUT
    while True:
        with closing(socket.socket()) as probe:
            if probe.connect_ex((_HOST, port)) == 0:
                return
        if not process.running or time.monotonic() > deadline:
            raise KafkaUnavailable(f"Kafka was not ready: {process.log[-_LONGEST:]}")
        time.sleep(0.2)


def _java(jars: Sequence[Path]) -> tuple[str, ...]:
    # Maven needs one, too, so there is one.
    return ("java", _HEAP, "-cp", os.pathsep.join(map(str, jars)))


def _jars(name: str, artifacts: Sequence[str], *, alone: bool) -> tuple[Path, ...]:
    """Have Maven fetch artifacts, unless they are there."""
    pom = _pom(artifacts, alone=alone)
    folder = FOLDER / f"{name}-{hashlib.sha256(pom.encode()).hexdigest()[:12]}"
    if not folder.exists():
        maven = shutil.which("mvn")
        if maven is None:
            raise KafkaUnavailable("Kafka comes from Maven, and there is no mvn")
        FOLDER.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=FOLDER) as work:
            (Path(work) / "pom.xml").write_text(pom)
            jars = Path(work) / "jars"
            goal = ("dependency:copy-dependencies", "-DincludeScope=runtime")
            _run((maven, "-B", "-q", "-f", work, *goal, f"-DoutputDirectory={jars}"))
            jars.rename(folder)
    return tuple(sorted(folder.glob("*.jar")))


def _pom(artifacts: Sequence[str], *, alone: bool) -> str:
    dependencies = []
    for each in artifacts:
        group, artifact, version = each.split(":")
        dependencies.append(
            _DEPENDENCY.format(
                group=group, artifact=artifact, version=version, exclusions=_ALONE if alone else ""
            )
        )
    return _POM.format(dependencies="".join(dependencies))


def _run(words: Sequence[str]) -> None:
    try:
        done = subprocess.run(  # noqa: S603 - no shell, and our own words
            words,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            check=False,
            text=True,
            timeout=_TIMEOUT,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise KafkaUnavailable(f"Kafka cannot be had: {error}") from error
    if done.returncode:
        said = (done.stdout + done.stderr).strip()
        raise KafkaUnavailable(f"Kafka cannot be had: {said[:_LONGEST]}")

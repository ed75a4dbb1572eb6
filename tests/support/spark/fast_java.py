"""Start Java fast: its classes come from an archive, and its compiler does not optimise long."""

from __future__ import annotations

import fcntl
import hashlib
import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path
from typing import Final

from liftbridge_aio.spark.session import local_session
from liftbridge_aio.spark.session.java_home import JavaNotFound
from support.servers.build import BIN

VARIABLE: Final = "JAVA_TOOL_OPTIONS"
OPTIONS: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -Xlog:disable"
"""Without its log: it would warn of programs of other classes, on stdout."""
BOUND: Final = 400.0


def start_java_fast(*, write_archive: bool) -> None:
    """Set the options of every Java that this process and its children start.

    With an archive of the classes that Spark loads, a session takes half of the time to start.
    Writing it takes as long as some starts; it is kept. Without pyspark or Java nothing is done,
    and tests say what is missing.
    """
    if find_spec("pyspark") is None:
        return
    from pyspark import __version__ as spark  # noqa: PLC0415

    os.environ.pop(VARIABLE, None)  # Java would tell of it beside its version
    with tempfile.TemporaryDirectory() as scratch:
        try:
            environment = {**os.environ, **local_session.spark_environment(Path(scratch))}
        except JavaNotFound:
            return
        home = environment.get("JAVA_HOME")
        java = "java" if home is None else str(Path(home, "bin", "java"))
        about = subprocess.run(
            [java, "-version"], env=environment, capture_output=True, check=True, timeout=BOUND
        )
    name = hashlib.sha256(about.stderr + spark.encode()).hexdigest()[:12]
    archive = BIN / f"spark-classes-{name}.jsa"
    BIN.mkdir(exist_ok=True)
    with (BIN / ".spark-lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if write_archive and not archive.exists():
            unfinished = archive.with_suffix(".unfinished")
            options = f"{OPTIONS} -XX:ArchiveClassesAtExit={unfinished}"
            subprocess.run(
                [sys.executable, __file__],
                env={**os.environ, VARIABLE: options, "PYTHONPATH": os.pathsep.join(sys.path)},
                check=False,
                capture_output=True,
                timeout=BOUND,
            )
            unfinished.touch()  # Java ignores an empty archive, where it cannot write one
            unfinished.replace(archive)
    os.environ[VARIABLE] = (
        f"{OPTIONS} -XX:SharedArchiveFile={archive}" if archive.exists() else OPTIONS
    )


def load_classes(folder: Path) -> None:
    """Use Spark as tests do, so that it loads what they need."""
    # It writes the archive when it ends.
    local_session._STOP_TIMEOUT = BOUND  # type: ignore[misc]
    with local_session.local_session("classes", folder, master="local[2]") as session:
        table, state = str(folder / "table"), str(folder / "state")
        rows = session.createDataFrame([(1, "a"), (2, "b")], ["number", "word"])
        rows.groupBy("word").count().write.partitionBy("word").parquet(table)
        copied = session.readStream.schema("count LONG, word STRING").parquet(table)
        counted = copied.groupBy("word").count().writeStream.outputMode("complete")
        query = counted.format("memory").queryName("counted").trigger(availableNow=True)
        query.option("checkpointLocation", state).start().awaitTermination()
        assert session.table("counted").count() > 0


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as name_of_folder:
        load_classes(Path(name_of_folder))

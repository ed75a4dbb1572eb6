"""Run a Spark session in this process, with all that it needs, and remove all that it leaves.

For the pipelines of the command line and for tests; programs use their own sessions.
"""

from __future__ import annotations

import logging
import os
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from liftbridge_aio.errors import LiftbridgeError

from .java_home import java_environment

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_SETTINGS: Final = {
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.log.level": "ERROR",
    "spark.sql.catalogImplementation": "in-memory",
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.streaming.stopTimeout": "20s",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
_LOG_TAIL: Final = 2000
_STOP_TIMEOUT: Final = 20.0
"""Seconds that the Java process gets to end before it is killed."""

logger = logging.getLogger("liftbridge_aio.spark")

# Spark puts its sources on PYTHONPATH as a zip without bytecode, which each worker process would
# compile again, for seconds. The installed package has the same sources, compiled.
_WORKER_PYTHON: Final = """\
#!/bin/sh
set -f
kept=
IFS=:
for entry in $PYTHONPATH; do
    case $entry in
        */pyspark.zip | */py4j-*-src.zip) ;;
        *) kept=${{kept:+$kept:}}$entry ;;
    esac
done
unset IFS
PYTHONPATH=$kept exec {python} "$@"
"""


class SparkDidNotStart(LiftbridgeError):
    """Spark failed to start; the text has the end of its log."""


@contextmanager
def local_session(
    name: str,
    folder: Path,
    *,
    master: str = "local[*]",
    settings: Mapping[str, str] | None = None,
) -> Iterator[SparkSession]:
    """Run Spark in this process, with the data source `liftbridge` registered.

    It listens on the loopback address only, uses time zone UTC, and this Python for its workers.
    It writes its log to `spark.log` in the folder. Leaving the context ends the session and its
    Java process.

    Blocks the calling thread. Ctrl-C raises in the main thread as it always does only if this is
    another thread: in the main thread Spark takes it over.

    Args:
        name: shown by Spark's own tools.
        folder: for everything that Spark writes; it may be deleted when the session has ended.
        master: where tasks run; `local[2]` is two at a time.
        settings: further `spark.…` settings; they override those made here.

    Raises:
        JavaNotFound: there is no Java to run Spark on.
        SparkDidNotStart: Spark failed to start.
    """
    from liftbridge_aio.spark import register  # noqa: PLC0415 - circular

    folder = folder.resolve()
    folder.mkdir(parents=True, exist_ok=True)
    variables = spark_environment(folder)
    everything = {
        **_SETTINGS,
        "spark.app.name": name,
        "spark.local.dir": str(folder / "local"),
        "spark.master": master,
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        **(settings or {}),
    }
    with (folder / "spark.log").open("ab") as log:
        gateway = _launch(everything, variables, log)
        try:
            session = _connect(gateway, everything, variables)
            _log_accumulator_errors(session)
            _keep_errors_off_the_terminal()
            try:
                register(session)
                yield session
            finally:
                session.stop()
        finally:
            _end(gateway)


def spark_environment(folder: Path) -> dict[str, str]:
    """Return the environment variables with which Spark finds a Java and this Python.

    Args:
        folder: where small scripts are written; it must exist as long as Spark runs.

    Raises:
        JavaNotFound: there is no Java to run Spark on.
    """
    python = _write_worker_python(folder)
    return {
        "PYSPARK_PYTHON": python,
        "PYSPARK_DRIVER_PYTHON": python,
        "SPARK_LOCAL_IP": "127.0.0.1",
        **java_environment(folder),
    }


def log_tail(folder: Path) -> str:
    """Return the end of the log of a session that runs or ran in a folder."""
    log = folder / "spark.log"
    return log.read_text(errors="replace")[-_LOG_TAIL:].strip() if log.exists() else ""


def _write_worker_python(folder: Path) -> str:
    if os.name == "nt":
        return sys.executable
    script = folder / "python"
    script.write_text(_WORKER_PYTHON.format(python=shlex.quote(sys.executable)))
    script.chmod(0o755)
    return str(script)


def _launch(settings: Mapping[str, str], variables: Mapping[str, str], log: Any) -> Any:
    """Start the Java process, with the SPARK_HOME of this pyspark."""
    from pyspark import SparkConf  # noqa: PLC0415 - optional
    from pyspark.errors import PySparkRuntimeError  # noqa: PLC0415 - optional
    from pyspark.java_gateway import launch_gateway  # noqa: PLC0415 - optional

    conf = SparkConf(loadDefaults=False).setAll(list(settings.items()))
    with _environment(variables, without=("SPARK_HOME", "SPARK_CONF_DIR", "PYSPARK_SUBMIT_ARGS")):
        try:
            return launch_gateway(conf, {"stdout": log, "stderr": log})  # type: ignore[no-untyped-call]
        except (PySparkRuntimeError, OSError) as error:
            raise SparkDidNotStart(
                f"Spark did not start: {error}\n{log_tail(Path(log.name).parent)}"
            ) from error


def _connect(
    gateway: Any, settings: Mapping[str, str], variables: Mapping[str, str]
) -> SparkSession:
    from pyspark import SparkConf, SparkContext  # noqa: PLC0415 - optional
    from pyspark.sql import SparkSession  # noqa: PLC0415 - optional

    with _environment(variables):
        conf = SparkConf(_jvm=gateway.jvm).setAll(list(settings.items()))
        return SparkSession(SparkContext(gateway=gateway, conf=conf))


def _log_accumulator_errors(session: SparkSession) -> None:
    """Log errors of pyspark's accumulator server, which prints them to the terminal otherwise.

    There is one when Java closes their connection first, as it may at the end.
    """
    server: Any = session.sparkContext._accumulatorServer  # noqa: SLF001

    def log_error(request: object, client_address: object) -> None:  # noqa: ARG001 - socketserver's signature
        logger.debug("pyspark's accumulator server lost the connection to Java", exc_info=True)  # noqa: LOG014 - called in an except clause

    server.handle_error = log_error


def _keep_errors_off_the_terminal() -> None:
    """Disable loggers of pyspark that print each error that it raises, with its trace in Java."""
    from pyspark.logger import PySparkLogger  # noqa: PLC0415 - optional

    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
        PySparkLogger.getLogger(name).disabled = True


def _end(gateway: Any) -> None:
    """End the Java process by closing its stdin; kill it if it does not end."""
    from pyspark import SparkContext  # noqa: PLC0415 - optional

    gateway.shutdown()
    process: subprocess.Popen[bytes] = gateway.proc
    if process.stdin is not None:
        process.stdin.close()
    try:
        process.wait(_STOP_TIMEOUT)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait(_STOP_TIMEOUT)
    # Otherwise the next session of this process would use the ended process.
    SparkContext._gateway = None  # noqa: SLF001
    SparkContext._jvm = None  # noqa: SLF001


@contextmanager
def _environment(variables: Mapping[str, str], without: tuple[str, ...] = ()) -> Iterator[None]:
    """Change the environment of this process within the context, in which Spark starts."""
    before = {name: os.environ.get(name) for name in (*variables, *without)}
    for name in without:
        os.environ.pop(name, None)
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value

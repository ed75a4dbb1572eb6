"""The process in which Spark runs, and what it is asked to do."""

from __future__ import annotations

import json
import queue
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any, Final

from benchmarks.own_programs import environment, module

_PROGRAM: Final = "benchmarks.spark.program"
_START_TIMEOUT: Final = 120.0
_END_TIMEOUT: Final = 40.0
_LONGEST: Final = 600


class SparkFailed(Exception):
    """Spark did not start, or did not do a job; the text says why."""


class SparkSessionProcess:
    """Spark in a process of its own; made by `spark_session`.

    Attributes:
        versions: What it runs on.
        folder: For checkpoints and the like; goes with the session.
    """

    def __init__(self, stdin: IO[str], stdout: IO[str], folder: Path) -> None:
        self._stdin = stdin
        self._answers: queue.Queue[str] = queue.Queue()
        self.folder = folder
        threading.Thread(target=self._take_answers, args=(stdout,), daemon=True).start()
        self.versions: dict[str, str] = self._answer(_START_TIMEOUT)

    def do(self, job: Mapping[str, Any], timeout: float) -> dict[str, Any]:
        """Have a job done, and return its figures.

        Args:
            job: See `jobs`.
            timeout: Seconds until it counts as failed.

        Raises:
            SparkFailed: It was not done.
        """
        try:
            self._stdin.write(json.dumps(job) + "\n")
            self._stdin.flush()
        except OSError as error:
            raise SparkFailed(self._ended()) from error
        return self._answer(timeout)

    def _answer(self, timeout: float) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=timeout)
        except queue.Empty:
            raise SparkFailed(f"Spark was not done within {timeout:.0f} s") from None
        if not line:
            raise SparkFailed(self._ended())
        figures: dict[str, Any] = json.loads(line)
        if "failed" in figures:
            raise SparkFailed(figures["failed"].strip()[-_LONGEST:])
        return figures

    def _take_answers(self, stdout: IO[str]) -> None:
        for line in stdout:
            self._answers.put(line)
        self._answers.put("")

    def _ended(self) -> str:
        said = (self.folder / "stderr").read_text(errors="replace").strip()
        return f"Spark has ended: {said[-_LONGEST:]}"


@contextmanager
def spark_session(cores: int, jars: Sequence[Path] = ()) -> Iterator[SparkSessionProcess]:
    """Run Spark until the block is left.

    Args:
        cores: How many tasks run at a time.
        jars: What it needs beside its own.

    Raises:
        SparkFailed: It did not start.
    """
    with tempfile.TemporaryDirectory(prefix="benchmarks-") as name:
        folder = Path(name).resolve()
        words = (*module(_PROGRAM), str(folder), str(cores), *map(str, jars))
        with (folder / "stderr").open("w") as stderr, _opened(words, stderr) as (stdin, stdout):
            yield SparkSessionProcess(stdin, stdout, folder)


@contextmanager
def _opened(words: Sequence[str], stderr: IO[str]) -> Iterator[tuple[IO[str], IO[str]]]:
    with subprocess.Popen(  # noqa: S603 - no shell, and our own words
        words,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
        env=environment(),
        # Ctrl-C is for who asked: Spark ends when its stdin does, and takes its workers along.
        start_new_session=True,
    ) as process:
        stdin, stdout = _pipe(process.stdin), _pipe(process.stdout)
        try:
            yield stdin, stdout
        finally:
            with suppress(OSError):  # it has ended by itself
                stdin.close()
            try:
                process.wait(_END_TIMEOUT)
            except subprocess.TimeoutExpired:
                process.kill()


def _pipe(stream: IO[str] | None) -> IO[str]:
    if stream is None:
        raise ValueError("the process was started without this pipe")
    return stream

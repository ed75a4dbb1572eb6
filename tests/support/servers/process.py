"""A server in a process of its own, which ends with the test run however that ends."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

STOP_TIMEOUT: Final = 8.0

# Waits until the test run has closed its end of the pipe, or is gone, and then ends the server.
_GUARD: Final = 'read -r _; kill -KILL "$1"'


class DidNotStart(Exception):
    """The process ended or was not ready in time; the text has the end of its log."""


class HasProcess:
    """A server that may have been started.

    Attributes:
        process: Its process, since its first start.
    """

    __slots__ = ()
    process: ServerProcess | None

    @property
    def running(self) -> bool:
        """True while its process runs."""
        return self.process is not None and self.process.running

    def stop(self) -> None:
        """End it in order."""
        if self.process is not None:
            self.process.stop()

    def kill(self) -> None:
        """End it at once, as a crash does."""
        if self.process is not None:
            self.process.kill()


@dataclass(slots=True)
class ServerProcess:
    """A server's process, over all its starts: one at a time.

    All methods block, briefly.

    Attributes:
        command: What to run, with its arguments.
        folder: Where it runs and keeps its log.
        name: Its log is `<name>.log`.
        environment: All its variables; by default those of this process.
    """

    command: tuple[str | Path, ...]
    folder: Path
    name: str = "server"
    environment: Mapping[str, str] = field(default_factory=lambda: dict(os.environ))
    _process: subprocess.Popen[bytes] | None = None
    _guard: subprocess.Popen[bytes] | None = None

    @property
    def running(self) -> bool:
        """True if the process is alive, frozen or not."""
        return self._process is not None and self._process.poll() is None

    @property
    def log(self) -> str:
        """All that it has printed, over all its starts."""
        path = self._log_path
        return path.read_text(errors="replace") if path.exists() else ""

    @property
    def _log_path(self) -> Path:
        return self.folder / f"{self.name}.log"

    def start(self) -> None:
        """Start it, unless it runs."""
        if self.running:
            return
        self.kill()
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                self.command,
                cwd=self.folder,
                env=self.environment,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        try:
            self._guard = subprocess.Popen(
                ["/bin/sh", "-c", _GUARD, "guard", str(self._process.pid)],
                stdin=subprocess.PIPE,
                start_new_session=True,
            )
        except BaseException:
            self.kill()
            raise

    def start_until(self, is_ready: Callable[[], bool], bound: float) -> None:
        """Start it and wait until it is ready.

        Raises:
            DidNotStart: It ended, or was not ready within so many seconds.
        """
        self.start()
        deadline = time.monotonic() + bound
        while not is_ready():
            if not self.running or time.monotonic() > deadline:
                self.kill()
                raise DidNotStart(f"{self.name} did not start:\n{self.log[-2000:]}")
            time.sleep(0.02)

    def start_until_told(self, text: str, bound: float) -> None:
        """Start it and wait until it has printed a text, as `start_until` does."""
        seen = self.log.count(text)
        self.start_until(lambda: self.log.count(text) > seen, bound)

    def stop(self, timeout: float = STOP_TIMEOUT) -> None:
        """End it in order (SIGINT), or by force if that takes over `timeout` seconds."""
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGCONT)
            self._process.send_signal(signal.SIGINT)
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(timeout)
        self.kill()

    def interrupt(self) -> None:
        """Tell it to end, as Ctrl-C does, and wait for nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)

    def kill(self) -> None:
        """End it at once, as a crash does (SIGKILL)."""
        if self._guard is not None:
            # It goes first: the id of a process that has been waited for may belong to another.
            self._guard.kill()
            self._guard.communicate()
            self._guard = None
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Stop it from running without ending it (SIGSTOP): its connections stay open.

        Returns when it has stopped, which is some moments after the signal, or has ended.
        """
        if self._process is not None and self.running:
            self._process.send_signal(signal.SIGSTOP)
            os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def thaw(self) -> None:
        """Let it run again after `freeze` (SIGCONT)."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

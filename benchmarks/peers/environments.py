"""Environments of the compared clients: a built program, or Python with its packages.

Each is made once, under `benchmarks/.environments`, from pinned versions, and made anew when what
it is made from changes.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from benchmarks import ROOT
from support.servers.build import ServerUnavailable, build

HERE: Final = Path(__file__).resolve().parent
FOLDER: Final = ROOT / "benchmarks" / ".environments"
GO_MODULE: Final = HERE / "go_liftbridge"
PROTO: Final = ROOT / "protos" / "liftbridge.proto"
TIMEOUT: Final = 600.0


class EnvironmentUnavailable(Exception):
    """A client cannot be had here; the text says why."""


@dataclass(frozen=True, slots=True)
class GoProgram:
    """A program of our Go module, which pins the versions.

    Attributes:
        name: Of the program.
        package: As Go calls it, seen from the module.
    """

    name: str
    package: str

    @property
    def folder(self) -> Path:
        """Path at which it is, or will be."""
        sources = sorted(path for path in GO_MODULE.rglob("*") if path.is_file())
        inputs = (
            f"{path.relative_to(GO_MODULE)}\n".encode() + path.read_bytes() for path in sources
        )
        return _folder(self.name, inputs)

    @property
    def command(self) -> list[str]:
        """Command that runs it."""
        return [str(self.folder / self.name)]

    def prepare(self) -> None:
        """Build it, unless it is there.

        Raises:
            EnvironmentUnavailable: There is no Go, or the build failed.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            build(self.package, self.folder / self.name, GO_MODULE)
        except ServerUnavailable as reason:
            raise EnvironmentUnavailable(f"{self.name}: {reason}") from reason


@dataclass(frozen=True, slots=True)
class PythonEnvironment:
    """A virtual environment of the Python that runs this.

    Attributes:
        name: Of the environment.
        requirements: What is installed, with pinned versions.
        messages: Whether it has the messages of the API as protoc makes them.
    """

    name: str
    requirements: tuple[str, ...]
    messages: bool = False

    @property
    def folder(self) -> Path:
        """Path at which it is, or will be."""
        inputs = [sys.version, sysconfig.get_platform(), *self.requirements]
        if self.messages:
            inputs.append(PROTO.read_text())
        return _folder(self.name, (line.encode() for line in inputs))

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def is_complete(self) -> bool:
        """True if it is complete, and the Python that it was made from still exists."""
        return self._mark.exists() and self.python.exists()

    @property
    def _mark(self) -> Path:
        return self.folder / "complete"

    def prepare(self) -> None:
        """Make it, unless it is there.

        Raises:
            EnvironmentUnavailable: A package cannot be installed.
        """
        with _only_one(self.name):
            if self.is_complete:
                return
            shutil.rmtree(self.folder, ignore_errors=True)
            self._run(sys.executable, "-m", "venv", self.folder)
            self._run(self.python, "-m", "pip", "install", "--quiet", *self.requirements)
            if self.messages:
                self._make_messages()
            self._mark.touch()

    def _make_messages(self) -> None:
        paths = {"base": str(self.folder), "platbase": str(self.folder)}
        output = sysconfig.get_path("purelib", scheme="venv", vars=paths)
        self._run(
            *(self.python, "-m", "grpc_tools.protoc", f"--proto_path={PROTO.parent}"),
            *(f"--python_out={output}", f"--grpc_python_out={output}", PROTO.name),
        )

    def _run(self, *command: str | Path) -> None:
        try:
            subprocess.run(  # noqa: S603 - no shell, and our own words
                command, check=True, capture_output=True, text=True, timeout=TIMEOUT
            )
        except subprocess.CalledProcessError as error:
            said = (error.stderr or error.stdout)[-1000:]
            raise EnvironmentUnavailable(f"{self.name} cannot be installed:\n{said}") from error
        except subprocess.TimeoutExpired as error:
            raise EnvironmentUnavailable(
                f"{self.name} was not installed within {TIMEOUT:.0f} s"
            ) from error


@dataclass(frozen=True, slots=True)
class PythonProgram:
    """A module of this folder, run by an environment that has its client.

    It finds itself by the repository in PYTHONPATH, or as the current directory.
    """

    environment: PythonEnvironment
    module: str

    @property
    def command(self) -> list[str]:
        """Command that runs it."""
        return [str(self.environment.python), "-m", f"{__package__}.{self.module}"]

    def prepare(self) -> None:
        """Make its environment, unless it is there.

        Raises:
            EnvironmentUnavailable: A package cannot be installed.
        """
        self.environment.prepare()


_GRPCIO: Final = "grpcio==1.85.1"
_PROTOBUF: Final = "protobuf==7.36.2"
_PLAIN: Final = PythonEnvironment(
    "grpcio", (_GRPCIO, _PROTOBUF, "grpcio-tools==1.85.1"), messages=True
)
# Its messages were made by a protoc that later runtimes refuse.
_PYTHON_LIFTBRIDGE: Final = PythonEnvironment(
    "python-liftbridge", ("python-liftbridge==0.0.7", _GRPCIO, "protobuf==3.20.3")
)
_GUFO: Final = PythonEnvironment("gufo-liftbridge", ("gufo-liftbridge==0.2.0", _GRPCIO, _PROTOBUF))

PEERS: Final[dict[str, GoProgram | PythonProgram]] = {
    "go-liftbridge": GoProgram("go-liftbridge", "."),
    "grpc-go": GoProgram("grpc-go", "./plain_grpc"),
    "python-liftbridge": PythonProgram(_PYTHON_LIFTBRIDGE, "python_liftbridge"),
    "gufo-liftbridge": PythonProgram(_GUFO, "gufo"),
    "grpcio": PythonProgram(_PLAIN, "grpcio_plain"),
    "grpcio-aio": PythonProgram(_PLAIN, "grpcio_aio"),
}
"""The clients that ours is compared with, by name."""


NSQ_PEERS: Final[dict[str, GoProgram | PythonProgram]] = {
    "go-nsq": GoProgram("go-nsq", "./go_nsq"),
    "pynsq": PythonProgram(
        PythonEnvironment("pynsq", ("pynsq==0.9.1", "tornado==6.5.2")), "nsq_pynsq"
    ),
    "gnsq": PythonProgram(PythonEnvironment("gnsq", ("gnsq==1.0.2", "gevent==25.9.1")), "nsq_gnsq"),
    "ansq": PythonProgram(PythonEnvironment("ansq", ("ansq==0.3.0",)), "nsq_ansq"),
}
"""Clients of NSQ that ours is compared with, by name."""

STAN_PEERS: Final[dict[str, GoProgram | PythonProgram]] = {
    "stan.go": GoProgram("stan.go", "./go_stan"),
    "stan.py": PythonProgram(
        PythonEnvironment(
            "stan.py",
            # Its messages were made by a protoc that later runtimes refuse.
            ("asyncio-nats-streaming==0.4.0", "asyncio-nats-client==0.11.5", "protobuf==3.20.3"),
        ),
        "stan_py",
    ),
}
"""Clients of NATS Streaming that ours is compared with, by name."""

_DURABLE_STREAMS: Final = PythonEnvironment(
    "durable-streams", ("durable-streams==0.1.0", "httpx==0.28.1")
)
DURABLE_STREAMS_PEERS: Final[dict[str, GoProgram | PythonProgram]] = {
    "durable-streams": PythonProgram(_DURABLE_STREAMS, "durable_streams_official"),
    "httpx2": PythonProgram(
        PythonEnvironment("httpx2", ("httpx2==2.16.2",)), "durable_streams_httpx2"
    ),
    "aiohttp": PythonProgram(
        PythonEnvironment("aiohttp", ("aiohttp==3.14.5",)), "durable_streams_aiohttp"
    ),
}
"""Clients of Durable Streams that ours is compared with, by name; two are bare HTTP clients."""


def prepare(peer: str) -> list[str]:
    """Make what a client needs, unless it is there, and tell the command that runs its program.

    Blocks, the first time for a minute or so; two processes that come here at once wait for each
    other.

    Args:
        peer: One of `PEERS`, or `ours`.

    Raises:
        EnvironmentUnavailable: The client cannot be had here, or there is none of that name.
    """
    if peer == "ours":
        return [sys.executable, "-m", f"{__package__}.ours"]
    if peer not in PEERS:
        raise EnvironmentUnavailable(
            f"there is no client {peer!r}; there are {', '.join(PEERS)} and ours"
        )
    program = PEERS[peer]
    program.prepare()
    return program.command


def _folder(name: str, inputs: Iterable[bytes]) -> Path:
    digest = hashlib.sha256()
    for each in inputs:
        digest.update(len(each).to_bytes(8, "big") + each)
    return FOLDER / f"{name}-{digest.hexdigest()[:12]}"


@contextmanager
def _only_one(name: str) -> Iterator[None]:
    FOLDER.mkdir(parents=True, exist_ok=True)
    with (FOLDER / f"{name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield

"""Parts shared by the Python programs: arguments, watch, line of JSON at the end.

Nothing but the standard library is imported, as each program runs in an environment of its own.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import platform
import resource
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

WARM_UP: Final = 2_000
"""Messages that are published before the measured window begins."""

RANKS: Final = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}


class Unsupported(Exception):
    """The client cannot do what was asked for; the text says why."""


class CallEnded(Exception):
    """A call has ended before all that was expected came of it."""


class Delivered(Protocol):
    """A message as every client has it."""

    @property
    def offset(self) -> int:
        """Its place in the partition."""

    @property
    def value(self) -> bytes:
        """Its content."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Arguments of a program.

    Attributes:
        command: `consume`, `publish` or `latency`.
        servers: Addresses, `host:port`.
        stream: Its name; it is there already.
        partitions: How many of them to use, from 0.
        expected: Messages to consume from all partitions.
        messages: Messages to publish.
        message_size: Bytes of a value.
        window: Messages that may be unacked at a time.
        ack_policy: `leader`, `all` or `none`.
        rate: Messages due per second.
        duration: For how many seconds they are.
    """

    command: str
    servers: tuple[str, ...]
    stream: str
    partitions: int = 1
    expected: int = 0
    messages: int = 100_000
    message_size: int = 250
    window: int = 1
    ack_policy: str = "leader"
    rate: int = 1_000
    duration: float = 10.0

    @property
    def value(self) -> bytes:
        """Content of every message."""
        return b"x" * self.message_size

    @property
    def due(self) -> int:
        """Number of messages of a run at a fixed rate."""
        return round(self.rate * self.duration)

    @property
    def unacked(self) -> int:
        """Number of messages that need no answer.

        No client has a flush: an answer to the last message to each partition takes its place.
        """
        return max(0, self.messages - self.partitions) if self.ack_policy == "none" else 0


@dataclass(slots=True)
class Outcome:
    """Measurements of a program.

    Attributes:
        messages: Read, or published and acked.
        seconds: What that took.
        cpu_seconds: Processor time of this process meanwhile, user and system.
        errors: Messages that failed, or did not come in order.
        latencies: In nanoseconds, by the start of their keys.
    """

    messages: int
    seconds: float
    cpu_seconds: float
    errors: int = 0
    latencies: dict[str, Sequence[int]] = field(default_factory=dict)

    def as_json(self) -> dict[str, Any]:
        """The line that is printed, without the client's name."""
        line: dict[str, Any] = {
            "messages": self.messages,
            "seconds": self.seconds,
            "messages_per_second": self.messages / self.seconds,
            "client_cpu_seconds": self.cpu_seconds,
            "errors": self.errors,
        }
        for start, values in self.latencies.items():
            line |= {f"{start}_{name}": micros for name, micros in percentiles(values).items()}
        return line


def cpu_seconds() -> float:
    """Processor time of this process until now, user and system together."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


@dataclass(frozen=True, slots=True)
class Watch:
    """Time and processor time since it was made."""

    began: int = field(default_factory=time.monotonic_ns)
    cpu: float = field(default_factory=cpu_seconds)

    def stop(self, messages: int) -> Outcome:
        """Return the time that has passed since."""
        cpu = cpu_seconds() - self.cpu
        return Outcome(messages, (time.monotonic_ns() - self.began) / 1e9, cpu)


def percentiles(nanoseconds: Sequence[int]) -> dict[str, float]:
    """Percentiles by the nearest rank, in microseconds; nothing of nothing."""
    ordered = sorted(nanoseconds)
    last = len(ordered) - 1
    return {
        name: ordered[max(0, min(last, -int(-rank * len(ordered) // 1) - 1))] / 1_000
        for name, rank in RANKS.items()
        if ordered
    }


def main(
    client: str,
    distribution: str | None,
    commands: Mapping[str, Callable[[Settings], Outcome]],
    arguments: Sequence[str] | None = None,
) -> None:
    """Run the command that the arguments name and print its outcome as one line of JSON.

    Args:
        client: The name of the program.
        distribution: The package whose version it tells; None is Python itself.
        commands: What it can do.
        arguments: Those of the command line by default.
    """
    settings = parse(arguments)
    line: dict[str, Any] = {"client": client}
    try:
        if settings.command not in commands:
            raise Unsupported(f"{client} cannot {settings.command}")
        line["version"] = (
            importlib.metadata.version(distribution) if distribution else platform.python_version()
        )
        line |= commands[settings.command](settings).as_json()
    except Unsupported as reason:
        line["unsupported"] = str(reason)
    sys.stdout.write(json.dumps(line) + "\n")


def parse(arguments: Sequence[str] | None = None) -> Settings:
    """The settings that a command line asks for."""
    parser = argparse.ArgumentParser()
    parser.add_argument("command", choices=["consume", "publish", "latency"])
    parser.add_argument("--servers", required=True)
    parser.add_argument("--stream", required=True)
    for name in ("partitions", "expected", "messages", "message-size", "window", "rate"):
        parser.add_argument(f"--{name}", type=int, default=argparse.SUPPRESS)
    parser.add_argument("--duration", type=float, default=argparse.SUPPRESS)
    parser.add_argument("--ack-policy", choices=["leader", "all", "none"], default="leader")
    parser.add_argument("--start", choices=["earliest"], default="earliest")
    given = vars(parser.parse_args(arguments))
    del given["start"]
    return Settings(**given | {"servers": tuple(given["servers"].split(","))})

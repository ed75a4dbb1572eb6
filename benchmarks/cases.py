"""Cases of the benchmarks, each with the arguments of a client's program. Pure."""

from __future__ import annotations

import enum
import itertools
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Final

WARM_UP: Final = 2_000
"""Messages that a program publishes before its measured window begins."""

USUAL_SIZE: Final = 250
USUAL_WINDOW: Final = 1_000
SIZES: Final = (16, USUAL_SIZE, 4096)
WINDOWS: Final = (1, 100, USUAL_WINDOW, 10_000)
RATES: Final = (1_000, 10_000)
CLUSTER_NODES: Final = 3

_QUICK_DIVISOR: Final = 100
_QUICK_LEAST: Final = 500
_QUICK_SECONDS: Final = 1.0


class Kind(enum.Enum):
    """Kind of measurement: the first argument of a program."""

    CONSUME = "consume"
    PUBLISH = "publish"
    LATENCY = "latency"


class AckPolicy(enum.Enum):
    """When the server confirms a publish."""

    NONE = "none"
    LEADER = "leader"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that all clients do, one after the other.

    Attributes:
        kind: Read, write, or write at a fixed rate and read meanwhile.
        messages: How many messages a run takes, if the client is fast enough for that.
        message_size: Bytes of each value.
        partitions: Partitions of the stream, all read or written at once.
        window: Publishes that may wait for their acks at a time; 1 waits for each.
        ack_policy: When the server confirms.
        rate: Messages per second that are due, in a measurement of latency.
        duration: Seconds for which they are.
        nodes: Nodes of the server; every one holds a replica.
        note: More of the title.
    """

    kind: Kind
    messages: int
    message_size: int = USUAL_SIZE
    partitions: int = 1
    window: int = USUAL_WINDOW
    ack_policy: AckPolicy = AckPolicy.LEADER
    rate: int = 0
    duration: float = 0.0
    nodes: int = 1
    note: str = ""

    @property
    def title(self) -> str:
        """The case in a line."""
        parts = [f"{self.kind.value} {size_text(self.message_size)}"]
        if self.kind is Kind.LATENCY:
            parts.append(f"at {self.rate:,} msg/s")
        if self.kind is Kind.PUBLISH:
            parts.append("one at a time" if self.window == 1 else f"window {self.window:,}")
            parts.append(f"ack {self.ack_policy.value}")
        if self.partitions > 1:
            parts.append(f"{self.partitions} partitions")
        if self.nodes > 1:
            parts.append(f"{self.nodes} nodes")
        if self.note:
            parts.append(self.note)
        return ", ".join(parts)

    @property
    def one_at_a_time(self) -> bool:
        """True if each publish waits for the ack of the one before."""
        return self.kind is Kind.PUBLISH and self.window == 1

    @property
    def server_messages(self) -> int:
        """Messages that pass through the server beside those of the run: the warm-up."""
        return 0 if self.kind is Kind.CONSUME else WARM_UP

    def words(self, address: str, stream: str, messages: int) -> list[str]:
        """The arguments of a client's program.

        Args:
            address: Of the server.
            stream: The stream, which is there already.
            messages: How many messages this run takes.
        """
        common = [self.kind.value, "--servers", address, "--stream", stream]
        if self.kind is Kind.LATENCY:
            return [*common, "--rate", str(self.rate), "--duration", f"{self.duration:g}"]
        common += ["--partitions", str(self.partitions)]
        if self.kind is Kind.CONSUME:
            return [*common, "--expected", str(messages), "--start", "earliest"]
        return [
            *common,
            *("--messages", str(messages), "--message-size", str(self.message_size)),
            *("--window", str(self.window), "--ack-policy", self.ack_policy.value),
        ]

    def as_json(self) -> dict[str, Any]:
        """The case as the result files have it; what does not belong to its kind is left out."""
        fields = asdict(self)
        fields["kind"], fields["ack_policy"] = self.kind.value, self.ack_policy.value
        foreign = {
            Kind.CONSUME: ("window", "ack_policy", "rate", "duration"),
            Kind.PUBLISH: ("rate", "duration"),
            Kind.LATENCY: ("window", "ack_policy", "partitions"),
        }[self.kind]
        return {"title": self.title} | {
            k: v for k, v in fields.items() if k not in {*foreign, "note"}
        }


@dataclass(frozen=True, slots=True)
class Choice:
    """Selection of cases; an empty tuple leaves an axis as it is.

    Attributes:
        sizes: Bytes of the values.
        partitions: Numbers of partitions.
        windows: Of publishing.
        ack_policies: Of publishing; `ALL` is measured on three nodes.
        rates: Of latency.
        messages: Of each run, instead of as many as take some seconds.
        quick: So few that it takes no time, and says nothing but that it works.
    """

    sizes: tuple[int, ...] = ()
    partitions: tuple[int, ...] = ()
    windows: tuple[int, ...] = ()
    ack_policies: tuple[AckPolicy, ...] = ()
    rates: tuple[int, ...] = ()
    messages: int | None = None
    quick: bool = False


def cases_of(kind: Kind, choice: Choice) -> tuple[Case, ...]:
    """The cases of a kind: around the usual one along each axis, or every mix of what was asked."""
    cases = {
        Kind.CONSUME: _consume,
        Kind.PUBLISH: _publish,
        Kind.LATENCY: _latency,
    }[kind](choice)
    return tuple(dict.fromkeys(_sized(case, choice) for case in cases))


def _consume(choice: Choice) -> Iterable[Case]:
    usual = Case(Kind.CONSUME, messages=0)
    if not (choice.sizes or choice.partitions):
        yield usual
        yield from (replace(usual, message_size=size) for size in SIZES)
        yield replace(usual, partitions=4)
        return
    for size, partitions in _mixed(choice.sizes or (USUAL_SIZE,), choice.partitions or (1,)):
        yield replace(usual, message_size=size, partitions=partitions)


def _publish(choice: Choice) -> Iterable[Case]:
    usual = Case(Kind.PUBLISH, messages=0)
    if not (choice.sizes or choice.partitions or choice.windows or choice.ack_policies):
        yield from (replace(usual, window=window) for window in WINDOWS)
        yield from (replace(usual, message_size=size) for size in SIZES)
        yield replace(usual, ack_policy=AckPolicy.NONE)
        yield replace(usual, ack_policy=AckPolicy.ALL, nodes=CLUSTER_NODES)
        return
    for window, size, policy, partitions in itertools.product(
        choice.windows or (USUAL_WINDOW,),
        choice.sizes or (USUAL_SIZE,),
        choice.ack_policies or (AckPolicy.LEADER,),
        choice.partitions or (1,),
    ):
        yield replace(
            usual,
            window=window,
            message_size=size,
            ack_policy=policy,
            partitions=partitions,
            nodes=CLUSTER_NODES if policy is AckPolicy.ALL else 1,
        )


def _latency(choice: Choice) -> Iterable[Case]:
    for rate in choice.rates or RATES:
        duration = _QUICK_SECONDS if choice.quick else 5.0
        yield Case(Kind.LATENCY, round(rate * duration), rate=rate, duration=duration)


def _mixed(first: Sequence[int], second: Sequence[int]) -> Iterable[tuple[int, int]]:
    return itertools.product(first, second)


def _sized(case: Case, choice: Choice) -> Case:
    """The case with its number of messages: what takes a fast client some two to five seconds."""
    if case.kind is Kind.LATENCY:
        return case
    if choice.messages is not None:
        return replace(case, messages=choice.messages)
    usual = 10_000 if case.one_at_a_time else 500_000 if case.kind is Kind.CONSUME else 200_000
    if case.message_size > 1024 and not case.one_at_a_time:
        usual //= 4
    if choice.quick:
        usual = max(usual // _QUICK_DIVISOR, _QUICK_LEAST)
    return replace(case, messages=usual)


def size_text(size: int) -> str:
    """Bytes as people say them."""
    return f"{size // 1024} KiB" if size >= 1024 and size % 1024 == 0 else f"{size} B"

"""The command line: which benchmarks, and how much of them. Pure."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from .cases import AckPolicy, Choice

T = TypeVar("T")

NAMES: Final = {
    "consume": "read from the start: 16 B, 250 B, 4 KiB; 1 and 4 partitions",
    "publish": "window 1 to 10,000; 16 B, 250 B, 4 KiB; ack none, leader, and all on three nodes",
    "latency": "publish to ack and to delivery at 1,000 and 10,000 messages a second",
    "goals": "what there are goals for, beside the goals",
    "memory": "of our client: a reader far behind, publishes that wait, a thousand subscriptions",
    "codec": "of our client: encoding, decoding and splitting of frames alone",
    "import": "of our client: how long importing it takes",
    "transactions": "of our client: committed readings and producers beside plain ones",
    "queue": "delivering and acking by our queue, beside a subscription and other systems",
    "nsq": "our NSQ client beside go-nsq, pynsq, gnsq and ansq, on one nsqd",
    "stan": "our client of NATS Streaming beside stan.go and stan.py, on one server",
    "durable-streams": "our client of Durable Streams beside the published one and bare HTTP",
    "gateway": "the gateway beside a bare HTTP handler and the published server",
    "all": "all of these",
    "scale": "simulated groups of up to 100 members, 1,000 partitions and 100 brokers",
    "spark-read": "Spark reading a stream, beside our client alone and a source that does nothing",
    "spark-write": "Spark writing to a stream, in the same way",
    "spark-microbatch": "Spark's micro-batches: many rows, and next to none",
    "spark-memory": "memory of Spark's Python workers over a long stream",
    "spark": "all of those with Spark",
}
"""The benchmarks."""


@dataclass(frozen=True, slots=True)
class Flags:
    """Arguments of the command.

    Attributes:
        name: Of the benchmark; None to list them.
        server: `real`, `embedded`, or the path of a binary.
        rounds: How often each client has its turn.
        clients: Their names; empty for the usual ones.
        choice: Which of the cases.
        whole: The sizes of `scale` that take long, too.
        as_json: JSON on stdout, and no table.
        json: A file for the same.
        chart: A file for the chart.
    """

    name: str | None
    server: str
    rounds: int
    clients: tuple[str, ...]
    choice: Choice
    whole: bool
    as_json: bool
    json: Path | None
    chart: Path | None


def parse_flags(words: Sequence[str]) -> Flags:
    """Understand the command line; says on stderr what is wrong, and exits, if it is."""
    given = _parser().parse_args(words)
    return Flags(
        name=given.name,
        server=given.server,
        rounds=given.rounds,
        clients=given.peers,
        choice=Choice(
            sizes=given.message_size,
            partitions=given.partitions,
            windows=given.window,
            ack_policies=given.ack_policy,
            rates=given.rate,
            messages=given.messages,
            quick=given.quick,
        ),
        whole=given.whole,
        as_json=given.output == "json",
        json=given.json,
        chart=given.chart,
    )


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks",
        description="Liftbridge clients, measured side by side on one server.",
        allow_abbrev=False,
    )
    add = parser.add_argument
    add("name", nargs="?", choices=tuple(NAMES), metavar="NAME", help="left out: list them")
    add("--server", default="real", help="real (v1.9.0, built once), embedded, or a binary's path")
    add("--rounds", type=_positive, default=5, help="turns of each client")
    add("--peers", type=_several(str), default=(), help="clients, comma-separated")
    add("--messages", type=_positive, help="messages of each run")
    add("--message-size", type=_several(_positive), default=(), help="bytes, comma-separated")
    add("--partitions", type=_several(_positive), default=(), help="numbers, comma-separated")
    add("--window", type=_several(_positive), default=(), help="publishes without ack, …")
    add("--ack-policy", type=_several(AckPolicy), default=(), help="none, leader, all")
    add("--rate", type=_several(_positive), default=(), help="messages per second, …")
    add("--quick", action="store_true", help="few messages: shows that it works, and no more")
    add("--whole", action="store_true", help="scale: 1,000 members and 10,000 partitions, too")
    add("--output", choices=("text", "json"), default="text", help="what goes to stdout")
    add("--json", type=Path, metavar="FILE", help="write the results here")
    add("--chart", type=Path, metavar="FILE.svg", help="draw them here")
    return parser


def _positive(text: str) -> int:
    value = int(text.replace("_", ""))
    if value < 1:
        raise argparse.ArgumentTypeError("it must be at least 1")
    return value


def _several(one: Callable[[str], T]) -> Callable[[str], tuple[T, ...]]:
    def parse(text: str) -> tuple[T, ...]:
        try:
            return tuple(one(part.strip()) for part in text.split(",") if part.strip())
        except ValueError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    return parse

"""Judge what was read in the end: nothing is lost, doubled or out of order. Pure."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple


class Sum(NamedTuple):
    """The CRC of a stream up to one of its chunks."""

    stream: str
    number: int
    crc: int


@dataclass(slots=True)
class Verdict:
    """What came of a run."""

    chunks: int = 0
    streams: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    failures: list[str] = field(default_factory=list)
    by_the_server: list[str] = field(default_factory=list)
    """What the servers have lost, as they are known to."""

    @property
    def doubled(self) -> bool:
        """True if a chunk or a sum came twice."""
        return any("twice" in failure for failure in self.failures)

    def text(self) -> str:
        """Return the verdict in lines."""
        faults = ", ".join(f"{count} x {name}" for name, count in sorted(self.faults.items()))
        lines = [
            f"stream-sum: {self.chunks} chunks of {self.streams} streams; {faults}",
            *(f"  by the server: {each}" for each in self.by_the_server[:10]),
            *(f"  FAILED: {each}" for each in self.failures[:20]),
        ]
        return "\n".join(lines)


def chunk_of(stream: str, number: int, crc: int, data: bytes) -> tuple[bytes, int]:
    """Return a chunk, and the CRC of its stream with it."""
    crc = zlib.crc32(data, crc)
    return json.dumps([stream, number, crc, data.decode()]).encode(), crc


def parse_chunk(value: bytes) -> tuple[Sum, bytes]:
    """Return what the chunk says of its stream, and its data."""
    stream, number, crc, data = json.loads(value)
    return Sum(stream, number, crc), data.encode()


def parse_sum(value: bytes) -> Sum:
    """Return a sum that the summer has written."""
    return Sum(*json.loads(value))


def judge(
    verdict: Verdict,
    acked: Iterable[Sum],
    raw: Mapping[int, Sequence[Sum]],
    chunks: Mapping[int, Sequence[Sum]],
    sums: Mapping[int, Sequence[Sum]],
) -> None:
    """Add to a verdict what is wrong.

    Args:
        verdict: of the run.
        acked: chunks that are stored, says the chunker.
        raw: chunks that are in the log of each partition, however they were published.
        chunks: those that a committed reading shows.
        sums: what a committed reading shows of the summer.
    """
    stored = {each for partition in raw.values() for each in partition}
    shown = {each for partition in chunks.values() for each in partition}
    verdict.chunks = len(shown)
    verdict.streams = len({each.stream for each in shown})
    for each in sorted(set(acked) - shown):
        if each in stored:
            verdict.failures.append(f"the chunk {each} is acked and stored, and not shown")
        else:
            verdict.by_the_server.append(f"the chunk {each} was acked by all, and is lost")
    lost_by_server = {each.stream for each in set(acked) - stored}
    for name, found in (("chunk", chunks), ("sum", sums)):
        for partition, those in found.items():
            _judge_order(verdict, f"{name} in partition {partition}", those, lost_by_server)
    for partition, expected in chunks.items():
        got = sums.get(partition, ())
        missing = Counter(expected) - Counter(got)
        verdict.failures += [f"the sum of {each} is missing" for each in list(missing)[:5]]
        verdict.failures += [
            f"the sum {each} is of no chunk" for each in list(set(got) - set(expected))[:5]
        ]


def _judge_order(verdict: Verdict, what: str, those: Sequence[Sum], excused: set[str]) -> None:
    following: dict[str, int] = {}
    for stream, number, _ in those:
        expected = following.get(stream, 0)
        if number < expected:
            verdict.failures.append(f"{stream}/{number} comes twice or late: {what}")
        elif number > expected and stream not in excused:
            verdict.failures.append(f"{stream}/{expected} is passed over: {what}")
        following[stream] = max(expected, number + 1)

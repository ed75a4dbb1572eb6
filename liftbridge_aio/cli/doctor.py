"""`liftbridge-aio doctor`: find what is wrong with a cluster, or with the way to it."""

from __future__ import annotations

import asyncio
import platform
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from enum import StrEnum
from importlib.metadata import version
from typing import Final

from liftbridge_aio._core.addresses import parse_address
from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.model import ACTIVITY_STREAM, CURSORS_STREAM, Metadata
from liftbridge_aio.options import timer_seconds

from .connection import DEFAULT_CONNECTION, AsJson, ConnectionFlags
from .output import failure_line, one_line, write_json, write_lines
from .partition_states import PartitionState, fetch_states
from .running import CLIENT, in_event_loop

_CLOCK_TOLERANCE: Final = 1.0
"""Seconds by which a clock may be ahead before it is reported."""
_NAME: Final = "check its spelling, DNS and /etc/hosts"
_PORT: Final = "start the server, or check the port and the interface that it listens on"
_ROUTE: Final = "check the address, routes and firewalls"
_ELSEWHERE: Final = (
    "let the server advertise what clients can reach (`host` and `port` in its configuration), or"
    " map addresses with ClientOptions(address_map=)"
)
_PACKAGES: Final = ("liftbridge_aio", "grpclib", "h2", "betterproto2", "anyio")


class Verdict(StrEnum):
    """The weight of a finding."""

    OK = "ok"
    NOTE = "note"
    WRONG = "wrong"


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that was looked at."""

    verdict: Verdict
    text: str
    advice: str = ""

    def line(self) -> str:
        """Return it as a line."""
        advice = f": {self.advice}" if self.advice else ""
        return one_line(f"{self.verdict:5}  {self.text}{advice}")


@in_event_loop(*CLIENT)
async def doctor(
    *, as_json: AsJson = False, connection: ConnectionFlags = DEFAULT_CONNECTION
) -> int:
    """Find what is wrong with the servers, or with the way to them, and say what to do.

    Checks names, ports, TLS, protocol and permission for each given and each advertised address;
    leaders, replicas and pauses of all partitions; cursors, activity and clocks. Nothing is
    changed. The exit code is 0 if all is well, and 1 if something is wrong; notes are no faults.

    For example:

        liftbridge-aio doctor
        liftbridge-aio doctor --servers broker-1:9292,broker-2:9292 --json
    """
    findings = [_versions()]
    given = await asyncio.gather(*(_way(connection, each) for each in connection.addresses))
    findings += given
    if any(finding.verdict is Verdict.OK for finding in given):
        findings += await _cluster(connection)
    wrong = any(finding.verdict is Verdict.WRONG for finding in findings)
    if as_json:
        write_json({"well": not wrong, "findings": [asdict(finding) for finding in findings]})
    else:
        write_lines(finding.line() for finding in findings)
    return 1 if wrong else 0


def _versions() -> Finding:
    packages = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    return Finding(Verdict.OK, f"Python {platform.python_version()}, {packages}")


async def _way(connection: ConnectionFlags, address: str, advertised_by: str = "") -> Finding:
    """Check the way to an address: name, port, TLS, protocol, permission."""
    where = f"{address}, advertised by broker {advertised_by}," if advertised_by else address
    client = connection.client(only=address)
    try:
        async with asyncio.timeout(timer_seconds(client.options.connect_timeout)):
            await _connect(*parse_address(address))
    except socket.gaierror as error:
        text = f"{where} has a name that cannot be resolved ({error.strerror})"
        return Finding(Verdict.WRONG, text, _ELSEWHERE if advertised_by else _NAME)
    except ConnectionRefusedError:
        text = f"{where} refuses connections"
        return Finding(Verdict.WRONG, text, _ELSEWHERE if advertised_by else _PORT)
    except OSError as error:  # a TimeoutError is one
        text = f"{where} cannot be reached ({error.strerror or 'no answer in time'})"
        return Finding(Verdict.WRONG, text, _ELSEWHERE if advertised_by else _ROUTE)
    try:
        async with client:
            milliseconds = await client.ping() * 1000
    except LiftbridgeError as error:
        return Finding(Verdict.WRONG, f"{where} accepts connections, but {failure_line(error)}")
    return Finding(Verdict.OK, f"{where} answers in {milliseconds:.1f} ms")


async def _connect(host: str, port: int) -> None:
    """Connect to the first address of a host that accepts it, and disconnect."""
    loop = asyncio.get_running_loop()
    found = await loop.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    error: OSError | None = None
    for _, _, _, _, (ip, *_) in found:
        try:
            _, writer = await asyncio.open_connection(str(ip), port)
        except OSError as failure:
            error = failure
        else:
            writer.close()
            return
    if error is not None:
        raise error


async def _cluster(connection: ConnectionFlags) -> list[Finding]:
    """Check what servers say of their cluster."""
    try:
        async with connection.client() as client:
            metadata = await client.fetch_metadata()
            states = await fetch_states(client, metadata.streams.values())
    except LiftbridgeError as error:
        return [Finding(Verdict.WRONG, f"the metadata cannot be fetched: {failure_line(error)}")]
    advertised = {
        broker.address: name
        for name, broker in sorted(metadata.brokers.items())
        if broker.address not in connection.addresses
    }
    ways = [_way(connection, address, name) for address, name in advertised.items()]
    return [*await asyncio.gather(*ways), *examine(metadata, states, time.time())]


def examine(metadata: Metadata, states: Sequence[PartitionState], now: float) -> Iterator[Finding]:
    """Yield what is to be said about a cluster.

    Args:
        metadata: of the cluster.
        states: of all its partitions, from their leaders.
        now: the time of this machine, in Unix seconds.
    """
    replicas = {name for state in states for name in state.info.replicas}
    for name in sorted(replicas.difference(metadata.brokers)):
        text = f"broker {name} has replicas of partitions, but the servers do not list it"
        yield Finding(Verdict.WRONG, text, "start it, or wait until its cluster has it back")
    yield from _partitions(states)
    if CURSORS_STREAM not in metadata.streams:
        text = "the servers keep no cursors, so that groups and readers store no positions"
        what = "set cursors.stream.partitions in their configuration, if you need them"
        yield Finding(Verdict.NOTE, text, what)
    if ACTIVITY_STREAM not in metadata.streams:
        text = "the servers keep no activity stream, so that members of groups are not listed"
        what = "set activity.stream.enabled in their configuration, or --activity of our broker"
        yield Finding(Verdict.NOTE, text, what)
    yield from _clocks(states, now)
    leaders = sum(bool(state.info.leader) for state in states)
    yield Finding(
        Verdict.OK,
        f"brokers: {len(metadata.brokers)}, streams: {len(metadata.streams)}, partitions:"
        f" {len(states)}, with a leader: {leaders}",
    )


def _partitions(states: Sequence[PartitionState]) -> Iterator[Finding]:
    def where(holds: Callable[[PartitionState], bool]) -> str:
        found: dict[str, list[str]] = {}
        for state in states:
            if holds(state):
                found.setdefault(state.stream, []).append(str(state.info.id))
        return "; ".join(f"{stream} {', '.join(numbers)}" for stream, numbers in found.items())

    if leaderless := where(lambda state: not state.info.leader):
        advice = "start their brokers; a leader is elected from the replicas in sync"
        yield Finding(Verdict.WRONG, f"partitions without a leader: {leaderless}", advice)
    silent = [state for state in states if state.error is not None and state.info.leader]
    if silent:
        listed = where(lambda state: state in silent)
        first = failure_line(silent[0].error) if silent[0].error is not None else ""
        text = f"partitions whose leader does not answer: {listed}; the first: {first}"
        yield Finding(Verdict.WRONG, text)
    if behind := where(lambda state: len(state.info.isr) < len(state.info.replicas)):
        advice = "start their other brokers, or look at the disks and networks of these"
        yield Finding(Verdict.WRONG, f"partitions with replicas out of sync: {behind}", advice)
    if paused := where(lambda state: state.info.paused):
        advice = "publish to them or use `streams resume --partition` if that is not wanted"
        yield Finding(Verdict.NOTE, f"paused partitions: {paused}", advice)
    if readonly := where(lambda state: state.info.readonly):
        advice = "use `streams readonly --off` if that is not wanted"
        yield Finding(Verdict.NOTE, f"read-only partitions: {readonly}", advice)


def _clocks(states: Iterable[PartitionState], now: float) -> Iterator[Finding]:
    """Compare the times of messages, which are those of their leaders' clocks, with this clock."""
    ahead: dict[str, float] = {}
    for state in states:
        latest = state.info.messages_received.latest
        if latest is not None and latest / 1e9 - now > _CLOCK_TOLERANCE:
            leader = state.info.leader
            ahead[leader] = max(ahead.get(leader, 0.0), latest / 1e9 - now)
    for leader, seconds in sorted(ahead.items()):
        text = f"the clock of broker {leader} is at least {seconds:.1f} s ahead of this machine's"
        yield Finding(Verdict.WRONG, text, "let both follow NTP: messages have the broker's times")

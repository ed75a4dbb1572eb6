"""`liftbridge-aio metadata`: show brokers and streams, and ping each broker."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any

from cyclopts import Parameter

from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.model import BrokerInfo, Metadata, PartitionInfo

from .connection import DEFAULT_CONNECTION, AsJson, ConnectionFlags
from .output import say, write_json, write_table
from .running import CLIENT, TABLES, in_event_loop


@dataclass(frozen=True, slots=True)
class _Broker:
    """A broker, and the result of a ping to its advertised address."""

    id: str
    info: BrokerInfo | None
    """The broker; None if replicas name it, but the servers do not list it."""
    leads: int
    keeps: int
    """Numbers of partitions, counted as servers report numbers that are minutes old."""
    milliseconds: float | None = None
    error: str | None = None

    def as_json(self, *, pinged: bool) -> dict[str, Any]:
        info = self.info
        fields: dict[str, Any] = {
            "id": self.id,
            "address": None if info is None else info.address,
            "host": None if info is None else info.host,
            "port": None if info is None else info.port,
            "leader_count": self.leads,
            "partition_count": self.keeps,
        }
        if pinged:
            fields |= {"answers": self.error is None, "ping_milliseconds": self.milliseconds}
        return fields if self.error is None else fields | {"error": self.error}

    def row(self, *, pinged: bool) -> tuple[object, ...]:
        address = "?" if self.info is None else self.info.address
        took = "no answer" if self.milliseconds is None else f"{self.milliseconds:.1f} ms"
        return (self.id, address, self.leads, self.keeps, *((took,) if pinged else ()))


@in_event_loop(*CLIENT, *TABLES)
async def metadata(
    *,
    ping: Annotated[bool, Parameter(help="Ping every broker.")] = True,
    as_json: AsJson = False,
    connection: ConnectionFlags = DEFAULT_CONNECTION,
) -> int:
    """Show the brokers of the cluster, what they lead, and how quickly each answers.

    Each is pinged at its advertised address. The exit code is 1 if one does not answer. With --json
    all streams and their partitions are written too, without the state that only leaders know: see
    `partitions list`.

    For example:

        liftbridge-aio metadata
        liftbridge-aio metadata --no-ping --json
    """
    async with connection.client() as client:
        known = await client.fetch_metadata()
    brokers = _brokers(known)
    if ping:
        brokers = await asyncio.gather(*(_ping(connection, broker) for broker in brokers))
    if as_json:
        write_json(_as_json(known, brokers, pinged=ping))
    else:
        columns = ("Broker", "Address", "Leads", "Keeps", *(("Answers in",) if ping else ()))
        write_table(_summary(known), columns, [broker.row(pinged=ping) for broker in brokers])
    errors = [broker.error for broker in brokers if broker.error is not None]
    if errors:
        say(f"error: {len(errors)} of {len(brokers)} brokers do not answer, the first: {errors[0]}")
    return 1 if errors else 0


def _brokers(known: Metadata) -> list[_Broker]:
    partitions = _partitions(known)
    leads = Counter(partition.leader for partition in partitions if partition.leader)
    keeps = Counter(replica for partition in partitions for replica in partition.replicas)
    names = sorted({*known.brokers, *leads, *keeps})
    return [_Broker(name, known.brokers.get(name), leads[name], keeps[name]) for name in names]


async def _ping(connection: ConnectionFlags, broker: _Broker) -> _Broker:
    if broker.info is None:
        return replace(
            broker, error=f"{broker.id} has replicas of partitions, but the servers do not list it"
        )
    try:
        async with connection.client(only=broker.info.address) as client:
            return replace(broker, milliseconds=round(await client.ping() * 1000, 3))
    except LiftbridgeError as failure:
        return replace(broker, error=" ".join(f"{broker.id}: {failure}".split()))


def _partitions(known: Metadata) -> list[PartitionInfo]:
    return [
        partition for stream in known.streams.values() for partition in stream.partitions.values()
    ]


def _summary(known: Metadata) -> str:
    partitions = _partitions(known)
    leaderless = sum(not partition.leader for partition in partitions)
    behind = sum(len(partition.isr) < len(partition.replicas) for partition in partitions)
    return (
        f"Brokers: {len(known.brokers)}, streams: {len(known.streams)}, "
        f"partitions: {len(partitions)} (without a leader: {leaderless}, "
        f"with replicas that are not in sync: {behind})"
    )


def _as_json(known: Metadata, brokers: Sequence[_Broker], *, pinged: bool) -> dict[str, Any]:
    return {
        "brokers": [broker.as_json(pinged=pinged) for broker in brokers],
        "streams": [
            {
                "name": stream.name,
                "subject": stream.subject,
                "creation_timestamp": stream.creation_timestamp,
                "creation_time": stream.creation_time.isoformat(timespec="seconds"),
                "partitions": [
                    {
                        "id": partition.id,
                        "leader": partition.leader,
                        "replicas": partition.replicas,
                        "isr": partition.isr,
                        "readonly": partition.readonly,
                    }
                    for _, partition in sorted(stream.partitions.items())
                ],
            }
            for _, stream in sorted(known.streams.items())
        ],
    }

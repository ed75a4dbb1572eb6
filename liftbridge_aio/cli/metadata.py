"""`liftbridge-aio metadata`: the cluster as the servers tell it, and whether they answer."""

from __future__ import annotations

import asyncio
from dataclasses import asdict
from typing import Annotated, Any, NamedTuple

from cyclopts import Parameter

from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.model import BrokerInfo, Metadata

from .connection import DEFAULT_CONNECTION, AsJson, Connection
from .output import say, write_json, write_table
from .running import CLIENT, TABLES, in_event_loop


class _Ping(NamedTuple):
    """How a broker answered a ping sent from here to the address that it tells."""

    milliseconds: float | None = None
    error: LiftbridgeError | None = None


@in_event_loop(*CLIENT, *TABLES)
async def metadata(
    *,
    ping: Annotated[bool, Parameter(help="Ask every broker for a sign of life.")] = True,
    as_json: AsJson = False,
    connection: Connection = DEFAULT_CONNECTION,
) -> int:
    """Show the brokers of the cluster, what they lead, and how quickly each answers.

    Each is asked at the address that it tells clients. The exit code is 1 if one does not answer.
    With --json all streams and their partitions are written too; what only leaders know of these,
    `partitions list` tells.

    For example:

        liftbridge-aio metadata
        liftbridge-aio metadata --no-ping --json
    """
    async with connection.client() as client:
        known = await client.fetch_metadata()
    brokers = sorted(known.brokers.values(), key=lambda broker: broker.id)
    pings = dict.fromkeys(known.brokers, _Ping())
    if ping:
        answers = await asyncio.gather(*(_ping(connection, broker) for broker in brokers))
        pings = {broker.id: answer for broker, answer in zip(brokers, answers, strict=True)}
    if as_json:
        write_json(_as_json(known, brokers, pings, asked=ping))
    else:
        columns = ("Broker", "Address", "Leads", "Keeps", *(("Answers in",) if ping else ()))
        rows = [
            (
                broker.id,
                broker.address,
                broker.leader_count,
                broker.partition_count,
                *((_took(pings[broker.id]),) if ping else ()),
            )
            for broker in brokers
        ]
        write_table(_summary(known), columns, rows)
    errors = [answer.error for answer in pings.values() if answer.error is not None]
    if errors:
        what = f"{len(errors)} of {len(brokers)} brokers do not answer, the first"
        say(f"error: {what}: {' '.join(str(errors[0]).split())}")
    return 1 if errors else 0


async def _ping(connection: Connection, broker: BrokerInfo) -> _Ping:
    try:
        async with connection.client(only=broker.address) as client:
            return _Ping(milliseconds=round(await client.ping() * 1000, 3))
    except LiftbridgeError as error:
        return _Ping(error=error)


def _took(answer: _Ping) -> str:
    return "no answer" if answer.milliseconds is None else f"{answer.milliseconds:.1f} ms"


def _summary(known: Metadata) -> str:
    partitions = [
        partition for stream in known.streams.values() for partition in stream.partitions.values()
    ]
    leaderless = sum(not partition.leader for partition in partitions)
    behind = sum(len(partition.isr) < len(partition.replicas) for partition in partitions)
    return (
        f"Brokers: {len(known.brokers)}, streams: {len(known.streams)}, "
        f"partitions: {len(partitions)} (without a leader: {leaderless}, "
        f"with replicas that are not in sync: {behind})"
    )


def _as_json(
    known: Metadata, brokers: list[BrokerInfo], pings: dict[str, _Ping], *, asked: bool
) -> dict[str, Any]:
    return {
        "brokers": [
            {**asdict(broker), "address": broker.address}
            | (_ping_fields(pings[broker.id]) if asked else {})
            for broker in brokers
        ],
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


def _ping_fields(answer: _Ping) -> dict[str, Any]:
    error = {} if answer.error is None else {"error": str(answer.error)}
    return {"answers": answer.error is None, "ping_milliseconds": answer.milliseconds, **error}

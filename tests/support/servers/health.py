"""Checks from outside that the nodes of a cluster work together."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from grpclib.client import Channel, UnaryUnaryMethod
from grpclib.const import Status
from grpclib.exceptions import GRPCError, StreamTerminatedError

from liftbridge_aio.wire import proto, rpc

CALL_TIMEOUT: Final = 2.0
METADATA_TIMEOUT: Final = 4.0  # a server may wait 3 seconds for a peer (W28)
PROBE: Final = "readiness"
CURSORS: Final = "__cursors"

Views = dict[str, proto.FetchMetadataResponse]


@dataclass(frozen=True, slots=True)
class Lack:
    """A deficiency of a cluster, and the node to restart for it, if any."""

    text: str
    restart: str = ""


async def missing(addresses: Mapping[str, str]) -> Lack | None:
    """Return the reason why the cluster is not as good as new; None if it is.

    As good as new is: every node knows every other, all replicas of the cursors are in sync, there
    are no streams of anybody, a new stream with a replica on every node takes a publish through
    every node with ack ALL, and cursors are served. Streams that are left over are deleted.
    """
    channels = {node_id: Channel(*_host_and_port(each)) for node_id, each in addresses.items()}
    try:
        # Asked for metadata too early, a node would keep a list without those that start.
        if text := await _no_cursors(channels):
            return Lack(text)
        views = await _views(channels)
        text = (
            _cursors_out_of_sync(views)
            or await _leftovers(channels, views)
            or await _unreplicated(channels)
        )
        return Lack(text) if text else _unknown_brokers(views)
    except (GRPCError, StreamTerminatedError, OSError, TimeoutError) as error:
        return Lack(f"{type(error).__name__}: {error}")
    finally:
        for channel in channels.values():
            channel.close()


def _host_and_port(address: str) -> tuple[str, int]:
    host, _, port = address.rpartition(":")
    return host, int(port)


async def _views(channels: Mapping[str, Channel]) -> Views:
    request = proto.FetchMetadataRequest()
    calls = (_call(each, rpc.FETCH_METADATA, request, deadline=None) for each in channels.values())
    return dict(zip(channels, await asyncio.gather(*calls), strict=True))


def _unknown_brokers(views: Views) -> Lack | None:
    """A node that asked for the brokers while one was dead, and will not ask again soon (W29)."""
    for node_id, view in views.items():
        if unknown := set(views) - {broker.id for broker in view.brokers}:
            return Lack(f"{node_id} does not list {sorted(unknown)}", restart=node_id)
    return None


def _cursors_out_of_sync(views: Views) -> str:
    leaders: set[tuple[int, str]] = set()
    for node_id, view in views.items():
        partitions = [
            partition
            for stream in view.stream_metadata
            if stream.name == CURSORS
            for partition in stream.partitions.values()
        ]
        if not partitions or any(set(each.isr) != set(views) for each in partitions):
            return f"{node_id} sees {CURSORS} out of sync: {partitions}"
        leaders |= {(each.id, each.leader) for each in partitions}
    if len(leaders) != len({partition for partition, _ in leaders}):
        return f"the nodes disagree on who leads {CURSORS}: {sorted(leaders)}"
    return ""


async def _leftovers(channels: Mapping[str, Channel], views: Views) -> str:
    """Delete what is left over; whether all nodes know of that is seen the next time."""
    names = {each.name for view in views.values() for each in view.stream_metadata}
    leftovers = sorted(name for name in names if not name.startswith("__"))
    channel = next(iter(channels.values()))
    for name in leftovers:
        try:
            await _call(channel, rpc.DELETE_STREAM, proto.DeleteStreamRequest(name=name))
        except GRPCError as error:
            if error.status is not Status.NOT_FOUND:
                raise
    return f"left over: {leftovers}" if leftovers else ""


async def _unreplicated(channels: Mapping[str, Channel]) -> str:
    create = proto.CreateStreamRequest(
        name=PROBE, subject=PROBE, partitions=1, replication_factor=len(channels)
    )
    await _call(next(iter(channels.values())), rpc.CREATE_STREAM, create)
    publish = proto.PublishRequest(
        stream=PROBE, ack_policy=proto.AckPolicy.ALL, expected_offset=-1, correlation_id=PROBE
    )
    for channel in channels.values():
        await _call(channel, rpc.PUBLISH, publish)
    delete = proto.DeleteStreamRequest(name=PROBE)
    await _call(next(iter(channels.values())), rpc.DELETE_STREAM, delete)
    return ""


async def _no_cursors(channels: Mapping[str, Channel]) -> str:
    """One node has to serve a cursor, and every other to know that it does not lead."""
    request = proto.FetchCursorRequest(stream=PROBE, cursor_id=PROBE)
    serving = False
    for channel in channels.values():
        try:
            await _call(channel, rpc.FETCH_CURSOR, request)
        except GRPCError as error:
            if error.status is not Status.FAILED_PRECONDITION:
                raise
        else:
            serving = True
    return "" if serving else "no node serves cursors"


async def _call(
    channel: Channel,
    procedure: rpc.Rpc[rpc.RequestT, rpc.ReplyT],
    request: rpc.RequestT,
    *,
    deadline: float | None = CALL_TIMEOUT,
) -> rpc.ReplyT:
    method = UnaryUnaryMethod[rpc.RequestT, rpc.ReplyT](
        channel, procedure.path, procedure.request, procedure.reply
    )
    async with asyncio.timeout(METADATA_TIMEOUT):
        return await asyncio.create_task(method(request, timeout=deadline))

"""The end of a run: everything is read, and what the servers have is read past the clients."""

from __future__ import annotations

import asyncio
import base64
import time
from collections import Counter
from typing import Final

from chaos.crew import FLIPPED_STREAM, LEADER_STREAM, PARTITIONS, SETTLE_WITHIN, Part
from chaos.evidence import Log
from chaos.journal import END
from chaos.scene import POLL, Run
from liftbridge_aio import AckPolicy, LiftbridgeError, StartAt

OPEN_WITHIN: Final = 10.0
READ_WITHIN: Final = 20.0


async def finish(run: Run) -> None:
    """Publish nothing more, have everything read, and note what is missing."""
    unsettled = await run.load.settle(SETTLE_WITHIN)
    if unsettled:
        run.load.find(f"{unsettled} publishes never ended", excusable=False)
    answer = await run.raw_acks(END.decode().rstrip("-"))
    if answer["acked_at"] is None:
        run.servers.append(f"at the end: {answer['missing']}")
    ends = {
        (stream, partition): value.encode()
        for stream, partition, value, acked in answer["sends"]
        if acked
    }
    until = time.monotonic() + READ_WITHIN
    readers = [each for each in run.crew.readers if each.place.stream != FLIPPED_STREAM]
    while time.monotonic() < until:
        behind = [
            reader.lane.name
            for reader in readers
            if ends.get((reader.place.stream, reader.place.partition)) not in reader.ends
        ]
        got = set().union(*(member.ends for member in run.crew.members))
        waited = [f"group on {s}/{n}" for s, n in run.partitions() if ends.get((s, n)) not in got]
        if not behind and not waited:
            break
        await asyncio.sleep(POLL)
    else:
        text = f"did not read to the end: {', '.join(behind + waited)}"
        run.load.find(text, excusable=False)
    for name, part in run.crew.parts.items():
        await _finish_part(run, name, part)
    await _take_up_again(run)
    now = time.monotonic()
    for reader in readers:
        run.load.journal.finished(reader.place.stream, reader.place.partition, reader.name, now)
    for stream, partition in run.partitions():
        for member in run.crew.members:
            run.load.journal.finished(stream, partition, member.name, now)


async def _finish_part(run: Run, name: str, part: Part) -> None:
    """Wait until a part of the load has caught up, and judge it."""
    until = time.monotonic() + READ_WITHIN
    while part.behind and time.monotonic() < until:  # noqa: ASYNC110 - it is a test
        await asyncio.sleep(POLL)
    try:
        async with asyncio.timeout(READ_WITHIN):
            wrong, by_servers = await part.judge(run.crew.clients[0])
    except (LiftbridgeError, TimeoutError) as error:
        wrong, by_servers = [f"{name}: not read to be judged: {error!r}", *part.last_words()], []
    for text in wrong:
        run.load.find(text, excusable=False)
    run.servers += by_servers


async def _take_up_again(run: Run) -> None:
    """Look whether durable readers go on where they were left, now that all is in peace."""
    writer, _, client = run.crew.clients
    for reader in run.crew.readers:
        last = reader.last
        if reader.cursor is None or last is None:
            continue
        place = reader.place
        reader.stop()
        await reader.ended.wait()
        began = time.monotonic()
        value = f"after-{place}".encode()
        sends = run.load.journal.sent_to(place.stream)
        sends.sent(value, place.partition, producer="after", time=began)
        try:
            ack = await writer.publish(
                place.stream, value, partition=place.partition, ack_policy=AckPolicy.ALL
            )
            sends.unknown(value, place.partition, producer="after", time=time.monotonic())
            async with (
                asyncio.timeout(OPEN_WITHIN),
                client.subscribe(
                    place.stream, place.partition, StartAt.earliest(), cursor=reader.cursor
                ) as messages,
            ):
                first = await anext(messages)
        except (LiftbridgeError, TimeoutError) as error:
            run.load.find(f"{reader.lane.name} could not go on: {error!r}", excusable=False)
            continue
        if not last.offset <= first.offset <= ack.offset:
            raw = await run.raw_position(reader.cursor, place)
            text = f"{reader.lane.name} was at {last.offset} and went on at {first.offset}"
            text = f"{text}; the nodes say {raw}"
            if raw == first.offset - 1:
                run.servers.append(text)
            else:
                run.load.find(text, excusable=False)


async def read_log(run: Run) -> Log:
    """All that the servers have in the end, read past the clients."""
    leaders = await run.stage.leaders()
    log = {}
    of_leader = [(LEADER_STREAM, partition) for partition in range(PARTITIONS)]
    for place in (*run.partitions(), *of_leader):
        messages = await _read_partition(run, *place, leaders.get(place))
        if messages is None:
            continue
        found = {base64.b64decode(value): offset for offset, _, value, _ in messages}
        if len(found) < len(messages):
            [(value, times)] = Counter(value for _, _, value, _ in messages).most_common(1)
            text = f"{base64.b64decode(value)!r} stands {times} times in the log of {place}"
            run.load.find(text, excusable=False)
        log[place] = found
    return log


async def _read_partition(
    run: Run, stream: str, partition: int, leader: str | None
) -> list[tuple[int, str, str, int]] | None:
    """The log of a partition: the leader's, or a follower's where that cannot be read."""
    nodes = sorted(run.stage.living, key=lambda node: node != leader)
    for node in nodes:
        answer = await run.stage.probe.ask(
            "read_log", nodes=run.stage.living, node=node, stream=stream, partition=partition
        )
        if answer["messages"] is not None:
            messages: list[tuple[int, str, str, int]] = answer["messages"]
            return messages
        run.servers.append(f"{stream}/{partition} cannot be read at {node}: {answer['error']}")
    return None

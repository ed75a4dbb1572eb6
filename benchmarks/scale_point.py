"""One size of a group, simulated; prints one line of JSON.

    python -m benchmarks.scale_point --members 100 --partitions 1000 --brokers 10

Brokers, members and the network between them are simulated, in virtual time. Each member is a
process with a host and a client of its own there.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Callable
from typing import Any, Final
from unittest.mock import patch

from liftbridge_aio import Client, ClientOptions, ConsumerGroup, Hook, Message, StreamPartition
from liftbridge_aio.broker.server.call import Answer, Call
from liftbridge_aio.groups import GroupState
from liftbridge_aio.testing.simulation.world import PORT, World
from liftbridge_aio.wire import proto

GROUP: Final = "workers"
LOOK: Final = 0.1
"""Simulated seconds between two looks at what is read."""
BOUND: Final = 600.0
"""Simulated seconds after which a phase has failed."""
IDLE: Final = 20.0
"""Simulated seconds without any change."""
ADDRESSES: Final = 3
"""Brokers whose addresses each member is given."""

Figures = dict[str, Any]


class Calls:
    """What brokers have received and sent since the last `take`."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._bytes = 0
        self._sizes: dict[int, int] = {}
        """Bytes of a metadata answer, by its number of partitions."""

    def take(self, seconds: float) -> Figures:
        """Return the figures of so many seconds, and begin anew."""
        counts, self._counts = self._counts, Counter()
        sent, self._bytes = self._bytes, 0
        return {
            "seconds": round(seconds, 3),
            "calls": sum(counts.values()),
            "by_procedure": dict(counts.most_common()),
            "metadata_bytes": sent,
        }

    def counting(self, answer: Callable[[Call, Answer], Any]) -> Callable[[Call, Answer], Any]:
        """Return `Call.answer` that counts."""

        async def count(call: Call, how: Answer) -> None:
            self._counts[call.name] += 1
            await answer(call, how)

        return count

    def weighing(self, send: Callable[[Call, Any], Any]) -> Callable[[Call, Any], Any]:
        """Return `Call.send_message` that weighs metadata."""

        async def weigh(call: Call, reply: Any) -> None:
            if isinstance(reply, proto.FetchMetadataResponse):
                entries = sum(len(each.partitions) for each in reply.stream_metadata)
                if entries not in self._sizes:  # encoding it takes long
                    self._sizes[entries] = len(bytes(reply))
                self._bytes += self._sizes[entries]
            await send(call, reply)

        return weigh


class Delivered(Hook):
    """Notes when each value was delivered first."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.at: dict[bytes | None, float] = {}

    def delivered(self, message: Message) -> None:
        """See `Hook`."""
        self.at.setdefault(message.value, self._world.now)


class Scale:
    """Members that share partitions: all start, one dies, one joins."""

    def __init__(self, members: int, partitions: int, brokers: int) -> None:
        self._world = World(1, brokers)
        self._hosts = [f"m{number}" for number in range(members)]
        self._partitions = partitions
        # All partitions of a stream that Liftbridge 1.9.0 creates have the same leader.
        sizes = {
            f"s{number}": partitions // brokers + (number < partitions % brokers)
            for number in range(brokers)
        }
        self._streams = {name: size for name, size in sizes.items() if size}
        self._calls = Calls()
        self._delivered = Delivered(self._world)
        self._figures: dict[str, Figures] = {}
        self._members: dict[str, ConsumerGroup] = {}
        self._lives: dict[str, asyncio.Task[None]] = {}
        self._computed = time.process_time()

    def run(self) -> dict[str, Figures]:
        """Run all phases, and return the figures of each."""
        with (
            patch.object(Call, "answer", self._calls.counting(Call.answer)),
            patch.object(Call, "send_message", self._calls.weighing(Call.send_message)),
        ):
            self._world.run(self._main, 10 * BOUND)
        return self._figures

    def _client(self, **options: Any) -> Client:
        addresses = [f"{each}:{PORT}" for each in self._world.broker_ids[:ADDRESSES]]
        return Client(*addresses, options=ClientOptions(**options))

    async def _main(self) -> None:
        async with self._client() as client:
            for name, size in self._streams.items():
                await client.create_stream(name, partitions=size)
            self._note("create", self._calls.take(self._world.now))
            for host in self._hosts:
                self._start(host)
            await self._settle("start")
            await asyncio.sleep(IDLE)
            self._note("idle", self._calls.take(IDLE))
            holders = [host for host in self._hosts if self._members[host].assignment]
            await self._die(client, holders[len(holders) // 2])
            await asyncio.sleep(IDLE / 2)
            self._calls.take(0)
            self._start("late")
            await self._settle("join")
            for life in self._lives.values():
                life.cancel()
            await asyncio.wait(self._lives.values())

    async def _die(self, client: Client, host: str) -> None:
        """Crash a member, and publish to its partitions, to see when they are read again."""
        held = sorted(self._members.pop(host).assignment)
        died = self._world.now
        await self._world.crash(host)
        for place in held:
            await client.publish(place.stream, repr(place).encode(), partition=place.partition)
        await self._settle("death")
        at = [self._delivered.at[repr(place).encode()] for place in held]
        self._figures["death"]["read_again"] = round(max(at, default=died) - died, 3)

    def _start(self, host: str) -> None:
        self._lives[host] = self._world.on(host, self._work(host))

    async def _work(self, host: str) -> None:
        async with (
            self._client(hook=self._delivered, call_timeout=BOUND) as client,
            client.group(GROUP, list(self._streams)) as group,
        ):
            self._members[host] = group
            async for _ in group:
                pass

    async def _settle(self, phase: str) -> None:
        began = self._world.now
        async with asyncio.timeout(BOUND):
            await asyncio.sleep(LOOK)
            while not self._is_settled():  # noqa: ASYNC110 - many things make it true
                await asyncio.sleep(LOOK)
        self._note(phase, self._calls.take(self._world.now - began))

    def _is_settled(self) -> bool:
        """Return True if each partition is delivered by its owner."""
        alive = [host for host, life in self._lives.items() if not life.done()]
        if not self._members.keys() >= set(alive):
            return False
        members = [self._members[host] for host in alive]
        if len({each.epoch for each in members}) > 1:
            return False
        owned: set[StreamPartition] = set()
        for member in members:
            readers = member._readers  # noqa: SLF001 - no public sign of it
            if member.state is not GroupState.STABLE or readers._unsettled:  # noqa: SLF001
                return False
            mine = member.assignment
            if not all(map(readers.is_connected, mine)):
                return False
            owned |= mine
        return len(owned) == self._partitions

    def _note(self, phase: str, figures: Figures) -> None:
        now = time.process_time()
        figures["processor_seconds"] = round(now - self._computed, 1)
        self._computed = now
        self._figures[phase] = figures
        print(phase, figures, file=sys.stderr, flush=True)


def main() -> None:
    """Do what the words say."""
    parser = argparse.ArgumentParser(description=__doc__)
    for name in ("members", "partitions", "brokers"):
        parser.add_argument(f"--{name}", type=int, required=True)
    given = parser.parse_args()
    figures = Scale(given.members, given.partitions, given.brokers).run()
    sys.stdout.write(json.dumps(figures) + "\n")


if __name__ == "__main__":
    main()

"""HTTP among the load of a run: gateways that are killed, writers and readers, and their judge."""

from __future__ import annotations

import asyncio
import itertools
import time
from collections import Counter
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any, Final

from chaos.load import Load
from liftbridge_aio import Client, LiftbridgeError
from liftbridge_aio.durable_streams import START, DurableStream, IdempotentProducer, StreamOptions
from liftbridge_aio.retry import Backoff
from support.servers.gateway import GatewayProcess

GATEWAYS: Final = 2
RATE: Final = 20.0
"""Appends a second by each writer."""
STALL_BOUND: Final = 60.0
"""Seconds in which an append is answered, a gateway that was killed and all servers healed."""
_LIFE: Final = 17.0
"""Seconds between two kills of a gateway."""
_DEATH: Final = 0.5
_POLL: Final = 0.1
_FLAGS: Final = ("--replication-factor", "3", "--min-isr", "2")
_PATIENT: Final = StreamOptions(
    timeout=600.0,
    resume_timeout=600.0,
    response_timeout=5.0,
    max_retries=10**6,
    backoff=Backoff(initial=0.05, maximum=0.5),
)


class HttpLoad:
    """Writes a stream through each gateway, and reads it live through the others and itself.

    Attributes:
        kills: How often a gateway was killed.
        gave_up: What gateways that ended by themselves had written last.
        longest: The longest time in which a writer had nothing answered.
        written: What was appended through each gateway, in order.
        read: What each live reader was given: by the gateway that was written to, and that which
            was read from.
    """

    def __init__(self, load: Load, servers: Sequence[str], folder: Path) -> None:
        self.kills = 0
        self.gave_up: list[str] = []
        self.longest = 0.0
        self.written: list[list[int]] = [[] for _ in range(GATEWAYS)]
        self.read: dict[tuple[int, int], list[int]] = {
            (stream, gateway): [] for stream in range(GATEWAYS) for gateway in range(GATEWAYS)
        }
        self._load = load
        self._stopped = False
        self._killed: set[GatewayProcess] = set()
        self._readings: list[asyncio.Task[None]] = []
        self._gateways = []
        for _ in range(GATEWAYS):
            self._gateways.append(GatewayProcess(",".join(servers), folder, flags=_FLAGS))

    @asynccontextmanager
    async def running(self) -> AsyncIterator[None]:
        """Gateways that run until the block is left."""
        try:
            for gateway in self._gateways:
                await asyncio.to_thread(gateway.start)
            for number in range(GATEWAYS):
                async with self._stream(number, number) as stream:
                    await stream.create(content_type="application/json")
            yield
        finally:
            for gateway in self._gateways:
                await asyncio.to_thread(gateway.kill)

    def work(self) -> list[Coroutine[Any, Any, None]]:
        """Return all that goes on at once."""
        writers = [self._write(number) for number in range(GATEWAYS)]
        follows = [self._follow(*each) for each in self.read]
        return [*writers, *follows, self._kill_often(), *map(self._keep_up, self._gateways)]

    def _stream(self, number: int, gateway: int) -> DurableStream:
        url = f"{self._gateways[gateway].url}/v1/stream/orders-{number}"
        return DurableStream(url, options=_PATIENT)

    async def _write(self, number: int) -> None:
        """Append numbers until nothing more is to be published."""
        what = f"appending to gateway {number}"
        written, began = self.written[number], time.monotonic()
        try:
            async with (
                self._stream(number, number) as stream,
                IdempotentProducer(stream, "till", max_batch_items=10) as producer,
            ):
                for n in itertools.count():
                    if not self._load.publishing:
                        break
                    await producer.append({"n": n})
                    written.append(n)
                    self.longest = max(self.longest, time.monotonic() - began)
                    began = time.monotonic()
                    await asyncio.sleep(1 / RATE)
        except LiftbridgeError as error:
            self._load.find(f"{what} ended with {error!r}")
            await self._load.all_sent.wait()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            self._load.find_untyped(what, error)

    async def _follow(self, stream: int, gateway: int) -> None:
        """Read a stream live until `stop`."""
        reading = asyncio.create_task(self._read(stream, gateway))
        self._readings.append(reading)
        await asyncio.wait([reading])

    async def _read(self, number: int, gateway: int) -> None:
        what = f"reading stream {number} of gateway {gateway}"
        live: Final = "sse" if gateway == number else "long-poll"
        try:
            async with self._stream(number, gateway) as stream:
                async for item, _ in stream.read(offset=START, live=live):
                    self.read[number, gateway].append(item["n"])
        except LiftbridgeError as error:
            if not self._stopped:
                self._load.find(f"{what} ended with {error!r}")
                await self._load.all_sent.wait()
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            self._load.find_untyped(what, error)

    async def _kill_often(self) -> None:
        """Kill one gateway after the other."""
        for gateway in itertools.cycle(self._gateways):
            with suppress(TimeoutError):
                await asyncio.wait_for(self._load.all_sent.wait(), _LIFE)
            if not self._load.publishing:
                return
            self.kills += 1
            self._killed.add(gateway)
            gateway.kill()

    async def _keep_up(self, gateway: GatewayProcess) -> None:
        """Start a gateway again when it has ended, as whoever runs it would, until `stop`."""
        while not self._stopped:
            if not gateway.running:
                if gateway not in self._killed:
                    self.gave_up.append(gateway.log.rstrip().rpartition("\n")[2])
                await asyncio.sleep(_DEATH)
                self._killed.discard(gateway)
                gateway.launch()
            await asyncio.sleep(_POLL)

    def stop(self) -> None:
        """End the readings."""
        self._stopped = True
        for reading in self._readings:
            reading.cancel()

    # The end

    @property
    def behind(self) -> bool:
        """True if a reader lacks something that was appended."""
        return any(
            bool(self.written[stream]) and self.written[stream][-1] not in found
            for (stream, _), found in self.read.items()
        )

    async def judge(self, client: Client) -> tuple[list[str], list[str]]:
        """Return what is wrong, and what the servers have lost.

        Raises:
            LiftbridgeError: a stream could not be read.
        """
        wrong, by_servers = [], []
        logs = await self._logs(client)
        for number, written in enumerate(self.written):
            stored = []
            for gateway in range(GATEWAYS):
                async with self._stream(number, gateway) as stream:
                    found = [item["n"] async for item, _ in stream.read(offset=START)]
                stored.append(found)
                if found != list(range(len(found))) and not set(written) - set(found):
                    wrong.append(f"orders-{number} has gaps or repeats: {_odd(found)}")
            if stored[0] != stored[1]:
                wrong.append(f"the gateways do not agree about orders-{number}")
            lost = sorted(set(written) - set(stored[0]))
            if lost and not logs.intersection(f'{{"n":{n}}}' for n in lost):
                by_servers.append(f"orders-{number}: {lost} were acked by all, and are lost")
                continue
            if lost:
                wrong.append(f"orders-{number}: {lost} were answered, stored, and are not shown")
            wrong += [
                f"a live reader of orders-{number} by gateway {gateway} was given {_odd(found)}"
                for (stream, gateway), found in self.read.items()
                if stream == number and found != stored[0][: len(found)]
            ]
        if self.longest > STALL_BOUND:
            wrong.append(f"an append to a gateway took {self.longest:.1f} s")
        for log in (each.log for each in self._gateways):
            if "Traceback" in log:
                wrong.append(f"a gateway wrote: {log[log.index('Traceback') :][:2000]}")
        return wrong, by_servers

    async def _logs(self, client: Client) -> set[str]:
        """Return the values in all logs of gateways."""
        names = (await client.fetch_metadata()).streams
        return {
            part
            for name in names
            if name.startswith("durable-streams.")
            async for message in client.read(name)
            for part in message.value.decode().replace("},{", "}\n{").splitlines()
        }

    def last_words(self) -> list[str]:
        """Return the ends of the logs of the gateways."""
        return [gateway.log[-1000:] for gateway in self._gateways]

    def text(self) -> str:
        """Return figures."""
        counts = ", ".join(str(len(each)) for each in self.written)
        return (
            f"{counts} appended; {self.kills} kills; ended by themselves: {self.gave_up};"
            f" longest stall {self.longest:.1f} s"
        )


def _odd(found: list[int]) -> str:
    """Return what is repeated and what is missing in a list of numbers that should rise by one."""
    repeated = [n for n, count in Counter(found).items() if count > 1]
    missing = sorted(set(range(max(found, default=-1) + 1)).difference(found))
    return f"{len(found)} numbers, repeated {repeated[:20]}, missing {missing[:20]}"

"""Scene of faults: proofs that everything works, and findings."""

from __future__ import annotations

import asyncio
import dataclasses
import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from chaos.crew import ALL_STREAMS, FLIPPED_STREAM, OPTIONS, STREAMS, Crew, partitions_of
from chaos.evidence import FaultRecord, Recovery
from chaos.inflict import inflict, try_fresh_client
from chaos.journal import Place
from chaos.lanes import recovered_at
from chaos.load import Load
from chaos.plan import SHORT_SECONDS, Planned
from chaos.stage import ClusterLost, Stage
from liftbridge_aio import StartAt

FIRST_ACKS_WITHIN: Final = 40.0
WHOLE_WITHIN: Final = 60.0
STORY_FROM: Final = 3.0
"""Seconds of a recovery from which on it is kept what clients told meanwhile."""
STUCK_AFTER: Final = 30.0
"""Seconds that clients get at most to work again: after that they are held to be stuck."""
POLL: Final = 0.02
GUARD_POLL: Final = 0.1

Tell = Callable[[str], None]


class Run:
    """One run, as faults see it and as it is told afterwards."""

    def __init__(self, stage: Stage, tell: Tell, *, http: bool) -> None:
        self.stage = stage
        self.options = OPTIONS
        self.load = Load()
        self.crew = Crew(stage, self.load, self._keep_nodes_up, http=http)
        self.faults: list[FaultRecord] = []
        self.servers: list[str] = []
        self.crashes: list[str] = []
        """Failures of the run itself."""
        self.began = time.monotonic()
        self._tell = tell
        self._acks = 0
        self._fresh = 0

    def partitions(self) -> list[tuple[str, int]]:
        """The partitions that nothing of may be lost."""
        return self.crew.places

    async def checkpoint(self, *, first: bool = False, without: str | None = None) -> None:
        """Have the witness get its acks, then the clients work again; note how long that took.

        Args:
            first: whether nothing has happened yet, so that nothing is noted.
            without: a node that clients cannot reach now: what it leads is not waited for, nor is
                the group, which it may coordinate.

        Raises:
            ClusterLost: The witness did not get its acks.
        """
        self._acks += 1
        answer = await self.raw_acks(f"raw-{self._acks}")
        acked_at = answer["acked_at"]
        if acked_at is None:
            raise ClusterLost(answer["missing"])
        lanes = list(self.load.lanes.values())
        if without is not None:
            leaders = await self.stage.leaders()
            lanes = [
                lane
                for lane in lanes
                if not lane.name.startswith("group")
                and (lane.place is None or leaders.get(lane.place, without) != without)
            ]
        until = acked_at + STUCK_AFTER
        while (found := recovered_at(lanes, acked_at)) is None:
            if time.monotonic() > until:
                silent = [each.name for each in lanes if each.first_after(acked_at) is None]
                await self._judge_silence(silent)
                found = until, silent[0]
                break
            await asyncio.sleep(POLL)
        if not first and self.faults:
            at, last = found
            record = self.faults[-1]
            record.recoveries.append(Recovery(at - acked_at, last))
            if at - acked_at > STORY_FROM:
                record.story += self._story(record.began, acked_at)

    def _story(self, since: float, zero: float) -> list[str]:
        """Return the events of clients since a moment, by time from another."""
        return [
            f"{when - zero:+8.3f} s {client}: {event}"
            for when, client, event in self.crew.told
            if when >= since
        ]

    async def _judge_silence(self, silent: list[str]) -> None:
        """Find out whose fault it is that something does not go on.

        Raises:
            ClusterLost: The servers cannot be read, by the witness either.
        """
        answer = await self.stage.probe.ask(
            "unreadable",
            nodes=self.stage.living,
            targets=self.partitions(),
        )
        text = f"stuck {self._after()}: {', '.join(silent)}"
        if answer["unreadable"]:
            text += f"; the witness cannot read {answer['unreadable']}"
            raise ClusterLost(text)
        self.load.find(text)

    def _after(self) -> str:
        return f"after fault {self.faults[-1].number}" if self.faults else "at the start"

    async def raw_acks(self, prefix: str) -> dict[str, Any]:
        """Have the witness publish to every partition, and note that it did."""
        places = [(s, n) for s in STREAMS for n in range(partitions_of(s))]
        answer = await self.stage.first_acks(places, prefix, FIRST_ACKS_WITHIN)
        now = time.monotonic()
        for stream, partition, text, acked in answer["sends"]:
            value = text.encode()
            sends = self.load.journal.sent_to(stream)
            # One producer each: there is no order among them.
            sends.sent(value, partition, producer=text, time=now)
            outcome = sends.acked if acked else sends.unknown
            outcome(value, partition, producer=text, time=now)
        return answer

    async def whole(self, *, addresses: bool = False) -> None:
        """Wait until all replicas are in sync again.

        Raises:
            ClusterLost: They were not in time.
        """
        answer = await self.stage.whole(STREAMS, WHOLE_WITHIN, addresses=addresses)
        if answer["whole_at"] is None:
            raise ClusterLost(answer["lacking"])

    def hold_up_reader(self, planned: Planned) -> Callable[[], None]:
        """Let one reader read nothing more, until what this returns is called."""
        readers = [each for each in self.crew.readers if each.place.stream in ALL_STREAMS]
        reader = planned.choose([each for each in readers if each.name != "slow"])
        began = time.monotonic()
        reader.may_go_on.clear()

        def go_on() -> None:
            reader.may_go_on.set()
            reader.lane.excused.append((began, time.monotonic()))

        return go_on

    def reopen_flipped_reader(self) -> None:
        """Let the reader of the damaged stream begin anew."""
        for reader in self.crew.readers:
            if reader.place.stream == FLIPPED_STREAM:
                reader.reopen(StartAt.new_only())

    async def fresh_client(self, *seeds: str) -> str:
        """Have a new client connect, publish and read; whatever fails is a finding."""
        self._fresh += 1
        value = f"fresh-{self._fresh}".encode()
        stream = ALL_STREAMS[self._fresh % len(ALL_STREAMS)]
        producer = value.decode()
        sends = self.load.journal.sent_to(stream)
        sends.sent(value, 0, producer=producer, time=time.monotonic())
        began = time.monotonic()
        options = dataclasses.replace(self.options, hook=self.crew.watch("new client"))
        try:
            went = await try_fresh_client(seeds, options, stream, value)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is a finding
            sends.unknown(value, 0, producer=producer, time=time.monotonic())
            self.load.find(f"a new client told of {seeds}: {error!r}")
            went = repr(error)
        else:
            sends.acked(value, 0, producer=producer, time=time.monotonic())
        if time.monotonic() - began > STORY_FROM:
            self.faults[-1].story += self._story(began, began)
        return went

    async def raw_position(self, cursor: str, place: Place) -> int | None:
        """A cursor as the nodes tell it; None if none does."""
        answer = await self.stage.probe.ask(
            "fetch_cursor",
            nodes=self.stage.living,
            cursor=cursor,
            stream=place.stream,
            partition=place.partition,
        )
        position: int | None = answer["position"]
        return position

    async def play(self, faults: Iterator[Planned], until: float) -> None:
        """Do the faults of a plan, without those that would last beyond the end."""
        while (left := until - time.monotonic()) >= SHORT_SECONDS:
            planned = next(faults)
            if planned.usual_seconds <= left:
                await self._play(planned)

    async def _play(self, planned: Planned) -> None:
        record = FaultRecord(planned.number, planned.kind, time.monotonic())
        self.faults.append(record)
        try:
            record.detail = await inflict(self, planned)
        except ClusterLost as lost:
            self.spoil(f"the servers did not work: {lost}")
            await self._mend()
            await self.checkpoint()
        record.ended = time.monotonic()
        took = record.ended - record.began
        recovered = ", ".join(map(str, record.recoveries)) or "-"
        self._tell(
            f"{record.began - self.began:7.1f} s {planned.number:3}. {planned.kind.value}: "
            f"{record.detail or record.spoiled}; whole after {took:.1f} s, "
            f"recovered in {recovered}"
        )

    async def _keep_nodes_up(self) -> None:
        """Start nodes again that end by themselves, as a service manager does, and tell of them."""
        while self.load.running:
            for node in self.stage.died():
                words = self.stage.last_words(node)
                self.spoil(f"{node} ended by itself: {words.splitlines()[0]}")
                self.servers.append(words)
                await self.stage.start(node)
            await asyncio.sleep(GUARD_POLL)

    def spoil(self, why: str) -> None:
        """Note that the servers did something that nobody asked them for."""
        self.servers.append(f"{self._after()}: {why}")
        if self.faults and not self.faults[-1].ended:
            record = self.faults[-1]
            record.spoiled = record.spoiled or why

    async def _mend(self) -> None:
        """Restart nodes until they work together.

        Raises:
            ClusterLost: They never did.
        """
        for node in self.stage.cluster.nodes:
            await self.stage.kill(node)
            await self.stage.start(node)
            answer = await self.stage.whole(STREAMS, WHOLE_WITHIN / 2)
            if answer["whole_at"] is not None:
                return
        raise ClusterLost(answer["lacking"])

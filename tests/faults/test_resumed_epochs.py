"""A partition that a member keeps is read on, after a break, in the epoch that the group is in."""

from __future__ import annotations

from typing import Final

from liftbridge_aio import Client, ClientOptions
from liftbridge_aio.broker import EmbeddedBroker
from support.faults import QUICK
from support.groups.group_watcher import EARLIEST, holds, it_is, shared
from support.raw import eventually

DATA_PATHS: Final = ["lane"]


async def test_who_resumes_names_the_epoch_of_now() -> None:
    """With an older one it would be refused, or be taken for a member of the past."""
    asked: list[tuple[str, int]] = []

    def note(request: object) -> bool:
        consumer = getattr(request, "consumer", None)
        if consumer is not None:
            asked.append((consumer.consumer_id, consumer.group_epoch))
        return False

    async with (
        EmbeddedBroker(cursors_partitions=1) as broker,
        Client(broker.address, options=ClientOptions(backoff=QUICK)) as client,
    ):
        await client.create_stream("s", partitions=2)
        broker.faults.delay("Subscribe", 0, when=note, times=None)
        async with client.group("g", ["s"], consumer_id="a", start=EARLIEST) as first:
            await holds(first, 2)
            async with client.group("g", ["s"], consumer_id="b", start=EARLIEST) as second:
                await shared([first, second], {1})
                epoch = second.epoch
                assert first.epoch == epoch != 0
                await eventually(it_is(lambda: ("b", epoch) in asked))
                asked.clear()
                await broker.faults.cut_links(carrying="Subscribe")
                await eventually(it_is(lambda: len(asked) >= 2))
                assert sorted(asked) == [("a", epoch), ("b", epoch)]

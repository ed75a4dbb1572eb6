"""A bridge copies everything, once where that is promised."""

from __future__ import annotations

from liftbridge_aio.bridge import Bridge
from support.bridges import Ends
from support.streaming_clients import publish_many


async def test_a_channel_is_copied_to_a_stream(ends: Ends) -> None:
    await publish_many(ends.stan, ends.name, 1000)
    progress = await Bridge(ends.stan_url, ends.lift_url, once=True).run()
    assert progress.copied == 1000
    await publish_many(ends.stan, ends.name, 10)
    progress = await Bridge(ends.stan_url, ends.lift_url, once=True).run()
    assert (progress.copied, progress.repeats) == (10, 0)
    assert await ends.in_stream() == [b"%d" % n for n in (*range(1000), *range(10))]

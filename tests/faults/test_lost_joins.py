"""A join whose answer was lost is undone at once, and not when the group misses its member."""

from __future__ import annotations

from typing import Final

import pytest

from liftbridge_aio import Client, ClientOptions, RequestTimeout
from liftbridge_aio.broker import EmbeddedBroker
from liftbridge_aio.broker.faults.fault_plan import FailureCode
from support.faults import QUICK
from support.groups.group_watcher import holds

DATA_PATHS: Final = ["lane"]


async def test_nobody_is_left_behind_whom_the_group_would_wait_for() -> None:
    async with (
        EmbeddedBroker(cursors_partitions=1, consumer_timeout=120) as broker,
        Client(broker.address, options=ClientOptions(backoff=QUICK)) as client,
    ):
        await client.create_stream("s", partitions=2)
        broker.faults.fail("JoinConsumerGroup", at="reply")
        async with client.group("g", ["s"]) as group:
            await holds(group, 2)
        broker.faults.assert_all_applied()
        assert "g" not in (await client.fetch_metadata(groups=["g"])).groups


@pytest.mark.parametrize("code", ["FAILED_PRECONDITION", "INTERNAL", "UNAVAILABLE"])
async def test_nobody_is_left_behind_by_joins_that_are_never_confirmed(code: FailureCode) -> None:
    """A server answers with the first of these if a join that makes the group is in doubt."""
    text = "raft operation timed out"
    async with (
        EmbeddedBroker(cursors_partitions=1, consumer_timeout=120) as broker,
        Client(broker.address, options=ClientOptions(backoff=QUICK)) as client,
    ):
        await client.create_stream("s", partitions=2)
        broker.faults.fail("JoinConsumerGroup", at="reply", code=code, text=text, times=None)
        with pytest.raises(RequestTimeout, match=text):
            await client.group("g", ["s"], timeout=1).__aenter__()
        assert "g" not in (await client.fetch_metadata(groups=["g"])).groups

"""Keep the position of a query as that of a consumer group, for those who watch groups.

The query itself continues from its checkpoint, and never reads these positions. So a failure is
a warning, and not one of the query.
"""

from __future__ import annotations

import logging

from liftbridge_aio._client.client import Client
from liftbridge_aio._core.bounded_gather import bounded_gather
from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.groups.fenced_cursors import group_cursor
from liftbridge_aio.model import StreamPartition
from liftbridge_aio.options import timer_seconds
from liftbridge_aio.spark.connection import connection_to
from liftbridge_aio.spark.core.offsets import Offsets
from liftbridge_aio.spark.core.options import ReadOptions

logger = logging.getLogger("liftbridge_aio.spark")


def show_positions(options: ReadOptions, group: str, end: Offsets, shown: Offsets) -> Offsets:
    """Store the last offsets that were read, as far as they have changed.

    Blocks the calling thread for a call's timeout at most.

    Args:
        options: of the query.
        group: the id of the group.
        end: the offsets after the last ones.
        shown: what was stored last.

    Returns:
        What is stored now.
    """
    changed = [place for place, offset in end.items() if offset and shown.get(place) != offset]
    if not changed:
        return shown

    async def store(client: Client) -> None:
        async def one(place: StreamPartition) -> None:
            await client.set_cursor(group_cursor(group), *place, end[place] - 1)

        await bounded_gather(changed, one)

    limit = timer_seconds(options.connection.client_options().call_timeout)
    try:
        connection_to(options.connection).run(store, limit, limit)
    except LiftbridgeError as error:
        logger.warning(
            "the position of the query is not shown as that of the group %s, and behind it until"
            " the next batch: %s",
            group,
            error,
        )
        return shown
    return end

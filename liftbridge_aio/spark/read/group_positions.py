"""Keep the position of a query as that of a consumer group, for those who watch groups.

The query itself continues from its checkpoint, and never reads these positions. So a failure is
a warning, and not one of the query.
"""

from __future__ import annotations

import logging

from liftbridge_aio._client.client import Client
from liftbridge_aio._core.log_position import note_cursor
from liftbridge_aio._runtime.bounded_gather import bounded_gather
from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.groups.fenced_cursors import group_cursor
from liftbridge_aio.model import StreamPartition
from liftbridge_aio.options import timer_seconds
from liftbridge_aio.spark.connection import connection_to
from liftbridge_aio.spark.core.offsets import Offsets
from liftbridge_aio.spark.core.options import ReadOptions

logger = logging.getLogger("liftbridge_aio.spark")


class GroupPositions:
    """The positions of a query that a group has.

    Args:
        options: of the query.
        group: the id of the group.
    """

    def __init__(self, options: ReadOptions, group: str) -> None:
        self._options = options
        self._group = group
        self._newest = Offsets({})
        """The position that was shown last, or was to be: a failed attempt is not repeated."""
        self._stored: dict[StreamPartition, int] = {}
        """The offsets that were stored last."""
        self._cursors: dict[tuple[StreamPartition, int], str] = {}
        """The ids of cursors, by partition and the creation time of its stream."""

    def show(self, position: Offsets) -> None:
        """Store the last offsets that were read, as far as they have changed.

        Blocks the calling thread for a call's timeout at most.

        Args:
            position: the offsets after the last ones.
        """
        if position == self._newest:
            return
        self._newest = position
        changed = [
            place for place, offset in position.items() if self._stored.get(place, 0) != offset
        ]
        limit = timer_seconds(self._options.connection.client_options().call_timeout)

        async def store(client: Client) -> None:
            metadata = client._living.network.metadata  # noqa: SLF001 - users need no call for it
            for stream in {place.stream for place in changed}:
                await metadata.stream(stream, limit, renew=True)

            async def one(place: StreamPartition) -> None:
                created = position.created.get(place.stream, 0)
                await self._store(client, place, position[place], created, limit)

            await bounded_gather(changed, one)

        try:
            connection_to(self._options.connection).run(store, limit, limit)
        except LiftbridgeError as error:
            logger.warning(
                "the position of the query is not shown as that of the group %s, and behind it"
                " until the next batch: %s",
                self._group,
                error,
            )

    async def _store(
        self, client: Client, place: StreamPartition, offset: int, created: int, timeout: float
    ) -> None:
        """Store the offset before this one, unless its stream was created again since.

        Raises:
            LiftbridgeError: it could not be stored.
        """
        cursors = client._living.cursors  # noqa: SLF001 - users need no call for it
        cursor = self._cursors.get((place, created))
        if cursor is None:
            log = await cursors.locate(group_cursor(self._group), *place, timeout)
            if created not in {0, log.created}:
                return
            if log.note_due:
                await cursors.set(note_cursor(log.cursor), *place, log.created, timeout)
            cursor = self._cursors[place, created] = log.cursor
        if offset:
            await cursors.set(cursor, *place, offset - 1, timeout)
        self._stored[place] = offset

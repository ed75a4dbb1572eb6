"""One Subscribe call: a partition's messages, from its start position to its stop position."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from liftbridge_aio.broker.cluster import messages
from liftbridge_aio.broker.cluster.group_subscribers import GroupSubscriber
from liftbridge_aio.broker.cluster.partition import Partition
from liftbridge_aio.broker.errors import BrokerError, Code
from liftbridge_aio.broker.storage.core.log import PartitionLog
from liftbridge_aio.broker.storage.core.reader import ReadEnd, Reader, open_reader
from liftbridge_aio.broker.storage.core.segment import CorruptSegment
from liftbridge_aio.wire import proto

from .broker_context import BrokerContext
from .call import Call
from .settings import ServerProfile

_BATCH: Final = 32  # messages sent before other tasks run
_CODES: Final = {
    ReadEnd.STOP_REACHED: Code.RESOURCE_EXHAUSTED,
    ReadEnd.READONLY: Code.RESOURCE_EXHAUSTED,
    ReadEnd.CLOSED: Code.FAILED_PRECONDITION,
    ReadEnd.DELETED: Code.NOT_FOUND,
    ReadEnd.SEGMENT_REMOVED: Code.UNKNOWN,
    ReadEnd.BACKWARDS_SEGMENT_REMOVED: Code.UNKNOWN,
    ReadEnd.EOF: Code.UNKNOWN,
}

logger = logging.getLogger("liftbridge_aio.broker")


class Subscriber:
    """Reads for one client."""

    def __init__(
        self, context: BrokerContext, profile: ServerProfile, delivered: Callable[[int], None]
    ) -> None:
        """Read from the partitions of a broker.

        Args:
            context: the broker.
            profile: the server version to behave like.
            delivered: called with the number of messages sent.
        """
        self._context = context
        self._profile = profile
        self._delivered = delivered
        self._changed = asyncio.Event()

    async def serve(self, call: Call, request: proto.SubscribeRequest) -> None:
        """Send messages, first an empty one that confirms the subscription.

        Return only if another member of the group has taken over. May be cancelled at any time.

        Raises:
            BrokerError: there is nothing to read, or nothing more; the text has the reason.
        """
        partition = self._find(request)
        positions = messages.read_range(request, reads_in_reverse=self._profile.reads_in_reverse)
        consumer = request.consumer
        if consumer is None or not consumer.group_id:
            log = partition.log  # a later resume replaces the partition's log
            await self._send(call, partition, log, open_reader(log, positions))
            return
        groups = partition.group_subscribers
        groups.check(consumer.group_id, consumer.group_epoch)
        log = partition.log
        reader = open_reader(log, positions)
        subscriber = GroupSubscriber(
            consumer.group_id, consumer.consumer_id, consumer.group_epoch, self._changed.set
        )
        groups.add(subscriber)
        try:
            await self._send(call, partition, log, reader, subscriber)
        finally:
            groups.remove(subscriber)

    def _find(self, request: proto.SubscribeRequest) -> Partition:
        group = request.consumer.group_id if request.consumer else ""
        if group and request.consumer and not request.consumer.consumer_id:
            raise BrokerError(
                Code.INVALID_ARGUMENT, "Consumer id cannot be empty when group id is provided"
            )
        partition = self._context.node.partition(request.stream, request.partition)
        if partition is None:
            raise BrokerError(Code.NOT_FOUND, "No such partition")
        if request.resume:
            self._context.resume(request.stream, request.partition)
        if not self._context.node.leads(partition):
            if not request.read_isr_replica:
                raise BrokerError(Code.FAILED_PRECONDITION, "Server not partition leader")
            if group:
                raise BrokerError(
                    Code.INVALID_ARGUMENT, "Consumer groups not compatible with ReadISRReplica"
                )
        return partition

    async def _send(
        self,
        call: Call,
        partition: Partition,
        log: PartitionLog,
        reader: Reader,
        subscriber: GroupSubscriber | None = None,
    ) -> None:
        partition.subscribers += 1
        log.watch(self._changed.set)
        try:
            await call.send_message(proto.Message())
            while subscriber is None or not subscriber.is_replaced:
                self._changed.clear()
                try:
                    batch = reader.poll(_BATCH)
                except (OSError, CorruptSegment) as error:
                    logger.exception("cannot read %s/%d", partition.stream, partition.number)
                    raise BrokerError(Code.UNKNOWN, f"failed to read message: {error}") from error
                if isinstance(batch, ReadEnd):
                    raise BrokerError(_CODES[batch], batch.value)
                if not batch:
                    await self._changed.wait()
                for message in batch:
                    await call.send_message(messages.stored_message(message))
                self._delivered(len(batch))
                await asyncio.sleep(0)  # sending may never wait
        finally:
            log.unwatch(self._changed.set)
            partition.subscribers -= 1

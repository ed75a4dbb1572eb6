"""One Subscribe call: a partition's messages, from where it is asked to where it is asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from liftbridge_aio.wire import proto

from . import messages
from .call import Call
from .errors import BrokerError, Code
from .group_subscribers import GroupSubscriber
from .log import PartitionLog
from .member import Member
from .partition import Partition
from .profile import ServerProfile
from .reader import ReadEnd, Reader, open_reader
from .segment import CorruptSegment

_BATCH: Final = 32  # messages sent before other tasks get a turn
_CODES: Final = {
    ReadEnd.STOP_REACHED: Code.RESOURCE_EXHAUSTED,
    ReadEnd.READONLY: Code.RESOURCE_EXHAUSTED,
    ReadEnd.CLOSED: Code.FAILED_PRECONDITION,
    ReadEnd.DELETED: Code.NOT_FOUND,
    ReadEnd.SEGMENT_REMOVED: Code.UNKNOWN,
    ReadEnd.BACKWARDS_SEGMENT_REMOVED: Code.UNKNOWN,
    ReadEnd.EOF: Code.UNKNOWN,
}

_log = logging.getLogger("liftbridge_aio.broker")


class Subscriber:
    """Reads on behalf of one client."""

    def __init__(
        self, member: Member, profile: ServerProfile, delivered: Callable[[int], None]
    ) -> None:
        """Read from the partitions of a broker.

        Args:
            member: the broker.
            profile: which server it behaves like.
            delivered: told how many messages were sent.
        """
        self._member = member
        self._profile = profile
        self._delivered = delivered
        self._changed = asyncio.Event()

    async def serve(self, call: Call, request: proto.SubscribeRequest) -> None:
        """Send messages, first an empty one that says all is well (W16).

        Returns only where another member of the group took over. May be cancelled at any time.

        Raises:
            BrokerError: why there is nothing to read, or nothing more.
        """
        partition = self._find(request)
        wanted = messages.read_range(request, reads_in_reverse=self._profile.reads_in_reverse)
        consumer = request.consumer
        if consumer is None or not consumer.group_id:
            log = partition.log  # a later resume gives the partition another log
            await self._send(call, partition, log, open_reader(log, wanted))
            return
        groups = partition.group_subscribers
        groups.check(consumer.group_id, consumer.group_epoch)
        log = partition.log
        reader = open_reader(log, wanted)
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
            text = "Consumer id cannot be empty when group id is provided"
            raise BrokerError(Code.INVALID_ARGUMENT, text)
        partition = self._member.node.partition(request.stream, request.partition)
        if partition is None:
            raise BrokerError(Code.NOT_FOUND, "No such partition")
        if request.resume:
            self._member.resume(request.stream, request.partition)
        if not self._member.node.leads(partition):
            if not request.read_isr_replica:
                raise BrokerError(Code.FAILED_PRECONDITION, "Server not partition leader")
            if group:
                text = "Consumer groups not compatible with ReadISRReplica"
                raise BrokerError(Code.INVALID_ARGUMENT, text)
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
                    _log.exception("cannot read %s/%d", partition.stream, partition.number)
                    text = f"failed to read message: {error}"
                    raise BrokerError(Code.UNKNOWN, text) from error
                if isinstance(batch, ReadEnd):
                    raise BrokerError(_CODES[batch], batch.value)
                if not batch:
                    await self._changed.wait()
                for message in batch:
                    await call.send_message(messages.stored_message(message))
                self._delivered(len(batch))
                await asyncio.sleep(0)  # sending need not wait for anything
        finally:
            log.unwatch(self._changed.set)
            partition.subscribers -= 1

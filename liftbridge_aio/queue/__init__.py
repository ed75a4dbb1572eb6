"""Queues: messages of a stream that are acked one by one, and delivered again until they are.

    async with client.queue("orders", group="billing") as queue:
        async for delivery in queue:
            async with delivery:
                await charge(delivery.value)

- `acks_store`: Stores the acks of a queue: in a stream of its own, or in memory only.
- `delivery`: `Delivery`: a message that was handed out, to be acked, nacked or rejected.
- `dispatcher`: Hands out the messages of a queue, takes their answers, and stores what is settled.
- `errors`: The errors of queues, a tree below `LiftbridgeError`.
- `giving_up`: Does what is to be done with messages that are given up: dead letters, callback, log.
- `handler_pool`: Calls a handler for each delivery of a queue, for several concurrently.
- `plan`: The validated arguments of `Client.queue`.
- `policies`: What a queue does when handlers fail: delays between attempts, dead letters, backoff.
- `queue`: The handle of a member of a queue: an async context manager and an async iterator.
- `statistics`: Figures of a queue, and what its messages wait for, in words.
- `core/`: Pure parts: acks of a partition, and how many messages may be in flight on which
  connection.
"""

from .core.ack_window import Order
from .delivery import Delivery, Nack, Reject
from .errors import AlreadySettled, LeaseExpired, QueueError, QueueTaken, TooManyDeadLetters
from .policies import DeadLetter, Exponential, Probing
from .queue import Queue
from .statistics import PartitionStatistics, QueueStatistics

__all__ = [
    "AlreadySettled",
    "DeadLetter",
    "Delivery",
    "Exponential",
    "LeaseExpired",
    "Nack",
    "Order",
    "PartitionStatistics",
    "Probing",
    "Queue",
    "QueueError",
    "QueueStatistics",
    "QueueTaken",
    "Reject",
    "TooManyDeadLetters",
]

"""Queues: messages of a stream that are acked one by one, and delivered again until they are.

    async with client.queue("orders", group="billing") as queue:
        async for delivery in queue:
            async with delivery:
                await charge(delivery.value)

- `acks_store`: Stores the acks of a queue: in a stream of its own, or in memory only.
- `acks_writer`: Claims partitions, and stores what is settled of them, again where that has failed.
- `batches`: Lists of deliveries, each of which may be answered as one.
- `borrower`: Asks the owners of partitions for messages, and sends them the answers.
- `delivery`: `Delivery`: a message that was handed out, to be acked, nacked or rejected.
- `delivery_runner`: Calls a handler for each delivery of a queue, for several concurrently.
- `dispatcher`: Hands out the messages of a queue, and takes their answers.
- `errors`: The errors of queues, a tree below `LiftbridgeError`.
- `giving_up`: Does what is to be done with messages that are given up: dead letters, callback, log.
- `held_lease`: A lease of a member that does not own the partition, and the answer to it.
- `lease_bus`: Carries frames about leases between members, over NATS.
- `leases`: Shares the messages of a queue among all its members, whoever owns the partitions.
- `lender`: Hands messages of a member's partitions to other members.
- `partitions`: The partitions that a member of a queue holds: claims, releases, capacities and
  times.
- `options`: `QueueOptions`: how a queue delivers messages, apart from which queue it is.
- `plan`: The validated arguments of `Client.queue`.
- `policies`: What a queue does when handlers fail: delays between attempts, dead letters, backoff.
- `queue`: The handle of a member of a queue: an async context manager and an async iterator.
- `retry_tiers`: Streams in which messages wait for their next attempt, one for each length of the
  wait.
- `statistics`: Figures of a queue, and what its messages wait for, in words.
- `transactions`: Transactions that publish results and ack a delivery in one: the acks record is
  their commit.
- `waiters`: The tasks that wait for a delivery, each in its turn.
- `core/`: Pure parts: acks of a partition, and how many messages may be in flight on which
  connection.
"""

from liftbridge_aio.handlers import Nack, Reject

from .batches import DeliveryBatch
from .core.ack_window import Order
from .delivery import Delivery, ValueDelivery
from .errors import (
    AlreadySettled,
    AnswerInDoubt,
    FailedElsewhere,
    LeaseExpired,
    QueueError,
    QueueTaken,
    RetryFailed,
    TooManyDeadLetters,
)
from .options import QueueOptions
from .policies import DeadLetter, Exponential, Probing, RetryStreams
from .queue import Queue
from .statistics import PartitionStatistics, QueueStatistics
from .transactions import DeliveryTransaction

__all__ = [
    "AlreadySettled",
    "AnswerInDoubt",
    "DeadLetter",
    "Delivery",
    "DeliveryBatch",
    "DeliveryTransaction",
    "Exponential",
    "FailedElsewhere",
    "LeaseExpired",
    "Nack",
    "Order",
    "PartitionStatistics",
    "Probing",
    "Queue",
    "QueueError",
    "QueueOptions",
    "QueueStatistics",
    "QueueTaken",
    "Reject",
    "RetryFailed",
    "RetryStreams",
    "TooManyDeadLetters",
    "ValueDelivery",
]


def __dir__() -> list[str]:
    return __all__

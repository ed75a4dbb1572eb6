"""Queues: each message of a stream is delivered to one worker, and redelivered until it is acked.

    async with client.queue("orders", group="billing") as queue:
        async for delivery in queue:
            async with delivery:
                await charge(delivery.value)

How it works. A queue is a member of a consumer group (`liftbridge_aio.groups`):

1. `queue`: `Queue` joins the group, which assigns partitions to this member.
2. `partitions`: a new partition is claimed: its stored acks are loaded (`acks_store`), and an ack
   window (`core.ack_window`) decides from then on which message is delivered when.
3. `dispatcher`: chooses the next delivery for a task that iterates, or for a handler of `run`
   (`delivery_runner`), and passes its answer to the window.
4. `acks_writer` stores the acks every `commit_interval`, and when the partition is released.
5. `giving_up`: a message that has failed for good becomes a dead letter; one with a long delay is
   moved to a retry stream (`retry_tiers`).

Terms: a message is *settled* once it is acked, dead-lettered or moved. An *attempt* is one delivery
of it. The *owner* of a partition is the member to which the group has assigned it. After a crash
the first unsettled messages are *suspects*, delivered one at a time. A *lease* is a delivery to a
member that is not the owner.

- `acks_store`: Storage of acks: in a stream of the group, or in memory.
- `acks_writer`: Claims partitions and stores their acks, with retries.
- `batches`: Lists of deliveries that are answered together.
- `borrower`: The borrower's side of leases: asks owners for messages, and sends them the answers.
- `delivery`: `Delivery`: one attempt to process a message, to be acked, nacked or rejected.
- `delivery_runner`: Calls the handler of `Queue.run` for each delivery, several concurrently.
- `dispatcher`: Delivers the messages of a queue, and applies the answers.
- `errors`: The errors of queues, a tree below `LiftbridgeError`.
- `giving_up`: Dead-letters messages: dead letter, callback and log; or moves them to retry streams.
- `held_lease`: A lease at the member that holds it, and the answer to it.
- `lease_bus`: Sends and receives frames about leases, over NATS.
- `leases`: Leases: members without work process messages of other members' partitions, over NATS.
- `lender`: The owner's side of leases: leases messages of its partitions to other members.
- `options`: `QueueOptions`: how a queue delivers messages.
- `partitions`: The partitions of a member: claims and releases, capacities, and the timer.
- `plan`: The validated arguments of `Client.queue`, and the parts of the client that a queue uses.
- `policies`: Policies for failed attempts: delays, retry streams, dead letters, backoff.
- `queue`: The handle of a member of a queue: an async context manager and an async iterator.
- `retry_tiers`: Retry streams: messages wait in them for their next attempt, one stream per length
  of the wait.
- `statistics`: Counts of a queue, and sentences about what its messages wait for.
- `transactions`: Transactions that publish results and ack a delivery atomically.
- `waiters`: Tasks that wait for a delivery, first come first served.
- `core/`: Pure parts: the states of attempts, windows, leases and retry streams.
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

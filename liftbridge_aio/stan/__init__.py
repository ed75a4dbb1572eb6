"""A client of NATS Streaming (STAN): publishes to channels, subscribes with durables and queues.

    async with stan.Client("nats://127.0.0.1", cluster="test-cluster", client_id="a") as client:
        await client.publish("orders", b"3 rolls")
        async with client.subscribe("orders", durable="billing") as orders:
            async for message in orders:
                print(message.data)

The guide is `docs/stan.md`.

- `client`: The client of NATS Streaming, as users see it.
- `deliveries`: Messages of a subscription between NATS and their readers, and the acks on the way
  back.
- `errors`: Errors of the client of NATS Streaming; it raises others of `liftbridge_aio.errors` too.
- `events`: Events that a client tells of: frozen values, one class for each kind.
- `link`: The connection to NATS that a client uses: one queue of all that it sends, and its
  requests.
- `message`: A message of a channel, as a subscription delivers it.
- `options`: Options of a client and of a subscription: frozen, and checked when created.
- `publisher`: Publishes between the call and their outcome: the window, the acks and the deadlines.
- `runner`: Calls a handler for each message of a subscription.
- `runtime`: An open client: its session, the tasks that keep it, and what opens another when it is
  lost.
- `session`: One session at the server: its subjects, its inboxes, its requests and its pings.
- `subscription`: A subscription to a channel: an async context manager and an async iterator of
  messages.
- `core/`: Pure parts of the client of NATS Streaming: no event loop, clock, chance or I/O.
"""

from .client import Client, ClientStatistics
from .core.start import StartAt
from .core.states import ClientState, SubscriptionState
from .deliveries import DeliveryCounts
from .errors import (
    AckedAutomatically,
    ClientIdTaken,
    CloseTimeout,
    NoStreamingServer,
    NotSupported,
    PublishNotPermitted,
    RequestNotPermitted,
    SessionLost,
    StreamingError,
    SubscribeTimeout,
    SubscriptionClosed,
    UnsubscribeTimeout,
)
from .events import Event, GaveUp, HandlerFailed, Lost, Recovered, SubscriptionFailed
from .message import Message
from .options import ClientOptions
from .publisher import Publish, PublishCounts
from .subscription import Subscription

__all__ = [
    "AckedAutomatically",
    "Client",
    "ClientIdTaken",
    "ClientOptions",
    "ClientState",
    "ClientStatistics",
    "CloseTimeout",
    "DeliveryCounts",
    "Event",
    "GaveUp",
    "HandlerFailed",
    "Lost",
    "Message",
    "NoStreamingServer",
    "NotSupported",
    "Publish",
    "PublishCounts",
    "PublishNotPermitted",
    "Recovered",
    "RequestNotPermitted",
    "SessionLost",
    "StartAt",
    "StreamingError",
    "SubscribeTimeout",
    "Subscription",
    "SubscriptionClosed",
    "SubscriptionFailed",
    "SubscriptionState",
    "UnsubscribeTimeout",
]


def __dir__() -> list[str]:
    return __all__

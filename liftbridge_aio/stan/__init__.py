"""A client of NATS Streaming (STAN).

    async with stan.Client("nats://127.0.0.1:4222", cluster="test-cluster", client_id="me") as client:
        await client.publish("orders", b"3 rolls")
        async with client.subscribe("orders", durable="billing") as orders:
            async for message in orders:
                print(message.data)

- `client`: The client of NATS Streaming as users see it.
- `errors`: Errors of the client of NATS Streaming; others are those of `liftbridge_aio.errors`.
- `link`: The connection to NATS that a client uses, and the one queue of all that it sends.
- `message`: A message of a channel, as a subscription delivers it.
- `options`: Options of a client and of a subscription: frozen, and checked when created.
- `publisher`: Publishes between the call and their outcome: the window, the acks and the deadlines.
- `runtime`: The parts of an open client and the tasks that run them.
- `session`: One session at the server: its subjects, its inboxes and its requests.
- `subscription`: A subscription to a channel: an async context manager and an async iterator of
  messages.
- `core/`: Pure parts of the client of NATS Streaming: no event loop, clock, chance or I/O.
"""

from .client import Client
from .core.start import StartAt
from .message import Message
from .options import ClientOptions
from .publisher import Publish
from .subscription import Subscription

__all__ = ["Client", "ClientOptions", "Message", "Publish", "StartAt", "Subscription"]

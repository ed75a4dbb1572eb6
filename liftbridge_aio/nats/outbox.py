"""Hands messages to NATS, in order, by one task: no user's task ever waits inside nats-py."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import Final

from liftbridge_aio.errors import (
    InvalidRequest,
    LiftbridgeError,
    MessageTooLarge,
    PublishNotSent,
    PublishOutcomeUnknown,
)

from .in_flight import MessageInFlight, MessagesInFlight
from .library import errors as nats_errors
from .link import LinkState, NatsLink

_LOOK_INTERVAL: Final = 0.05
"""Seconds between looks whether a lost connection is back: whoever owns it has the callbacks."""
_MOST_AT_ONCE: Final = 512
"""After so many messages others have their turn."""


class Outbox:
    """Queue of messages that are not yet handed to nats-py."""

    def __init__(self, link: NatsLink, in_flight: MessagesInFlight) -> None:
        self._link = link
        self._in_flight = in_flight
        self._queue: deque[MessageInFlight] = deque()
        self._filled = asyncio.Event()
        self._loop = asyncio.get_running_loop()

    def put(self, message: MessageInFlight) -> None:
        """Append a message to the queue."""
        self._queue.append(message)
        self._filled.set()

    async def run(self) -> None:
        """Hand queued messages to nats-py until cancelled."""
        while True:
            await self._filled.wait()
            for _ in range(_MOST_AT_ONCE):
                if not self._queue or self._link.state is not LinkState.UP:
                    break
                await self._hand_over(self._queue[0])
            if not self._queue:
                self._filled.clear()
            elif self._link.state is LinkState.UP:
                await asyncio.sleep(0)
            else:
                self._pass_over_settled()
                await asyncio.sleep(_LOOK_INTERVAL)

    async def _hand_over(self, message: MessageInFlight) -> None:
        """Give the first message of the queue to nats-py."""
        if message.done():
            self._queue.popleft()
            self._in_flight.forget(message)
            return
        message.handed_over_at = self._loop.time()
        try:
            # Whatever it refuses, it refuses before it waits.
            await self._link.connection.publish(message.subject, message.data, message.reply)
        except nats_errors.OutboundBufferLimitError:
            message.handed_over_at = None  # the connection was lost just now
            return
        except nats_errors.Error as error:
            message.handed_over_at = None
            self._queue.popleft()
            self._in_flight.fail(message, _refusal(error))
            return
        except Exception as error:  # noqa: BLE001 - whoever waits for the message hears of it
            self._queue.popleft()
            unknown = PublishOutcomeUnknown(f"handing the message to NATS failed: {error!r}")
            unknown.__cause__ = error
            self._in_flight.fail(message, unknown)
            return
        self._queue.popleft()
        self._in_flight.handed_over(message)

    def _pass_over_settled(self) -> None:
        """Drop what was given up meanwhile, so that it takes no memory."""
        self._queue = deque(message for message in self._queue if not message.done())


def _refusal(error: nats_errors.Error) -> LiftbridgeError:
    """Return the public exception for an error that nats-py raised on publish."""
    kind: type[LiftbridgeError] = PublishNotSent
    if isinstance(error, nats_errors.MaxPayloadError):
        kind = MessageTooLarge
    elif isinstance(error, nats_errors.BadSubjectError):
        kind = InvalidRequest
    refusal = kind(f"nats-py refused the message: {error}")
    refusal.__cause__ = error
    return refusal

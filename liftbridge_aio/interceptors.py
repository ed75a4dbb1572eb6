"""Interceptors: code that runs around every publish and around the processing of every message.

Subclass `Interceptor` and override what you need. `ClientOptions(interceptors=[…])` takes any
number of them; the first in the list is the outermost: it sees an outgoing message first and its
ack last. An interceptor may await, change the message, measure, skip it or fail it. To watch
without changing anything, a `telemetry.Hook` is cheaper.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias, TypeVar

from ._core.arguments import check_type
from .errors import WrongType
from .model import Ack, Message, OutgoingMessage

if TYPE_CHECKING:
    import asyncio

AckFuture: TypeAlias = "asyncio.Future[Ack | None]"
"""The future of a message's ack; its result is None with ack policy NONE."""

_In = TypeVar("_In")
_Out = TypeVar("_Out")

_METHODS: Final = ("publish", "process")


class Interceptor(Protocol):
    """Wraps publishing and processing; the methods of this class pass everything on unchanged."""

    async def publish(
        self, message: OutgoingMessage, send: Callable[[OutgoingMessage], Awaitable[AckFuture]]
    ) -> AckFuture:
        """Publish a message by calling `send`, and return the future of its ack.

        It is called once per message, however often the message is retried, and for every way of
        publishing but `publish_to_subject` and `liftbridge_aio.nats`. `send` returns once the
        message is queued, so messages keep the order in which `send` is called. An exception that
        this method raises is raised by the publish. To skip a message, do not call `send` and
        return a future that is done. What all interceptors take counts towards the timeout of the
        publish. Let `asyncio.CancelledError` pass.

        Args:
            message: the message; its fields may be assigned.
            send: calls the next interceptor, after the last one the client.
        """
        return await send(message)

    async def process(self, message: Message, handle: Callable[[Message], Awaitable[None]]) -> None:
        """Process a received message by calling `handle`.

        It is called for each message that the client hands to a handler, as `ConsumerGroup.run`
        does; iterating over a subscription is not processing. An exception that this method raises
        counts as one of the handler. To skip a message, return without calling `handle`. Let
        `asyncio.CancelledError` pass.

        Args:
            message: the message.
            handle: calls the next interceptor, after the last one the handler.
        """
        await handle(message)


def chained(
    wrappers: Iterable[Callable[[_In, Callable[[_In], Awaitable[_Out]]], Awaitable[_Out]]],
    innermost: Callable[[_In], Awaitable[_Out]],
) -> Callable[[_In], Awaitable[_Out]]:
    """Wrap a function in others, the first of which becomes the outermost."""
    chain = innermost
    for wrapper in reversed(tuple(wrappers)):
        chain = _wrapped(wrapper, chain)
    return chain


def processing(
    interceptors: Iterable[Interceptor],
) -> list[Callable[[Message, Callable[[Message], Awaitable[None]]], Awaitable[None]]]:
    """Return `process` of the interceptors that have one of their own."""
    inherited = Interceptor.process
    return [
        each.process
        for each in interceptors
        if getattr(each.process, "__func__", None) is not inherited
    ]


def _wrapped(
    wrapper: Callable[[_In, Callable[[_In], Awaitable[_Out]]], Awaitable[_Out]],
    inner: Callable[[_In], Awaitable[_Out]],
) -> Callable[[_In], Awaitable[_Out]]:
    return lambda message: wrapper(message, inner)


def checked_interceptors(interceptors: Sequence[Interceptor]) -> tuple[Interceptor, ...]:
    """Return interceptors as a tuple.

    Raises:
        WrongType: it is no sequence, or one of them lacks an `async def` publish or process.
    """
    check_type(interceptors, (Sequence,), "interceptors are a sequence of Interceptor")
    for interceptor in interceptors:
        if isinstance(interceptor, type):
            name = interceptor.__name__
            raise WrongType(
                f"an interceptor is an instance, not the class {name}: make one, {name}()"
            )
        for name in _METHODS:
            if not inspect.iscoroutinefunction(getattr(interceptor, name, None)):
                raise WrongType(
                    f"an interceptor has an async method {name}, but {interceptor!r} has none"
                )
    return tuple(interceptors)

"""The client of NATS Streaming as users see it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import Any, Self

from liftbridge_aio._core.arguments import check_bytes, check_text, check_type, names
from liftbridge_aio._core.event_loop import running_loop
from liftbridge_aio.errors import ClientClosed, InvalidRequest
from liftbridge_aio.nats.library import NatsConnection
from liftbridge_aio.nats.link import check_connect_arguments
from liftbridge_aio.options import Duration, timer_seconds

from .core.names import client_id_problem
from .core.start import StartAt
from .link import StreamingLink
from .options import ClientOptions, SubscriptionPlan, check_channel
from .publisher import Publish
from .runtime import ClientRuntime
from .subscription import Subscription


class Client:
    """A client of a NATS Streaming server."""

    def __init__(
        self,
        connection: NatsConnection | str | Iterable[str],
        *,
        cluster: str,
        client_id: str,
        options: ClientOptions | None = None,
        connect: Mapping[str, Any] | None = None,
    ) -> None:
        for value, name in ((cluster, "cluster"), (client_id, "client_id")):
            check_text(value, name)
            problem = client_id_problem(value)
            if problem:
                text = f"{name} is {value!r}: {problem}"
                raise InvalidRequest(text)
        if isinstance(connection, str):
            connection = [connection]
        if not isinstance(connection, NatsConnection):
            connection = names(connection, "an address")
            check_connect_arguments(connection, connect)
        if options is not None:
            check_type(options, ClientOptions, "options are stan.ClientOptions")
        self.cluster = cluster
        self.client_id = client_id
        self.options = options or ClientOptions()
        self._link = StreamingLink(connection, {"name": client_id, **(connect or {})})
        self._runtime: ClientRuntime | None = None
        self._closed = False

    async def __aenter__(self) -> Self:
        """Connect; see `connect`."""
        await self.connect()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close; see `aclose`."""
        await self.aclose()

    async def connect(self) -> None:
        """Connect to NATS and open a session at the streaming server."""
        running_loop("a stan.Client")
        await self._link.open(timer_seconds(self.options.connect_timeout))
        runtime = ClientRuntime(self._link, self.cluster, self.client_id, self.options)
        await runtime.start()
        self._runtime = runtime

    async def aclose(self) -> None:
        """Close."""
        runtime, self._runtime = self._runtime, None
        if runtime is not None:
            await runtime.close()

    @property
    def _living(self) -> ClientRuntime:
        if self._runtime is None:
            raise ClientClosed("the client is closed, or was never connected")
        return self._runtime

    async def publish(self, channel: str, data: bytes, *, reply: str = "") -> str:
        """Publish a message, wait for its ack and return its guid."""
        return await (await self.publish_async(channel, data, reply=reply))

    async def publish_async(self, channel: str, data: bytes, *, reply: str = "") -> Publish:
        """Publish a message and return the future of its ack, once there is room in the window."""
        runtime = self._living
        check_channel(channel)
        check_bytes(data, "data")
        check_text(reply, "reply")
        return await runtime.publisher.submit(
            channel,
            data,
            reply,
            timer_seconds(self.options.publish_timeout),
            timer_seconds(self.options.ack_timeout),
        )

    def subscribe(
        self,
        channel: str,
        *,
        queue: str = "",
        durable: str = "",
        start: StartAt | None = None,
        manual_ack: bool = False,
        ack_wait: Duration = 30,
        max_in_flight: int = 1024,
    ) -> Subscription:
        """Create a subscription, which is opened by entering it."""
        plan = SubscriptionPlan(
            channel=channel,
            queue=queue,
            durable=durable,
            start=start or StartAt.new_only(),
            manual_ack=manual_ack,
            ack_wait=int(timer_seconds(ack_wait)),
            max_in_flight=max_in_flight,
        )
        return Subscription(plan, self._living)

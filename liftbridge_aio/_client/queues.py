"""The call of the client that makes it a member of a queue."""

from __future__ import annotations

import secrets
from functools import partial
from typing import TYPE_CHECKING

from liftbridge_aio._core.arguments import about, check_flags, check_text, check_type
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.model import Message, StartAt, StopAt
from liftbridge_aio.options import timer_seconds

from .reading import ClientReading

if TYPE_CHECKING:
    from liftbridge_aio.queue import Delivery, Queue, QueueOptions


class ClientQueues(ClientReading):
    """Queues."""

    def queue(
        self,
        stream: str,
        *,
        group: str | None = None,
        durable: str | None = None,
        client_id: str | None = None,
        ephemeral: bool = False,
        options: QueueOptions | None = None,
    ) -> Queue[Delivery]:
        """Return a member of a queue: enter it, then iterate over it or `run` a handler.

        Nothing is sent before it is entered. With `group`, the partitions of the stream are divided
        among the members, and acks are stored. With `durable` and `client_id` there is one member,
        whose acks are stored; a second one is refused while the first is alive. With neither, acks
        are forgotten when the queue is closed.

        Args:
            stream: the stream of the messages.
            group: the id of the group; no `:` in it.
            durable: the name of a durable subscription; no `:` in it.
            client_id: the owner of the durable subscription; no `:` in it.
            ephemeral: forget the acks of the group with its last member: when that member leaves,
                or when the group's timeout has expelled it. A group of the same name that is not
                ephemeral is another group.
            options: how messages are delivered; None: the defaults of `QueueOptions`.

        Raises:
            InvalidRequest: an argument is invalid, or does not fit the options.
            UsageError: `nats` is set, and nats-py is not installed.
            ClientClosed: not connected.
        """
        from liftbridge_aio.queue.options import QueueOptions  # noqa: PLC0415 - not before use
        from liftbridge_aio.queue.plan import QueuePlan  # noqa: PLC0415
        from liftbridge_aio.queue.queue import Queue  # noqa: PLC0415

        options = QueueOptions() if options is None else options
        check_text(stream, "a stream name")
        with about(stream):
            if not stream:
                raise InvalidRequest("a queue needs a stream")
            check_flags(ephemeral=ephemeral)
            check_type(options, QueueOptions, "options must be QueueOptions")
            id_, consumer_id = _ids(group, durable, client_id, ephemeral=ephemeral)
            plan = QueuePlan(
                stream=stream,
                group=id_,
                consumer_id=consumer_id,
                stores_acks=group is not None or durable is not None,
                is_ephemeral=ephemeral,
                options=options,
                make_visibility=self._visibility(options.committed, stream),
                timeout=self._seconds(options.timeout),
                close_timeout=timer_seconds(self.options.close_timeout),
                interceptors=tuple(self.options.interceptors),
            )
            plan.check()
        read_last = partial(self.last, unpause=True)  # of the stream of acks
        read_at = partial(self._message_at, unpause=options.unpause)
        return Queue(plan, self._living, read_last, read_at)

    async def _message_at(
        self, stream: str, partition: int, offset: int, *, unpause: bool
    ) -> Message | None:
        """Return the message at an offset; None if the log does not have it any more."""
        at, end = StartAt.offset(offset), StopAt.offset(offset)
        async with self.read(
            stream, partition=partition, start=at, stop=end, unpause=unpause
        ) as reading:
            async for message in reading:
                return message if message.offset == offset else None
        return None


def _ids(
    group: str | None, durable: str | None, client_id: str | None, *, ephemeral: bool
) -> tuple[str, str | None]:
    """Return the id of the consumer group and that of its member; None for a new one."""
    for value, name in ((group, "group"), (durable, "durable"), (client_id, "client_id")):
        if value is None:
            continue
        check_text(value, name)
        if not value or ":" in value:
            raise InvalidRequest(f"{name} must not be empty, and have no ':', but is {value!r}")
    if (durable is None) != (client_id is None) or (group and durable):
        raise InvalidRequest("a queue has a group, or durable and client_id, or none of them")
    if ephemeral and group is None:
        raise InvalidRequest("an ephemeral queue has a group; without one it is ephemeral anyway")
    if group is not None:
        return f"ephemeral:{group}" if ephemeral else group, None
    if durable is not None:
        return f"{client_id}:{durable}", client_id
    return f"ephemeral:{secrets.token_hex(8)}", None

"""The call of the client that makes it a member of a queue."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Final

from liftbridge_aio._core.arguments import (
    INT64_MAX,
    about,
    check_flags,
    check_number,
    check_text,
    check_type,
    check_whole_number,
    names,
)
from liftbridge_aio.errors import InvalidRequest, UsageError
from liftbridge_aio.model import Isolation, Message, StartAt, StopAt
from liftbridge_aio.options import Duration, timer_seconds

from .reading import ClientReading

if TYPE_CHECKING:
    from liftbridge_aio.groups.core.group_plan import OnReset
    from liftbridge_aio.queue import (
        DeadLetter,
        Delivery,
        Order,
        Probing,
        Queue,
        RetryStreams,
    )
    from liftbridge_aio.queue.plan import OnGivingUp
    from liftbridge_aio.queue.policies import RetryDelay
    from liftbridge_aio.transactions.reading import ReadCommitted

_EARLIEST: Final = StartAt.earliest()


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
        start: StartAt = _EARLIEST,
        on_reset: OnReset = "error",
        max_in_flight: int = 1024,
        ack_wait: Duration = 30.0,
        max_attempts: int = 5,
        retry: Duration | Sequence[Duration] | RetryDelay | None = None,
        retry_streams: RetryStreams | None = None,
        dead_letter: DeadLetter | None = None,
        on_giving_up: OnGivingUp | None = None,
        order: Order | None = None,
        backoff: Probing | None = None,
        max_window: int = 100_000,
        isolation: Isolation | ReadCommitted = Isolation.UNCOMMITTED,
        sample: float = 1.0,
        commit_interval: Duration = 1.0,
        resume: bool = False,
        nats: str | Sequence[str] | None = None,
        timeout: Duration | None = None,
    ) -> Queue[Delivery]:
        """Return a member of a queue: enter it, then iterate over it or `run` a handler.

        Nothing is sent before it is entered. With `group`, the partitions of the stream are divided
        among the members, and acks are stored. With `durable` and `client_id` there is one member,
        whose acks are stored; a second one is refused while the first is alive. With neither, acks
        are forgotten when the queue is closed.

        Args:
            stream: what to read.
            group: the id of the group; no `:` in it.
            durable: the name of a durable subscription; no `:` in it.
            client_id: whose subscription that is; no `:` in it.
            ephemeral: the acks of the group are forgotten with its last member: when that leaves,
                or when the group's timeout has expelled it. A group of the same name that is not
                ephemeral is another group.
            start: where to begin partitions without stored acks. The default is the oldest message
                of the log, so no job is lost that was published before the first worker came.
            on_reset: what to do if the stored acks belong to a former log, since the stream was
                deleted and created again: "error" raises `StreamReset`; "start" logs a warning and
                begins at `start`.
            max_in_flight: deliveries that may be unanswered, divided among the partitions.
            ack_wait: seconds for an answer, after which a message is delivered again.
            max_attempts: attempts after which a message is given up; 0: no limit.
            retry: seconds before the next attempt: a number, one for each attempt, or a function
                of the number of the failed attempt and its error; None is `Exponential()`.
            retry_streams: where messages wait that are not due soon; None: they are kept in memory,
                and hold back what is committed.
            dead_letter: where messages go that are given up.
            on_giving_up: called with each delivery that is given up, before it becomes a dead
                letter. Without it and without dead letters, an error is logged.
            order: which messages wait for others; None is `Order.NONE`.
            backoff: hand out less while handlers fail; None: do not.
            max_window: offsets between the first unsettled message of a partition and the last that
                was read; at that distance reading stops until the first one is settled.
            isolation: as for `Client.subscribe`; with READ_COMMITTED, messages of a transaction are
                handed out where its ack stands.
            sample: the part of the messages that is handed out, chosen at random; the others count
                as acked.
            commit_interval: seconds between writes of acks.
            resume: resume paused partitions, at the beginning and whenever they are paused later;
                False: they are in `Queue.blocked` until somebody publishes to them.
            nats: addresses of NATS servers, over which all members share all partitions: who has
                nothing to do is leased messages by the owners of partitions. All members of the
                group that are to share must name it; their deliveries have no `transaction()`.
                None: each partition is served by its owner.
            timeout: seconds to join; None is the client's call_timeout.

        Raises:
            InvalidRequest: the arguments make no sense.
            UsageError: `nats` is given, and nats-py is not installed.
            ClientClosed: not connected.
        """
        check_text(stream, "a stream name")
        if not stream:
            raise InvalidRequest("a queue needs a stream")
        with about(stream):
            check_flags(ephemeral=ephemeral, resume=resume)
            id_, consumer_id = _ids(group, durable, client_id, ephemeral=ephemeral)
            check_type(start, StartAt, "a queue starts at a StartAt")
            check_whole_number(max_in_flight, "max_in_flight", 1, INT64_MAX)
            check_whole_number(max_attempts, "max_attempts", 0, INT64_MAX)
            check_whole_number(max_window, "max_window", 1, INT64_MAX)
            check_number(sample, "sample")
            if not 0 < sample <= 1:
                raise InvalidRequest("sample is more than 0, and at most 1")
            wait = timer_seconds(ack_wait, "ack_wait")
            interval = timer_seconds(commit_interval, "commit_interval")
            if not wait or not interval:
                raise InvalidRequest("ack_wait and commit_interval must be longer than 0 seconds")
        parts = self._living
        from liftbridge_aio.groups.core.group_plan import check_on_reset  # noqa: PLC0415
        from liftbridge_aio.queue.core.ack_window import Order, WindowSettings  # noqa: PLC0415 - not before use
        from liftbridge_aio.queue.plan import QueuePlan  # noqa: PLC0415
        from liftbridge_aio.queue.policies import Exponential, check_policies, retry_delay  # noqa: PLC0415
        from liftbridge_aio.queue.queue import Queue  # noqa: PLC0415

        order = Order.NONE if order is None else order
        with about(stream):
            check_on_reset(on_reset)
            check_type(order, Order, "order is an Order")
            check_policies(dead_letter, backoff, on_giving_up, retry_streams)
            if dead_letter is not None and dead_letter.stream == stream:
                raise InvalidRequest("dead letters need a stream of their own")
            delay = retry_delay(Exponential() if retry is None else retry)
            move_from = inf
            if retry_streams is not None:
                move_from = retry_streams.tiers[0]
                if order is not Order.NONE or not (group or durable):
                    raise InvalidRequest("retry_streams need a group or a durable, and Order.NONE")
        plan = QueuePlan(
            stream=stream,
            group=id_,
            consumer_id=consumer_id,
            stores_acks=group is not None or durable is not None,
            is_ephemeral=ephemeral,
            start=start,
            on_reset=on_reset,
            max_in_flight=max_in_flight,
            window=WindowSettings(wait, max_attempts, max_window, order, delay, move_from),
            retry_streams=retry_streams,
            dead_letter=dead_letter,
            on_giving_up=on_giving_up,
            backoff=backoff,
            sample=sample,
            commit_interval=interval,
            make_visibility=self._visibility(isolation, stream),
            resume=resume,
            timeout=self._seconds(timeout),
            close_timeout=timer_seconds(self.options.close_timeout),
            nats=_nats_servers(nats, stream, group),
            interceptors=tuple(self.options.interceptors),
        )
        read_last = partial(self.last, resume=True)  # of the stream of acks
        return Queue(plan, parts, read_last, partial(self._message_at, resume=resume))

    async def _message_at(
        self, stream: str, partition: int, offset: int, *, resume: bool
    ) -> Message | None:
        """Return the message at an offset; None if the log does not have it any more."""
        place = StartAt.offset(offset), StopAt.offset(offset), partition
        async with self.read(stream, *place, resume=resume) as reading:
            async for message in reading:
                return message if message.offset == offset else None
        return None


def _nats_servers(
    nats: str | Sequence[str] | None, stream: str, group: str | None
) -> tuple[str, ...]:
    """Return the addresses of NATS servers; none if leases are not wanted."""
    if nats is None:
        return ()
    with about(stream):
        servers = tuple(names([nats] if isinstance(nats, str) else nats, "an address in nats"))
        if not servers or not all(servers):
            raise InvalidRequest("nats is the address of a NATS server, or several")
        if group is None:
            raise InvalidRequest("nats= shares messages in a group: name one")
        try:
            import liftbridge_aio._runtime.nats_library  # noqa: F401, PLC0415 - only where it is used
        except ImportError as error:
            raise UsageError("nats= needs nats-py: pip install nats-py") from error
    return servers


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

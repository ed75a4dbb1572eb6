"""Reads the activity stream of the servers as typed events, without repeats."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Self, TypedDict

from liftbridge_aio._subscribe.typed_reader import TypedReader
from liftbridge_aio.activity_events import (
    ActivityEvent,
    CreateStreamEvent,
    DeleteStreamEvent,
    JoinGroupEvent,
    LeaveGroupEvent,
    PauseStreamEvent,
    ResumeStreamEvent,
    SetStreamReadonlyEvent,
    UnknownEvent,
)
from liftbridge_aio.errors import ActivityUnavailable, StreamNotFound
from liftbridge_aio.model import ACTIVITY_STREAM, Message
from liftbridge_aio.wire import proto
from liftbridge_aio.wire.field_types import wrong_field
from liftbridge_aio.wire.strict import is_cut_off

if TYPE_CHECKING:
    from liftbridge_aio._subscribe.subscription import Subscription

_Op: Final = proto.ActivityStreamOp


class _Place(TypedDict):
    """The fields that all events have."""

    id: int
    offset: int
    timestamp: int


def activity_event(message: Message) -> ActivityEvent:
    """Return the event that a message of the activity stream holds."""
    event = _parsed(message.value)
    place: _Place = {
        "id": event.id if event is not None else 0,
        "offset": message.offset,
        "timestamp": message.timestamp,
    }
    if event is not None and event.id:
        known = _known_event(event, place)
        if known is not None:
            return known
        return UnknownEvent(**place, operation=int(event.op), data=message.value)
    return UnknownEvent(**place, operation=None, data=message.value)


def _parsed(data: bytes) -> proto.ActivityStreamEvent | None:
    if is_cut_off(data):  # the parser would accept it
        return None
    try:
        event = proto.ActivityStreamEvent.parse(data)
        wrong = wrong_field(event)
    except Exception:  # noqa: BLE001 - malformed in whatever way
        return None
    return event if wrong is None else None


def _known_event(event: proto.ActivityStreamEvent, place: _Place) -> ActivityEvent | None:
    """Return the event; None if its kind is unknown or its fields are missing."""
    match event.op:
        case _Op.CREATE_STREAM if created := event.create_stream_op:
            return CreateStreamEvent(
                **place, stream=created.stream, partitions=tuple(created.partitions)
            )
        case _Op.DELETE_STREAM if deleted := event.delete_stream_op:
            return DeleteStreamEvent(**place, stream=deleted.stream)
        case _Op.PAUSE_STREAM if paused := event.pause_stream_op:
            return PauseStreamEvent(
                **place,
                stream=paused.stream,
                partitions=tuple(paused.partitions),
                resume_all=paused.resume_all,
            )
        case _Op.RESUME_STREAM if resumed := event.resume_stream_op:
            return ResumeStreamEvent(
                **place, stream=resumed.stream, partitions=tuple(resumed.partitions)
            )
        case _Op.SET_STREAM_READONLY if changed := event.set_stream_readonly_op:
            return SetStreamReadonlyEvent(
                **place,
                stream=changed.stream,
                partitions=tuple(changed.partitions),
                readonly=changed.readonly,
            )
        case _Op.JOIN_CONSUMER_GROUP if joined := event.join_consumer_group_op:
            return JoinGroupEvent(
                **place,
                group=joined.group_id,
                consumer=joined.consumer_id,
                streams=tuple(joined.streams),
            )
        case _Op.LEAVE_CONSUMER_GROUP if left := event.leave_consumer_group_op:
            return LeaveGroupEvent(
                **place, group=left.group_id, consumer=left.consumer_id, expired=left.expired
            )
    return None


class EventsOnce:
    """Reads events and drops repeats: servers write each event at least once. Pure.

    Args:
        after_id: events up to this one are dropped too.
    """

    def __init__(self, after_id: int) -> None:
        self._after_id = after_id
        self._last_id = after_id
        self._last_offset = -1

    def read(self, message: Message) -> ActivityEvent | None:
        """Return the event of a message; None if it is a repeat."""
        if message.offset <= self._last_offset:  # the subscription has sought
            self._last_id = self._after_id
        self._last_offset = message.offset
        event = activity_event(message)
        if isinstance(event, UnknownEvent) and event.operation is None:
            return event
        if event.id <= self._last_id:
            return None
        self._last_id = event.id
        return event


class ActivityReading(TypedReader[ActivityEvent, "Subscription"]):
    """An async iterator over the events of streams and groups, each once and in order.

    Iterate it, inside `async with` or without. Make one with `Client.activity`.
    """

    def __init__(self, source: Subscription, after_id: int) -> None:
        super().__init__(source, EventsOnce(after_id).read)

    async def __aenter__(self) -> Self:
        """Subscribe and wait until the server has accepted.

        Cancelling ends the subscription.

        Raises:
            ActivityUnavailable: the servers have no activity stream.
            LiftbridgeError: it was not accepted, or no server answered.
        """
        try:
            return await super().__aenter__()
        except StreamNotFound as error:
            raise _unavailable() from error

    async def __anext__(self) -> ActivityEvent:
        """Return the next event; wait for it if none is buffered.

        Cancelling loses no event: the next call returns it.

        Raises:
            StopAsyncIteration: an orderly end of the subscription.
            ActivityUnavailable: the servers have no activity stream.
            LiftbridgeError: any other end.
        """
        try:
            return await super().__anext__()
        except StreamNotFound as error:
            raise _unavailable() from error


def _unavailable() -> ActivityUnavailable:
    return ActivityUnavailable("the servers have no activity stream", stream=ACTIVITY_STREAM)

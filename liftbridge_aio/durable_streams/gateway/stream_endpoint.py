"""The endpoint of streams: PUT, POST, HEAD, GET and DELETE of the protocol."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from liftbridge_aio.durable_streams.core.caching import cache_control, entity_tag, matches
from liftbridge_aio.durable_streams.core.origins import INERT
from liftbridge_aio.durable_streams.core.protocol import (
    NOW,
    START,
    STREAM_CLOSED,
    STREAM_CURSOR,
    STREAM_EXPIRES_AT,
    STREAM_NEXT_OFFSET,
    STREAM_TTL,
    STREAM_UP_TO_DATE,
    media_type,
)
from liftbridge_aio.durable_streams.core.registry import Entry
from liftbridge_aio.durable_streams.core.requests import (
    Live,
    Read,
    RequestRefused,
    content_of,
    parse_append,
    parse_creation,
    parse_read,
)
from liftbridge_aio.durable_streams.core.segments import UnknownOffset
from liftbridge_aio.errors import LiftbridgeError, MessageTooLarge
from liftbridge_aio.transactions.errors import TransactionError

from .access import Access
from .bodies import Bodies, Body
from .events_response import EventsResponse
from .hosted_stream import Found
from .options import GatewayOptions
from .responses import (
    NO_STORE,
    Reply,
    RequestHeaders,
    cursor_after,
    joined,
    refusal,
    unavailable,
)
from .streams import Streams

_IF_MATCH: Final = "if-match"
_IF_NONE_MATCH: Final = "if-none-match"


class StreamEndpoint:
    """An ASGI application for all paths of streams.

    Args:
        streams: the streams.
        access: which pages may read responses.
        options: settings of the gateway.
        bodies: what reads bodies.
    """

    def __init__(
        self, streams: Streams, access: Access, options: GatewayOptions, bodies: Bodies
    ) -> None:
        self._streams = streams
        self._options = options
        self._bodies = bodies
        self._access = access
        self._handlers: dict[str, Callable[[Request], Awaitable[Response]]] = {
            "GET": self._get,
            "HEAD": self._head,
            "PUT": self._put,
            "POST": self._post,
            "DELETE": self._delete,
        }
        self._visibility = "private" if options.authorize is not None else "public"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request."""
        request = Request(scope, receive)
        try:
            handle = self._handlers.get(request.method)
            if handle is None:
                raise RequestRefused(
                    405, "the method is not allowed", {"Allow": ", ".join(self._handlers)}
                )
            response = await handle(request)
        except RequestRefused as refused:
            response = refusal(refused)
        except MessageTooLarge as error:
            response = refusal(RequestRefused(413, str(error)))
        except TransactionError as error:
            response = refusal(RequestRefused(422, str(error)))
        except LiftbridgeError as error:
            response = unavailable(error)
        response.raw_headers.extend(self._access.headers(scope))
        await response(scope, receive, send)

    async def _put(self, request: Request) -> Response:
        path = _path(request)
        given = RequestHeaders(request.scope)
        _refuse_encoding(given)
        wanted = parse_creation(given, request.scope.get("root_path", ""))
        must_be_new = _asks_for_a_new_one(given)
        body = await self._bodies.read(Body(request, self._options.max_body_bytes))
        created = await self._streams.creation.create(path, wanted, body)
        if must_be_new and not created.new:
            raise RequestRefused(412, "the stream exists")
        entry = created.entry
        headers = {
            **await self._state_headers(entry),
            "Content-Type": entry.content_type,
            "Location": str(request.url.replace(path=quote(request.scope["path"]), query="")),
        }
        return Reply(201 if created.new else 200, headers)

    async def _post(self, request: Request) -> Response:
        given = RequestHeaders(request.scope)
        _refuse_encoding(given)
        append = parse_append(given)
        entry = await self._streams.registry.find(_path(request), touch=True)
        body = await self._bodies.read(Body(request, self._options.max_body_bytes))
        content_type = given.get("content-type")
        if body and content_type is None:
            raise RequestRefused(400, "an append needs a Content-Type")
        if not body and not append.closes:
            raise RequestRefused(400, "there is nothing to append")
        same = media_type(content_type) == media_type(entry.content_type)
        with self._streams.logs.using(entry):
            hosted = await self._streams.logs.own(entry, to_append=True)
            value = body
            if same:
                # What a closed stream, or another type, is sent is not looked at.
                value = content_of(body, entry.content_type) if not hosted.state.closed else body
            outcome = await hosted.append(
                append._replace(value=value),
                type_matches=same,
                expected=self._expected(given, entry),
            )
            headers = {**outcome.headers, **self._offset_header(entry, hosted.state.tail)}
        if outcome.status >= 400:
            raise RequestRefused(outcome.status, outcome.text, headers)
        return Reply(outcome.status, headers)

    def _expected(self, given: RequestHeaders, entry: Entry) -> int | None:
        """Return where `If-Match` says that the tail of the stream's own log is."""
        tag = given.get(_IF_MATCH)
        if tag is None or tag.strip() == "*":
            return None
        try:
            position = entry.positions.position(tag.strip().strip('"'))
        except UnknownOffset:
            position = None
        return -1 if position is None else position - entry.positions.start

    async def _head(self, request: Request) -> Response:
        entry = await self._find(request, touch=False)
        headers = {"Content-Type": entry.content_type, **await self._state_headers(entry)}
        if entry.ttl is not None:
            headers[STREAM_TTL] = str(entry.ttl)
        if entry.expires_at is not None:
            headers[STREAM_EXPIRES_AT] = entry.expires_at
        return Reply(200, {**headers, **NO_STORE})

    async def _delete(self, request: Request) -> Response:
        given = RequestHeaders(request.scope)
        if given.get(_IF_MATCH) is not None or given.get(_IF_NONE_MATCH) is not None:
            raise RequestRefused(400, "a DELETE takes no precondition: nothing was deleted")
        await self._streams.delete(_path(request))
        return Reply(204, {})

    async def _find(self, request: Request, *, touch: bool) -> Entry:
        return await self._streams.registry.find(_path(request), touch=touch)

    def _check(self, request: Request) -> None:
        """Refuse to read on from a stream that is gone."""
        self._streams.registry.active(_path(request))

    async def _get(self, request: Request) -> Response:
        read = parse_read(request.query_params.multi_items())
        entry = await self._find(request, touch=True)
        check = partial(self._check, request)
        with self._streams.logs.using(entry):
            position = await self._position(read, entry)
            if read.live is Live.SSE:
                events = EventsResponse(self._streams, entry, position, read, check)
                await events.begin()
                return events
            most = self._options.max_response_bytes
            first = read.offset == START
            if read.live is Live.LONG_POLL:
                found = await self._streams.logs.wait(entry, position, most, check, first=first)
            else:
                found = await self._streams.logs.read(entry, position, most, first=first)
        return self._response(request, read, entry, position, found)

    async def _position(self, read: Read, entry: Entry) -> int:
        if read.offset == START:
            return 0
        if read.offset == NOW:
            return await self._streams.logs.tail(entry)
        try:
            position = entry.positions.position(read.offset)
        except UnknownOffset as error:
            raise RequestRefused(410 if error.gone else 400, str(error)) from None
        if position is None:
            raise RequestRefused(400, "the offset is none that a read returned")
        return await self._streams.logs.reached(entry, position)

    def _response(
        self, request: Request, read: Read, entry: Entry, position: int, found: Found
    ) -> Response:
        positions = entry.positions
        end = positions.offset(found.position)
        headers: dict[str, str] = {"Content-Type": entry.content_type, STREAM_NEXT_OFFSET: end}
        if found.at_tail:
            headers[STREAM_UP_TO_DATE] = "true"
        if found.closed:
            headers[STREAM_CLOSED] = "true"
        if read.live is Live.LONG_POLL:
            if not found.closed:
                headers[STREAM_CURSOR] = cursor_after(read.cursor)
            if not found.values:
                return Reply(204, {**headers, **NO_STORE})
        if media_type(entry.content_type) not in INERT:
            headers["Content-Disposition"] = "attachment"
        if read.offset == NOW:
            headers |= NO_STORE
        else:
            start = positions.offset(position)
            tag = entity_tag(quote(entry.log), start, end, closed=found.closed)
            control = cache_control(self._visibility, entry.remaining(time.time()))
            headers |= {"ETag": tag, "Cache-Control": control}
            if matches(request.headers.get(_IF_NONE_MATCH), tag):
                return Reply(304, headers)
        return Reply(200, headers, joined(found.values, entry.content_type))

    async def _state_headers(self, entry: Entry) -> dict[str, str]:
        state = (await self._streams.logs.own(entry)).state
        headers = self._offset_header(entry, state.tail)
        if state.closed:
            headers[STREAM_CLOSED] = "true"
        return headers

    def _offset_header(self, entry: Entry, tail: int) -> dict[str, str]:
        return {STREAM_NEXT_OFFSET: entry.positions.offset(entry.positions.start + tail)}


def _path(request: Request) -> str:
    """Return the path below where the gateway is mounted, without making a URL of it first."""
    path: str = request.scope["path"]
    return path.removeprefix(request.scope.get("root_path", ""))


def _asks_for_a_new_one(given: RequestHeaders) -> bool:
    """Return True if a PUT has `If-None-Match: *`; refuse other preconditions.

    Raises:
        RequestRefused: there is one that would be ignored.
    """
    wanted = given.get(_IF_NONE_MATCH)
    if given.get(_IF_MATCH) is not None or wanted not in {None, "*"}:
        raise RequestRefused(400, "a PUT takes no precondition but If-None-Match: *")
    return wanted is not None


def _refuse_encoding(given: RequestHeaders) -> None:
    """Refuse a body that is compressed: readers would not be told.

    Raises:
        RequestRefused: it is.
    """
    encoding = given.get("content-encoding")
    if encoding is not None and encoding.lower() != "identity":
        raise RequestRefused(415, "bodies have no Content-Encoding")

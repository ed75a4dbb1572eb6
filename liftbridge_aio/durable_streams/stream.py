"""`DurableStream`: a stream at a URL."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, NamedTuple, Self
from urllib.parse import urljoin

from liftbridge_aio._core.arguments import (
    check_flags,
    check_text,
    check_type,
    check_whole_number,
    several,
)
from liftbridge_aio.errors import InvalidRequest, MalformedData
from liftbridge_aio.options import Duration, seconds

from .core import protocol
from .core.parsing import INTEGER_MAX, parse_integer, parse_time
from .core.status_errors import RELAYED
from .errors import DurableStreamError, NoStream, OutcomeUnknown, ProtocolError, Refused
from .options import StreamOptions
from .reader import Live, Reader
from .transport import Dynamic, Transport, check_header

if TYPE_CHECKING:
    import httpx2

_CREATED = 201
_NOTHING: Mapping[str, Dynamic] = {}


class StreamInfo(NamedTuple):
    """The description of a stream by a server."""

    content_type: str
    offset: str
    """After the last item."""
    closed: bool
    ttl: int | None
    """Seconds without a read or write after which it expires; None: no such limit."""
    expires_at: datetime | None
    created: bool
    """True if the call created it. False also if an earlier attempt of the call did, whose answer
    was lost."""


class Appended(NamedTuple):
    """The place at which an append is stored."""

    offset: str
    """After what was appended. "" for a duplicate, whose offset servers need not know."""
    closed: bool
    duplicate: bool
    """True if an earlier attempt was stored already."""


class DurableStream:
    """A stream at a URL: create it, append to it, read and follow it.

        async with DurableStream("http://127.0.0.1:4437/v1/stream/orders") as stream:
            await stream.create(content_type="application/json")
            await stream.append({"n": 1})
            async for item, offset in stream.read(offset=START, live=True):
                print(item)

    A stream of `application/json` holds JSON values. One of any other type holds bytes, in which
    the limits of appends are not kept.

    Args:
        url: of the stream.
        content_type: of the stream; None: as created, or as the server says.
        headers: sent with each request. A value may be a function, also an async one, that is
            called for each attempt, as for tokens that expire.
        params: sent with each request, in its URL; likewise.
        options: timeouts and retries.
        http: an `httpx2.AsyncClient` to use; it is never closed here. None: one of its own.

    Raises:
        InvalidRequest: an argument is invalid.
        ImportError: the extra `durable-streams` is not installed.
    """

    def __init__(
        self,
        url: str,
        *,
        content_type: str | None = None,
        headers: Mapping[str, Dynamic] = _NOTHING,
        params: Mapping[str, Dynamic] = _NOTHING,
        options: StreamOptions | None = None,
        http: httpx2.AsyncClient | None = None,
    ) -> None:
        if options is not None:
            check_type(options, StreamOptions, "options are StreamOptions")
        if content_type is not None:
            _check_content_type(content_type)
        self._content_type = content_type
        self._transport = Transport(url, headers, params, options or StreamOptions(), http)

    @property
    def transport(self) -> Transport:
        """The transport of its requests."""
        return self._transport

    def __repr__(self) -> str:
        """Return the URL."""
        return f"<DurableStream {self.url}>"

    @property
    def url(self) -> str:
        """The URL."""
        return self._transport.url

    @property
    def content_type(self) -> str | None:
        """The content type; None until it is known."""
        return self._content_type

    async def __aenter__(self) -> Self:
        """Open nothing yet: requests connect.

        Raises:
            Closed: it was closed before.
        """
        self._transport.client()
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close the connections."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections; requests that are under way fail. The stream stays as it is.

        Idempotent; cancelling leaves connections to the garbage collector.
        """
        await self._transport.aclose()

    # Creating and deleting

    async def create(
        self,
        *,
        content_type: str | None = None,
        ttl: Duration | None = None,
        expires_at: datetime | None = None,
        closed: bool = False,
        data: Any = None,
    ) -> StreamInfo:
        """Create the stream; one that exists with the same configuration is fine.

        Cancelling may leave it created.

        Args:
            content_type: for its life; None: that of this object, or else
                `application/octet-stream`.
            ttl: whole seconds without a read or write after which it expires.
            expires_at: when it expires, with a time zone; not together with `ttl`.
            closed: create it closed, so that `data` is all it will ever hold.
            data: its first item, as for `append`; None: none.

        Raises:
            Conflict: a stream exists with another configuration.
            InvalidRequest: an argument is invalid.
            DurableStreamError: it failed for another reason.
        """
        kind = content_type or self._content_type or protocol.DEFAULT_CONTENT_TYPE
        headers = {"Content-Type": _check_content_type(kind), **_lifetime(ttl, expires_at)}
        check_flags(closed=closed)
        if closed:
            headers[protocol.STREAM_CLOSED] = "true"
        body = None
        if data is not None:
            body = protocol.join_values([protocol.encoder(kind)(data)], kind)
        response = await self._transport.send("PUT", headers=headers, content=body)
        self._content_type = response.headers.get("Content-Type") or kind
        return self._info(response)

    async def fork(
        self,
        url: str,
        *,
        offset: str | None = None,
        sub_offset: int = 0,
        ttl: Duration | None = None,
        expires_at: datetime | None = None,
    ) -> DurableStream:
        """Create another stream that holds what this one holds up to an offset, and return it.

        Both go on independently. It uses the connections of this object, so it is closed with it.
        Cancelling may leave it created.

        Args:
            url: of the new stream, on the same server; may be relative to this one's.
            offset: where it parts; None: at the end.
            sub_offset: messages of JSON, or else bytes, that it has beyond `offset`.
            ttl: as for `create`; without both it has what this one has.
            expires_at: likewise.

        Raises:
            NoStream: this stream does not exist.
            Conflict: another stream exists at that URL, or this one is deleted.
            BadRequest: the offset is beyond the end.
            InvalidRequest: an argument is invalid.
            DurableStreamError: it failed for another reason.
        """
        check_text(url, "the URL")
        check_whole_number(sub_offset, "sub_offset", 0, INTEGER_MAX)
        headers = {protocol.STREAM_FORKED_FROM: self._transport.path, **_lifetime(ttl, expires_at)}
        if offset is not None:
            protocol.check_offset(offset)
            headers[protocol.STREAM_FORK_OFFSET] = offset
        if sub_offset:
            if offset is None:
                raise InvalidRequest("sub_offset needs an offset")
            headers[protocol.STREAM_FORK_SUB_OFFSET] = str(sub_offset)
        own = self._transport
        fork = DurableStream(
            urljoin(self.url, url), headers=own.headers, options=own.options, http=own.client()
        )
        if fork._transport.server != own.server:
            raise InvalidRequest(f"{url} is not on the server of {self.url}")
        response = await fork._transport.send("PUT", headers=headers)
        fork._content_type = response.headers.get("Content-Type")
        return fork

    async def head(self) -> StreamInfo:
        """Return what the server says about the stream. Cancelling abandons the request.

        Raises:
            NoStream: there is none.
            DurableStreamError: it failed for another reason.
        """
        response = await self._transport.send("HEAD")
        self._content_type = response.headers.get("Content-Type") or self._content_type
        return self._info(response)

    async def delete(self) -> None:
        """Delete the stream with all that it holds. Cancelling may leave it deleted.

        If it has forks, they keep what they share with it.

        Raises:
            NoStream: there is none.
            DurableStreamError: it failed for another reason.
        """
        attempts: list[DurableStreamError] = []
        try:
            await self._transport.send("DELETE", unsure=attempts.append)
        except NoStream:
            if not attempts:  # otherwise an attempt deleted it, whose answer was lost
                raise

    # Appending

    async def append(self, data: Any, *, seq: str | None = None, close: bool = False) -> Appended:
        """Append an item; the server has it when this returns.

        It is not sent again after a lost connection, or where a proxy got no answer (502, 504), as
        it could be stored twice; an `IdempotentProducer` repeats safely. Cancelling may leave it
        stored.

        Args:
            data: for `application/json` what `json.dumps` takes, or bytes that hold one JSON value
                already; for `text/*` a string or bytes; for other types bytes.
            seq: refuse it unless this is above the `seq` of all appends before, as text.
            close: close the stream with it, in one step.

        Raises:
            OutcomeUnknown: no answer came; it may be stored or not.
            NotConnected: the server cannot be reached; it is not stored.
            NoStream: there is no such stream.
            StreamClosed: it is closed.
            SequenceConflict: `seq` is not above an earlier one.
            Conflict: the stream has another content type.
            TooLarge: the server does not take so much at once.
            InvalidRequest: an argument is invalid; nothing was sent.
            DurableStreamError: it failed for another reason.
        """
        return await self._append([data], seq, close=close)

    async def append_many(
        self, items: Iterable[Any], *, seq: str | None = None, close: bool = False
    ) -> Appended:
        """Append items in one request: all are stored, or none.

        Arguments, cancelling and errors: as `append`.
        """
        found = several(items, "items are given as a list")
        if not found:
            raise InvalidRequest("there is nothing to append")
        return await self._append(found, seq, close=close)

    async def _append(self, items: list[Any], seq: str | None, *, close: bool) -> Appended:
        kind = await self.require_content_type()
        headers = {"Content-Type": kind}
        if seq is not None:
            check_header(seq, "seq")
            headers[protocol.STREAM_SEQ] = seq
        if close:
            check_flags(close=close)
            headers[protocol.STREAM_CLOSED] = "true"
        encode = protocol.encoder(kind)
        body = protocol.join_values([encode(each) for each in items], kind)
        response = await self._transport.send(
            "POST", headers=headers, content=body, unsure=_raise_unless_answered
        )
        return appended(response.headers, self.url, duplicate=False)

    async def close(self, data: Any = None) -> str:
        """Close the stream: it takes no more, and readers end. Return the offset of its end.

        Closing a closed stream is fine without data. Cancelling may leave it closed.

        Args:
            data: a last item, appended in the same step, with the arguments and errors of
                `append`; None: none.
        """
        if data is not None:
            return (await self.append(data, close=True)).offset
        response = await self._transport.send("POST", headers={protocol.STREAM_CLOSED: "true"})
        return appended(response.headers, self.url, duplicate=False).offset

    async def require_content_type(self) -> str:
        """Return the content type, for which the server is asked unless it is known.

        Cancelling and errors: as `head`.
        """
        return self._content_type or (await self.head()).content_type

    # Reading

    def read(self, *, offset: str = protocol.START, live: Live = False) -> Reader:
        """Return an async iterator over the items from an offset on; nothing is sent yet.

        Args:
            offset: `START`, `NOW`, or one that a reader returned, also in another process.
            live: False to end when the reader is up to date. "long-poll" and "sse" (Server-Sent
                Events) follow the stream until it is closed; True leaves the choice to the client.

        Raises:
            InvalidRequest: an argument is invalid.
        """
        protocol.check_offset(offset)
        if live not in {True, False, "long-poll", "sse"}:
            raise InvalidRequest(f'live is True, False, "long-poll" or "sse", not {live!r}')
        self._transport.client()
        return Reader(self._transport, offset, live)

    def _info(self, response: httpx2.Response) -> StreamInfo:
        headers = response.headers
        offset = _offset(headers.get(protocol.STREAM_NEXT_OFFSET), self.url)
        expires_at = headers.get(protocol.STREAM_EXPIRES_AT)
        date = None if expires_at is None else parse_time(expires_at)
        if date is None and expires_at is not None:
            raise ProtocolError(
                f"{self.url} sent {expires_at[:64]!r} as {protocol.STREAM_EXPIRES_AT}"
            )
        return StreamInfo(
            headers.get("Content-Type") or self._content_type or protocol.DEFAULT_CONTENT_TYPE,
            offset,
            protocol.is_true(headers.get(protocol.STREAM_CLOSED)),
            parse_integer(headers.get(protocol.STREAM_TTL)),
            date,
            response.status_code == _CREATED,
        )


def appended(headers: Mapping[str, str], url: str, *, duplicate: bool) -> Appended:
    """Return where an append is stored, as the headers of its response say."""
    offset = headers.get(protocol.STREAM_NEXT_OFFSET)
    if offset is not None or not duplicate:
        offset = _offset(offset, f"an append to {url}")
    closed = protocol.is_true(headers.get(protocol.STREAM_CLOSED))
    return Appended(offset or "", closed, duplicate)


def _offset(value: str | None, source: str) -> str:
    try:
        return protocol.response_offset(value, source)
    except MalformedData as error:
        raise ProtocolError(error.message) from error


def _raise_unless_answered(failure: DurableStreamError) -> None:
    if isinstance(failure, Refused) and failure.status not in RELAYED:
        return  # the server says that it failed
    raise OutcomeUnknown(f"{failure.message}; the data may be stored or not") from failure


def _lifetime(ttl: Duration | None, expires_at: datetime | None) -> dict[str, str]:
    if ttl is not None and expires_at is not None:
        raise InvalidRequest("a stream has a ttl or expires_at, not both")
    if ttl is not None:
        count = seconds(ttl, "ttl")
        if not (count <= INTEGER_MAX and count == int(count)):
            raise InvalidRequest(f"ttl is a number of whole seconds, not {ttl!r}")
        return {protocol.STREAM_TTL: str(int(count))}
    if expires_at is not None:
        check_type(expires_at, datetime, "expires_at is a datetime")
        if expires_at.tzinfo is None:
            raise InvalidRequest(
                f"expires_at needs a time zone, as in datetime.now(UTC), not {expires_at!r}"
            )
        return {protocol.STREAM_EXPIRES_AT: expires_at.isoformat()}
    return {}


def _check_content_type(content_type: str) -> str:
    check_header(content_type, "content_type")
    if "/" not in protocol.media_type(content_type):
        raise InvalidRequest(f"{content_type!r} is no content type; write one like text/plain")
    return content_type

"""HTTP requests for one stream: retries, and failures as typed errors."""

from __future__ import annotations

import asyncio
import inspect
import random
import ssl
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from functools import cache
from typing import TYPE_CHECKING, Any, Final

from liftbridge_aio._core.arguments import check_text, check_type
from liftbridge_aio._core.foreign_cancellation import foreign_cancellation_fails
from liftbridge_aio._runtime.event_loop import running_loop
from liftbridge_aio.errors import InvalidRequest, LiftbridgeError, UsageError
from liftbridge_aio.options import timer_seconds

from .core.parsing import parse_retry_after
from .core.status_errors import RETRIED, refusal
from .errors import (
    Closed,
    DurableStreamError,
    HandshakeFailed,
    NotConnected,
    ProtocolError,
    Refused,
    TimedOut,
)
from .options import StreamOptions

if TYPE_CHECKING:
    import httpx2

Dynamic = str | Callable[[], str | Awaitable[str]]
"""A header or parameter: text, or a function that is called for each request, as for tokens."""

_OK_BELOW: Final = 300
_PORT_MAX: Final = 65_535
_KEPT_CONNECTIONS: Final = 32
_NONE: Final[Mapping[str, str]] = {}


@cache
def _httpx() -> Any:
    try:
        import httpx2  # noqa: PLC0415 - optional
    except ImportError as error:
        raise ImportError(
            "Durable Streams needs httpx2: pip install 'liftbridge-aio[durable-streams]'"
        ) from error
    return httpx2


@cache
def _system_tls() -> ssl.SSLContext:
    """Return the context that all streams share: to read the authorities takes 30 ms."""
    context: ssl.SSLContext = _httpx().create_ssl_context()
    return context


def send_again(_: DurableStreamError) -> None:
    """Let a request be sent again that may have taken effect."""


class Transport:
    """Sends the requests for the stream at a URL.

    Args:
        url: of the stream.
        headers: sent with each request.
        params: sent with each request, in its URL.
        options: timeouts and retries.
        http: the client to use, which stays the caller's; None: one of its own.

    Raises:
        InvalidRequest: an argument is invalid.
        ImportError: httpx2 is not installed.
    """

    def __init__(
        self,
        url: str,
        headers: Mapping[str, Dynamic],
        params: Mapping[str, Dynamic],
        options: StreamOptions,
        http: httpx2.AsyncClient | None,
    ) -> None:
        check_text(url, "the URL")
        library = _httpx()
        try:
            given: httpx2.URL = library.URL(url)
        except library.InvalidURL as error:
            raise InvalidRequest(f"{url!r} is no URL: {error}") from error
        is_possible = given.host and (given.port or 1) <= _PORT_MAX
        if given.scheme not in {"http", "https"} or not is_possible:
            raise InvalidRequest(f"{url!r} is no URL of a stream; write http://host:port/path")
        self.url = url
        self.options = options
        self._base = given.copy_with(query=None, fragment=None)
        self.headers = _dynamic(headers, "headers", check_header)
        self._params = {**given.params, **_dynamic(params, "params", check_text)}
        self._is_shared = http is not None
        self._http = http
        self._is_closed = False
        self._loop: asyncio.AbstractEventLoop | None = None
        """To which the connections belong."""
        self._timeout = timer_seconds(options.timeout)
        self._resume_timeout = timer_seconds(options.resume_timeout)
        silence = timer_seconds(options.response_timeout)
        live = timer_seconds(options.live_timeout)
        self._waits: httpx2.Timeout = library.Timeout(silence, pool=None)
        self._live_waits: httpx2.Timeout = library.Timeout(silence, read=live, pool=None)

    @property
    def path(self) -> str:
        """The path of the stream on its server, as in its URL."""
        return self._base.raw_path.decode("ascii")

    @property
    def server(self) -> tuple[str, bytes]:
        """Scheme and address of the server."""
        return self._base.scheme, self._base.netloc

    def client(self) -> httpx2.AsyncClient:
        """Return the client, which connects when it is used.

        Raises:
            Closed: the stream is closed.
        """
        if self._is_closed:
            raise Closed(f"the stream {self.url} is closed")
        if self._http is None:
            is_secure = self._base.scheme == "https"
            verify = self.options.tls or (_system_tls() if is_secure else False)
            limits = _httpx().Limits(
                max_connections=None, max_keepalive_connections=_KEPT_CONNECTIONS
            )
            self._http = _httpx().AsyncClient(verify=verify, limits=limits)
        return self._http

    async def aclose(self) -> None:
        """Close the connections, unless they are the caller's. Idempotent."""
        self._is_closed = True
        if self._http is not None and not self._is_shared:
            await self._http.aclose()

    async def send(
        self,
        method: str,
        *,
        query: Mapping[str, str] = _NONE,
        headers: Mapping[str, str] = _NONE,
        content: bytes | None = None,
        live: bool = False,
        stream: bool = False,
        resuming: bool = False,
        unsure: Callable[[DurableStreamError], None] = send_again,
    ) -> httpx2.Response:
        """Send a request, again where that may help, and return the response.

        A GET takes as long as data arrives, and is tried for `timeout` after a failure. Anything
        else ends within `timeout`.

        Args:
            method: of HTTP.
            query: parameters in addition to the stream's.
            headers: in addition to the stream's.
            content: the body.
            live: True if the server waits for data before it answers.
            stream: True to return the response before its body is read.
            resuming: True to try for `resume_timeout` instead of `timeout`.
            unsure: called when an attempt may have taken effect: it was sent and not answered, or
                answered with 500, 502, 503 or 504. Raises if the request is not to be sent again.

        Raises:
            DurableStreamError: what is in the tree below it, but `NotStored`.
        """
        is_read = method == "GET"
        seconds = self._resume_timeout if resuming else self._timeout
        retries = _Retries(self.options, seconds, has_started=not is_read)
        try:
            async with asyncio.timeout(None if is_read else self._timeout) as deadline:
                while True:
                    failure: DurableStreamError
                    wait = 0.0
                    try:
                        response = await self._once(method, query, headers, content, live, stream)
                    except HandshakeFailed:
                        raise
                    except NotConnected as error:
                        if error.reached_server:
                            unsure(error)
                        failure = error
                    else:
                        if response.status_code < _OK_BELOW:
                            return response
                        failure = await self._refusal(response, method, headers)
                        if response.status_code not in RETRIED:
                            raise failure
                        unsure(failure)
                        wait = parse_retry_after(
                            response.headers.get("Retry-After"), datetime.now(UTC)
                        )
                    await retries.wait(failure, wait)
        except TimeoutError as error:
            if not deadline.expired():
                raise
            text = f"{method} {self.url} took longer than {self._timeout:g} s"
            late = TimedOut(text)
            unsure(late)
            raise late from error

    async def _once(
        self,
        method: str,
        query: Mapping[str, str],
        headers: Mapping[str, str],
        content: bytes | None,
        live: bool,
        stream: bool,
    ) -> httpx2.Response:
        client = self.client()
        loop = running_loop("a DurableStream")
        if self._loop is not loop and not self._is_shared:
            if self._loop is not None:
                raise UsageError(
                    f"{self.url} was used in another event loop; make a DurableStream in each"
                )
            self._loop = loop
        request = client.build_request(
            method,
            self._base,
            params=await _values(self._params, query, check_text),
            headers=await _values(self.headers, headers, check_header),
            content=content,
            timeout=self._live_waits if live else self._waits,
        )
        try:
            with foreign_cancellation_fails("the HTTP client"):  # a shared one, with hooks
                return await client.send(request, stream=stream)
        except Exception as error:
            raise self.failure(method, error) from error

    async def _refusal(
        self, response: httpx2.Response, method: str, headers: Mapping[str, str]
    ) -> Refused:
        try:
            await response.aread()
        except Exception as error:
            raise self.failure(method, error) from error
        finally:
            await response.aclose()
        return refusal(
            method, self.url, headers, response.status_code, response.headers, response.text
        )

    def failure(self, method: str, error: Exception) -> LiftbridgeError:
        """Return what an exception of httpx means; raise one that is not httpx's."""
        library = _httpx()
        if self._is_closed:
            return Closed(f"the stream {self.url} was closed during {method}")
        text = f"{method} {self.url} failed: {str(error) or type(error).__name__}"
        if isinstance(error, library.LocalProtocolError | library.UnsupportedProtocol):
            return InvalidRequest(text)
        if not isinstance(error, library.HTTPError | library.StreamError):
            raise error
        if isinstance(error, library.DecodingError):
            return ProtocolError(text)
        if isinstance(error, library.ConnectError) and _is_of_tls(error):
            return HandshakeFailed(text)
        failure = NotConnected(text)
        failure.reached_server = not isinstance(
            error, library.ConnectError | library.ConnectTimeout | library.PoolTimeout
        )
        return failure


class _Retries:
    """Waits between the attempts of a request.

    Args:
        options: of the stream.
        timeout: seconds after which no attempt begins.
        has_started: True if they count from now; False: from the first failure.
    """

    def __init__(self, options: StreamOptions, timeout: float, *, has_started: bool) -> None:
        self._options = options
        self._timeout = timeout
        self._end = self._now() + timeout if has_started else None
        self._failed = 0

    @staticmethod
    def _now() -> float:
        return asyncio.get_running_loop().time()

    async def wait(self, failure: DurableStreamError, at_least: float) -> None:
        """Wait until the next attempt may begin; raise the failure if there is none."""
        now = self._now()
        if self._end is None:
            self._end = now + self._timeout
        delay = max(at_least, self._options.backoff.delay(self._failed, random.random()))  # noqa: S311 - jitter
        self._failed += 1
        if self._failed > self._options.max_retries or now + delay >= self._end:
            raise failure
        await asyncio.sleep(delay)


def _is_of_tls(error: BaseException | None) -> bool:
    while error is not None:
        if isinstance(error, ssl.SSLError):
            return True
        error = error.__cause__ or error.__context__
    return False


def check_header(value: str, name: str) -> None:
    """Refuse text that cannot be the value of a header.

    Raises:
        WrongType: it is no text.
        InvalidRequest: it is empty, or has characters that are not printable ASCII.
    """
    check_text(value, name)
    if not (value and value.isascii() and value.isprintable()):
        raise InvalidRequest(f"{name} cannot be sent in a header: {value!r}")


Check = Callable[[str, str], None]


def _dynamic(values: Mapping[str, Dynamic], name: str, check: Check) -> dict[str, Dynamic]:
    check_type(values, Mapping, f"{name} are given as a mapping of names to values")
    for each, value in values.items():
        check(each, f"a name in {name}")
        if not callable(value):
            check(value, f"{each} in {name}")
    return dict(values)


async def _values(
    own: Mapping[str, Dynamic], given: Mapping[str, str], check: Check
) -> Mapping[str, str] | None:
    """Return the values for one request in the order of their names, as caches want them."""
    if not own:
        return given or None
    found: dict[str, str] = {}
    for name, value in own.items():
        if callable(value):
            with foreign_cancellation_fails(f"the function for {name}"):
                result = value()
                found[name] = await result if inspect.isawaitable(result) else result
            check(found[name], f"what the function for {name} returned")
        else:
            found[name] = value
    found.update(given)
    return dict(sorted(found.items()))

"""HTTP clients of nsqd and nsqlookupd; need the extra `nsq`.

Version 1 of the API answers with bare JSON. Older daemons wrap it into `status_code`, `status_txt`
and `data`, which is unwrapped where the header `X-NSQ-Content-Type` is missing.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

from liftbridge_aio._core.addresses import format_address, parse_address
from liftbridge_aio._core.arguments import check_bytes, check_text, several
from liftbridge_aio._core.public_face import as_one_class
from liftbridge_aio.errors import InvalidRequest
from liftbridge_aio.options import Duration, seconds
from liftbridge_aio.tls import check_string

from .core.protocol import check_name
from .errors import HttpRefused, LookupFailed, NotConnected, ProtocolError

if TYPE_CHECKING:
    import httpx2

logger = logging.getLogger("liftbridge_aio.nsq")

_ACCEPT: Final = "application/vnd.nsq; version=1.0"
_VERSIONED: Final = "X-NSQ-Content-Type"
_LENGTH: Final = struct.Struct(">i")
_NO_QUERY: Final[Mapping[str, str]] = {}


def _httpx() -> Any:
    try:
        import httpx2  # noqa: PLC0415 - optional
    except ImportError as error:
        raise ImportError("HTTP needs httpx2: pip install 'liftbridge-aio[nsq]'") from error
    return httpx2


class HttpClient:
    """An HTTP client of one daemon; use `NsqdHttp` or `LookupdHttp`.

    Args:
        url: for example `http://127.0.0.1:4161`.
        timeout: seconds for each request.
        auth_secret: sent as `Authorization: Bearer`.

    Raises:
        InvalidRequest: it is no URL.
        ImportError: httpx2 is not installed.
    """

    def __init__(
        self, url: str, *, timeout: Duration = 10.0, auth_secret: str | None = None
    ) -> None:
        check_text(url, "a URL")
        if not url.startswith(("http://", "https://")):
            raise InvalidRequest(f"{url!r} is no URL; write http://host:port")
        self.url = url.rstrip("/")
        headers = {"Accept": _ACCEPT.encode()}
        check_string(auth_secret, "auth_secret")
        if auth_secret is not None:
            headers["Authorization"] = f"Bearer {auth_secret}".encode()
        errors = _httpx()
        try:
            self._client: httpx2.AsyncClient = errors.AsyncClient(
                base_url=self.url, headers=headers, timeout=seconds(timeout, "timeout")
            )
        except errors.InvalidURL as error:
            raise InvalidRequest(f"{url!r} is no URL: {error}") from error

    async def __aenter__(self) -> Self:
        """Open nothing yet: requests connect."""
        return self

    async def __aexit__(
        self,
        exc_type: type[BaseException] | None,
        exc: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        """Close its connections."""
        await self.aclose()

    async def aclose(self) -> None:
        """Close its connections. Idempotent; cancelling leaves them to the garbage collector."""
        await self._client.aclose()

    async def ping(self) -> None:
        """Check that it is up and healthy.

        Cancelling abandons the request, as for all requests.

        Raises:
            NotConnected: it cannot be reached, or not in time. True for all requests.
            HttpRefused: it refuses the request. True for all requests.
        """
        await self._request("GET", "/ping")

    async def info(self) -> dict[str, Any]:
        """Return version, addresses and start time."""
        return self._mapping(await self._request("GET", "/info"))

    async def create_topic(self, topic: str) -> None:
        """Create a topic, unless it is there."""
        await self._request("POST", "/topic/create", _topic(topic))

    async def delete_topic(self, topic: str) -> None:
        """Delete a topic with its channels."""
        await self._request("POST", "/topic/delete", _topic(topic))

    async def create_channel(self, topic: str, channel: str) -> None:
        """Create a channel, unless it is there."""
        await self._request("POST", "/channel/create", _channel(topic, channel))

    async def delete_channel(self, topic: str, channel: str) -> None:
        """Delete a channel."""
        await self._request("POST", "/channel/delete", _channel(topic, channel))

    async def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] = _NO_QUERY,
        content: bytes | None = None,
    ) -> Any:
        """Send a request and return what its JSON holds; text if it is no JSON."""
        errors = _httpx()
        try:
            answer = await self._client.request(method, path, content=content, params=query)
        except (errors.HTTPError, errors.InvalidURL) as error:
            raise NotConnected(
                f"{method} {path} at {self.url} failed: {error or type(error).__name__}"
            ) from error
        found = _parsed(answer)
        if isinstance(found, dict) and _VERSIONED not in answer.headers and "status_code" in found:
            status = found["status_code"]
            reason, found = found.get("status_txt", ""), found.get("data")
        else:
            status = answer.status_code
            reason = found.get("message", "") if isinstance(found, dict) else str(found)
        if status != errors.codes.OK:
            refused = HttpRefused(f"{method} {path} at {self.url} was refused: {status} {reason}")
            refused.status, refused.reason = status, reason
            raise refused
        return found

    def _mapping(self, found: object) -> dict[str, Any]:
        if not isinstance(found, dict):
            raise ProtocolError(f"{self.url} answered with {str(found)[:64]!r}")
        return found


@as_one_class
class NsqdHttp(HttpClient):
    """An HTTP client of nsqd: administration, statistics, and publishing without a connection."""

    async def publish(self, topic: str, body: bytes, delay: Duration = 0.0) -> None:
        """Publish a message, delivered after `delay` seconds at the earliest."""
        check_bytes(body, "the body")
        query = {"topic": check_name(topic, "topic")}
        if milliseconds := round(seconds(delay, "delay") * 1000):
            query["defer"] = str(milliseconds)
        await self._request("POST", "/pub", query, body)

    async def publish_many(self, topic: str, bodies: Iterable[bytes]) -> None:
        """Publish messages in one request."""
        found = several(bodies, "bodies are given as a list of bytes")
        for body in found:
            check_bytes(body, "the body")
        parts = [_LENGTH.pack(len(found))]
        for body in found:
            parts += [_LENGTH.pack(len(body)), body]
        query = {"topic": check_name(topic, "topic"), "binary": "true"}
        await self._request("POST", "/mpub", query, b"".join(parts))

    async def empty_topic(self, topic: str) -> None:
        """Discard what a topic has not given to its channels yet."""
        await self._request("POST", "/topic/empty", _topic(topic))

    async def pause_topic(self, topic: str) -> None:
        """Stop the flow from a topic to its channels."""
        await self._request("POST", "/topic/pause", _topic(topic))

    async def unpause_topic(self, topic: str) -> None:
        """Resume the flow from a topic to its channels."""
        await self._request("POST", "/topic/unpause", _topic(topic))

    async def empty_channel(self, topic: str, channel: str) -> None:
        """Discard the messages of a channel."""
        await self._request("POST", "/channel/empty", _channel(topic, channel))

    async def pause_channel(self, topic: str, channel: str) -> None:
        """Stop the flow from a channel to its consumers."""
        await self._request("POST", "/channel/pause", _channel(topic, channel))

    async def unpause_channel(self, topic: str, channel: str) -> None:
        """Resume the flow from a channel to its consumers."""
        await self._request("POST", "/channel/unpause", _channel(topic, channel))

    async def stats(self, topic: str | None = None, channel: str | None = None) -> dict[str, Any]:
        """Return statistics as nsqd counts them, of all topics or of one."""
        query = {"format": "json"}
        if topic is not None:
            query["topic"] = check_name(topic, "topic")
        if channel is not None:
            query["channel"] = check_name(channel, "channel")
        return self._mapping(await self._request("GET", "/stats", query))

    async def config(self, option: str) -> Any:
        """Return an option of nsqd, for example `nsqlookupd_tcp_addresses`."""
        return await self._request("GET", f"/config/{option}")

    async def set_config(self, option: str, value: bytes) -> Any:
        """Set an option of nsqd, a list of addresses in JSON, and return what it is now."""
        return await self._request("PUT", f"/config/{option}", content=value)


class FoundNsqd(NamedTuple):
    """An nsqd that nsqlookupd knows."""

    address: str
    """`host:port` of its TCP port, as it announces it."""
    http_address: str
    version: str


@as_one_class
class LookupdHttp(HttpClient):
    """An HTTP client of nsqlookupd."""

    async def lookup(self, topic: str) -> list[FoundNsqd]:
        """Return the nsqds that have a topic; none if nobody has it yet."""
        try:
            found = await self._request("GET", "/lookup", _topic(topic))
        except HttpRefused as error:
            if error.reason == "TOPIC_NOT_FOUND":
                return []
            raise
        return self._nsqds(found)

    async def nodes(self) -> list[FoundNsqd]:
        """Return all nsqds."""
        return self._nsqds(await self._request("GET", "/nodes"))

    async def topics(self) -> list[str]:
        """Return the names of all topics."""
        return list(self._mapping(await self._request("GET", "/topics")).get("topics") or [])

    async def channels(self, topic: str) -> list[str]:
        """Return the names of a topic's channels."""
        found = await self._request("GET", "/channels", _topic(topic))
        return list(self._mapping(found).get("channels") or [])

    async def tombstone(self, topic: str, node: str) -> None:
        """Hide an nsqd from lookups of a topic for 45 seconds.

        Args:
            topic: the topic.
            node: `host:port` of the HTTP port of nsqd.
        """
        query = {"topic": check_name(topic, "topic"), "node": node}
        await self._request("POST", "/topic/tombstone", query)

    def _nsqds(self, found: object) -> list[FoundNsqd]:
        try:
            nsqds = [
                FoundNsqd(
                    format_address(each["broadcast_address"], int(each["tcp_port"])),
                    format_address(each["broadcast_address"], int(each["http_port"])),
                    str(each.get("version", "")),
                )
                for each in self._mapping(found).get("producers") or []
            ]
        except (KeyError, TypeError, ValueError, OverflowError) as error:
            raise LookupFailed(f"{self.url} answered with {str(found)[:64]!r}") from error
        return [each for each in nsqds if self._is_address(each.address)]

    def _is_address(self, address: str) -> bool:
        """Return False for what an nsqd announces and cannot be an address."""
        try:
            parse_address(address)
        except InvalidRequest as error:
            logger.warning("nsqlookupd at %s knows an nsqd without address: %s", self.url, error)
            return False
        return True


def _topic(topic: str) -> dict[str, str]:
    return {"topic": check_name(topic, "topic")}


def _channel(topic: str, channel: str) -> dict[str, str]:
    return {"topic": check_name(topic, "topic"), "channel": check_name(channel, "channel")}


def _parsed(answer: httpx2.Response) -> Any:
    try:
        return answer.json()
    except ValueError:  # /ping and /pub answer with text
        return answer.text

"""Subscriptions: who is woken for which streams, and how far they have acknowledged. Pure.

Sections 6 and 7 of the protocol. A subscription that has pending messages gets a wake, of which
there is one at a time; each wake has a generation, and a worker that answers for an earlier one is
fenced. A wake that nobody finishes within its lease is replaced by another.
"""

from __future__ import annotations

import hmac
import ipaddress
import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final, NamedTuple
from urllib.parse import urlsplit

from .parsing import is_offset, parse_json
from .protocol import START
from .records import decode_record

WEBHOOK: Final = "webhook"
PULL_WAKE: Final = "pull-wake"
LEASE_DEFAULT: Final = 30_000
LEASE_MIN: Final = 1_000
LEASE_MAX: Final = 600_000
_BACKOFF_MAX: Final = 600.0
_PARTS: Final = re.compile(r"\*\*|\*|[^*]+")
_MAX_STARS: Final = 16


class SubscriptionRefused(Exception):
    """A request that is answered with an error.

    Args:
        status: the HTTP status.
        code: the protocol's name of the error.
        text: what is wrong, for people.
        more: further fields of the answer.
    """

    def __init__(self, status: int, code: str, text: str, **more: object) -> None:
        self.status = status
        self.code = code
        self.text = text
        self.more = more
        super().__init__(text)


def _invalid(text: str) -> SubscriptionRefused:
    return SubscriptionRefused(400, "INVALID_REQUEST", text)


class Link(NamedTuple):
    """A stream of a subscription."""

    explicit: bool
    """It was named; otherwise the pattern matches."""
    acked: str
    """The offset up to which its messages are acknowledged."""


class Answer(NamedTuple):
    """The answer of a worker to a wake."""

    wake_id: str
    generation: int
    acks: tuple[tuple[str, str], ...]
    """Paths and offsets."""
    done: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """A subscription: what was asked for, and where it stands."""

    id: str
    kind: str
    pattern: str | None = None
    named: tuple[str, ...] = ()
    """The streams with which it was created."""
    webhook: str | None = None
    wake_stream: str | None = None
    lease_ms: int = LEASE_DEFAULT
    description: str | None = None
    created_at: str = ""
    links: Mapping[str, Link] = field(default_factory=dict)
    generation: int = 0
    wake_id: str | None = None
    """Of the wake that is not finished."""
    token: str | None = None
    """The digest of the token that goes with it."""
    holder: str | None = None
    """The worker that has claimed it."""
    lease_until: float = 0.0
    """When another wake replaces it."""
    snapshot: Mapping[str, str] = field(default_factory=dict)
    """The ends of the streams when it was made."""
    failures: int = 0
    """Wakes in a row that nobody has finished."""
    not_before: float = 0.0
    """When there may be another wake."""

    def to_json(self) -> bytes:
        """Return the value of its message in the registry."""
        return json.dumps(asdict(self), separators=(",", ":")).encode()

    @classmethod
    def from_json(cls, value: bytes) -> Subscription:
        """Return the subscription that a message of the registry holds.

        Raises:
            ValueError: no gateway wrote it.
        """
        return decode_record(cls, value)

    def same_as(self, other: Subscription) -> bool:
        """Return True if another subscription asks for the same."""
        names = ("kind", "pattern", "named", "webhook", "wake_stream", "lease_ms", "description")
        return all(getattr(self, name) == getattr(other, name) for name in names)

    def matches(self, path: str) -> bool:
        """Return True if the pattern matches a path, in time that grows with its length only."""
        reached = set() if self.pattern is None else {0}
        for part in _PARTS.findall(self.pattern or ""):
            if not reached:
                return False
            if part == "**":
                reached = set(range(min(reached), len(path) + 1))
            elif part == "*":
                reached = _within_segments(reached, path)
            else:
                reached = {at + len(part) for at in reached if path.startswith(part, at)}
        return len(path) in reached

    def linked(self, paths: Iterable[str], acked: Mapping[str, str] | None = None) -> Subscription:
        """Return it with those of the paths that its pattern matches.

        Args:
            paths: of streams.
            acked: offsets up to which they count as acknowledged; others are new.
        """
        links = {
            path: Link(explicit=False, acked=(acked or {}).get(path, START))
            for path in paths
            if path not in self.links and self.matches(path)
        }
        return replace(self, links={**self.links, **links}) if links else self

    def naming(self, paths: Iterable[str], tails: Mapping[str, str]) -> Subscription:
        """Return it with streams that are named."""
        links = dict(self.links)
        for path in paths:
            acked = links[path].acked if path in links else tails.get(path, START)
            links[path] = Link(explicit=True, acked=acked)
        return replace(self, links=links)

    def without(self, path: str) -> Subscription:
        """Return it without a stream that was named."""
        links = dict(self.links)
        link = links.pop(path, None)
        if link is not None and self.matches(path):
            links[path] = Link(explicit=False, acked=link.acked)
        return replace(self, links=links)

    def pending(self, tails: Mapping[str, str]) -> list[str]:
        """Return the streams with messages that are not acknowledged."""
        return [path for path, link in self.links.items() if tails.get(path, START) > link.acked]

    def is_open(self, now: float) -> bool:
        """Return True if a wake is unfinished and its lease is not over."""
        return self.wake_id is not None and now < self.lease_until

    def claimed(self, now: float) -> bool:
        """Return True if a worker has it."""
        return self.holder is not None and self.is_open(now)

    def woken(
        self, wake_id: str, token: str | None, tails: Mapping[str, str], now: float
    ) -> Subscription:
        """Return it with another wake."""
        lost = self.wake_id is not None  # nobody has finished the one before
        failures = self.failures + 1 if lost else self.failures
        lease = self.lease_ms / 1000 * 2 ** min(failures, 10)
        return replace(
            self,
            generation=self.generation + 1,
            wake_id=wake_id,
            token=token,
            holder=None,
            lease_until=now + min(max(lease, self.lease_ms / 1000), _BACKOFF_MAX),
            snapshot={path: tails[path] for path in self.links if path in tails},
            failures=failures,
        )

    def held(self, worker: str, token: str, now: float) -> Subscription:
        """Return it with the wake claimed by a worker."""
        return replace(
            self, holder=worker, token=token, lease_until=now + self.lease_ms / 1000, failures=0
        )

    def failed(self, now: float) -> Subscription:
        """Return it without the wake, which could not be delivered; the next one waits."""
        failures = self.failures + 1
        wait = min(2.0 ** (failures - 1), _BACKOFF_MAX)
        return replace(self._finished(), failures=failures, not_before=now + wait)

    def _finished(self) -> Subscription:
        return replace(
            self, wake_id=None, token=None, holder=None, lease_until=0.0, snapshot={}, failures=0
        )

    def released(self) -> Subscription:
        """Return it without a wake."""
        return replace(self._finished(), not_before=0.0)

    def done(self) -> Subscription:
        """Return it with all acknowledged that the wake told of, and without the wake."""
        return self._acked(self.snapshot.items()).released()

    def check(self, answer: Answer, token: str, now: float) -> None:
        """Check that an answer is about the present wake, by whom it was given to.

        Args:
            answer: the answer.
            token: the digest of the token in the request.
            now: the time.

        Raises:
            SubscriptionRefused: it is not.
        """
        present = answer.wake_id == self.wake_id and answer.generation == self.generation
        if not present or self.token is None or not self.is_open(now):
            raise SubscriptionRefused(409, "FENCED", "the wake is over", generation=self.generation)
        if not hmac.compare_digest(token, self.token):
            raise SubscriptionRefused(401, "TOKEN_INVALID", "the token is not that of the wake")

    def answered(self, answer: Answer, tails: Mapping[str, str], now: float) -> Subscription:
        """Return it with what a worker has acknowledged, and its lease prolonged.

        Raises:
            SubscriptionRefused: an offset is none that could be acknowledged.
        """
        for path, offset in answer.acks:
            if path not in self.links:
                raise _invalid(f"{path} is no stream of the subscription")
            if offset != START and offset > tails.get(path, START):
                raise SubscriptionRefused(
                    409, "INVALID_OFFSET", f"{offset} lies beyond the end of {path}"
                )
        acked = self._acked(answer.acks)
        if answer.done:
            return acked.released()
        return replace(acked, lease_until=now + self.lease_ms / 1000)

    def _acked(self, acks: Iterable[tuple[str, str]]) -> Subscription:
        links = dict(self.links)
        for path, offset in acks:
            if (link := links.get(path)) is not None:
                links[path] = link._replace(acked=max(link.acked, offset))
        return replace(self, links=links)


def _within_segments(reached: set[int], path: str) -> set[int]:
    """Return the places from those reached on to the next slash, each."""
    found, inside = set(), False
    for at in range(len(path) + 1):
        inside = at in reached or (inside and path[at - 1] != "/")
        if inside:
            found.add(at)
    return found


def parse_subscription(name: str, body: bytes) -> Subscription:
    """Return the subscription that a request asks for.

    Raises:
        SubscriptionRefused: the request is invalid.
    """
    fields = parse_object(body)
    kind, lease = _text(fields, "type"), fields.get("lease_ttl_ms", LEASE_DEFAULT)
    pattern, wake_stream = _text(fields, "pattern"), _text(fields, "wake_stream")
    if kind is None or kind not in {WEBHOOK, PULL_WAKE}:
        raise _invalid("type is webhook or pull-wake")
    if isinstance(lease, bool) or not isinstance(lease, int) or not LEASE_MIN <= lease <= LEASE_MAX:
        raise _invalid(f"lease_ttl_ms is from {LEASE_MIN} to {LEASE_MAX}")
    named = parse_paths(fields)
    if not named and not pattern:
        raise _invalid("a subscription has a pattern or streams")
    if pattern is not None and len(re.findall(r"\*+", pattern)) > _MAX_STARS:
        raise _invalid(f"a pattern has at most {_MAX_STARS} wildcards")
    webhook = None
    if kind == WEBHOOK:
        hook = fields.get("webhook")
        webhook = checked_webhook(hook.get("url") if isinstance(hook, dict) else None)
    elif not wake_stream:
        raise _invalid("a pull-wake subscription has a wake_stream")
    return Subscription(
        id=name,
        kind=kind,
        pattern=pattern,
        named=named,
        webhook=webhook,
        wake_stream=wake_stream if kind == PULL_WAKE else None,
        lease_ms=lease,
        description=_text(fields, "description"),
    )


def parse_object(body: bytes) -> dict[str, Any]:
    """Return the JSON object in a body; an empty one for no body.

    Raises:
        SubscriptionRefused: it is none.
    """
    try:
        fields = parse_json(body or b"{}", encodable=True)
    except ValueError:
        fields = None
    if not isinstance(fields, dict):
        raise _invalid("the body is no JSON object")
    return fields


def _text(fields: Mapping[str, Any], name: str) -> str | None:
    value = fields.get(name)
    if value is not None and not isinstance(value, str):
        raise _invalid(f"{name} is a string")
    return value


def parse_paths(fields: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the streams that a request names.

    Raises:
        SubscriptionRefused: they are no list of strings.
    """
    paths = fields.get("streams", [])
    if not isinstance(paths, list) or not all(isinstance(each, str) and each for each in paths):
        raise _invalid("streams is a list of paths")
    return tuple(dict.fromkeys(path.strip("/") for path in paths))


def parse_answer(body: bytes) -> Answer:
    """Return what a worker says of a wake.

    Raises:
        SubscriptionRefused: the request is invalid.
    """
    fields = parse_object(body)
    wake_id, generation = fields.get("wake_id"), fields.get("generation")
    acks = fields.get("acks", [])
    if not isinstance(wake_id, str) or type(generation) is not int:
        raise _invalid("an answer has the wake_id and the generation of the wake")
    if not isinstance(acks, list) or not all(isinstance(each, dict) for each in acks):
        raise _invalid("acks is a list of objects")
    found = []
    for each in acks:
        path, offset = each.get("stream", each.get("path")), each.get("offset")
        if not isinstance(path, str) or not isinstance(offset, str) or not is_offset(offset):
            raise _invalid("an ack has a stream and an offset")
        found.append((path.strip("/"), offset))
    return Answer(wake_id, generation, tuple(found), fields.get("done") is True)


def checked_webhook(url: object) -> str:
    """Return the URL of a webhook: of a host that is not private, or of this machine over http.

    Raises:
        SubscriptionRefused: it is another one.
    """
    if not isinstance(url, str):
        raise _invalid("a webhook subscription has webhook.url")
    try:
        parts = urlsplit(url)
        host = parts.hostname or ""
        _ = parts.port
    except ValueError:
        parts, host = urlsplit(""), ""
    local = host == "localhost" or (_address(host) or _NO_ADDRESS).is_loopback
    if parts.username is None and host:
        if parts.scheme == "http" and local:
            return url
        if parts.scheme == "https" and not local and is_public(host):
            return url
    raise SubscriptionRefused(
        400,
        "WEBHOOK_URL_REJECTED",
        "webhook.url is https and of a public host, or http and of this machine",
    )


def is_public(host: str) -> bool:
    """Return True if a host is no address of a private network; True for names."""
    address = _address(host)
    return address is None or address.is_global


def _address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


_NO_ADDRESS: Final = ipaddress.ip_address("0.0.0.0")  # noqa: S104 - stands for none

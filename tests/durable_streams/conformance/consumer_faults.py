"""Cases of a server that fails, is slow, hangs up, or sends what cannot be read."""

from __future__ import annotations

from functools import partial
from typing import Any, Final

from durable_streams.conformance.beside import inject
from durable_streams.conformance.expectations import (
    ANY_ERROR,
    BAD_REQUEST,
    NOT_FOUND,
    UNREADABLE,
    items,
)
from durable_streams.conformance.runner import Cases, Step
from durable_streams.conformance.steps import JSON, TEXT, append, create, read, stream_of

follow = partial(read, live="sse", max_chunks=1)


def survives(**fault: Any) -> list[Step]:
    """Read in spite of a fault."""
    return [*stream_of("all"), inject(**fault), read("all")]


def broken(json: str, **fault: Any) -> list[Step]:
    """Refuse a body that is no JSON."""
    return [
        *stream_of(json, content_type=JSON),
        inject(method="GET", **fault),
        read(None, fails=UNREADABLE),
    ]


def event(kind: str, data: str) -> dict[str, Any]:
    """Return the fault of a further event."""
    return {"injectSseEvent": {"eventType": kind, "data": data}}


def unknown_event(kind: str, data: str) -> list[Step]:
    """Ignore an event of unknown type."""
    return [*stream_of("all", content_type=TEXT), inject(**event(kind, data)), follow("all")]


def bad_control(data: str) -> list[Step]:
    """Refuse a control event."""
    return [
        *stream_of("all", content_type=TEXT),
        inject(count=2, **event("control", data)),
        follow(None, offset="${append1}", fails=UNREADABLE),
    ]


CASES: Final[Cases] = {
    "delay-recovery": survives(delayMs=500),
    "delay-with-jitter": survives(delayMs=300, jitterMs=300),
    "connection-drop-recovery": survives(dropConnection=True),
    "multiple-connection-drops": survives(dropConnection=True, count=2),
    "delay-then-error": survives(delayMs=200, status=503),
    "delay-under-timeout": survives(delayMs=1000),
    "method-specific-fault": [
        create(),
        inject(status=503, method="POST"),
        read(""),
        append("once"),
        read("once"),
    ],
    "append-with-delay": [create(), inject(delayMs=500), append("late"), read("late")],
    "retry-on-500": survives(status=500),
    "retry-on-503": survives(status=503),
    "retry-on-429": survives(status=429, retryAfter=1),
    "retry-multiple-failures": survives(status=500, count=2),
    "no-retry-on-404": [read(None, fails=NOT_FOUND)],
    "no-retry-on-400": [*stream_of("all"), inject(status=400), read(None, fails=BAD_REQUEST)],
    "append-retry-on-500": [create(), inject(status=500), append("once"), read("once")],
    "retry-exhaustion-fails": [
        *stream_of("all"),
        inject(status=500, count=20),
        read(None, fails=ANY_ERROR),
    ],
    "truncated-json-response": broken('{"key":"a value to be cut"}', truncateBodyBytes=10),
    "corrupted-json-response": broken('{"valid":"until it was sent"}', corruptBody=True),
    "truncated-json-array": broken('[{"item":1},{"item":2},{"item":3}]', truncateBodyBytes=15),
    "recovery-after-parse-error": [
        *broken('{"data":"valid"}', truncateBodyBytes=5),
        read(items({"data": "valid"})),
    ],
    "unknown-sse-event-type": unknown_event("unknown-future-type", '{"some":"future-data"}'),
    "multiple-unknown-events": unknown_event("future-event-v2", '{"version":2}'),
    "malformed-control-event-json": bad_control("{invalid json here"),
    "empty-control-event-data": bad_control(""),
}

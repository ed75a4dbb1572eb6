"""Cases of following a stream: by long-polls, by server-sent events, or as the client chooses."""

from __future__ import annotations

from functools import partial
from typing import Final

from durable_streams.conformance.beside import post, wait
from durable_streams.conformance.expectations import Expected, containing, items
from durable_streams.conformance.runner import Cases, Step
from durable_streams.conformance.steps import (
    BINARY,
    JSON,
    LIVE_WINDOW,
    TEXT,
    create,
    finish_read,
    read,
    stream_of,
)

auto = partial(read, live=True, timeout_ms=1000, until_up_to_date=True)
poll = partial(read, live="long-poll", timeout_ms=1000, up_to_date=True)
poll_once = partial(read, live="long-poll", until_up_to_date=True)
sse = partial(read, live="sse", until_up_to_date=True)


def on_text(*texts: str) -> list[Step]:
    """Create a stream of texts."""
    return stream_of(*texts, content_type=TEXT)


def follow(
    data: str, expected: Expected, *, live: bool | str, pause: int = 200, chunks: int | None = 1
) -> list[Step]:
    """Read from behind the first append, and append more meanwhile, beside the client."""
    return [
        read(
            expected,
            offset="${append1}",
            live=live,
            timeout_ms=LIVE_WINDOW if chunks is None else 10_000,
            max_chunks=chunks,
            background=True,
        ),
        wait(pause),
        post(data),
        finish_read(),
    ]


AUTO: Final[Cases] = {
    "auto-catches-up-with-existing-data": [*stream_of("a", "b", "c"), auto("abc")],
    "auto-waits-for-new-data": [
        *stream_of("old"),
        *follow("new", "new", live=True, pause=300, chunks=None),
    ],
    "auto-returns-immediately-on-existing-data": [*stream_of("all"), auto("all")],
    "auto-resumes-from-offset": [*stream_of("old", "new"), auto("new", offset="${append1}")],
    "auto-empty-stream": [create(), auto("", timeout_ms=500)],
    "auto-multiple-chunks": [*stream_of("one", "two", "three"), auto("onetwothree")],
}
LONG_POLL: Final[Cases] = {
    "longpoll-waits-for-data": [
        *stream_of("old"),
        *follow("new", "new", live="long-poll", chunks=None),
    ],
    "longpoll-returns-immediately-with-data": [*stream_of("all"), poll("all")],
    "longpoll-timeout": [*stream_of("all"), poll("", offset="${append1}", timeout_ms=500)],
    "longpoll-multiple-chunks": [*stream_of("one", "two", "three"), poll("onetwothree")],
    "longpoll-resume-from-offset": [
        *stream_of("old", "new"),
        poll("new", offset="${append1}"),
    ],
}
SSE: Final[Cases] = {
    "sse-receives-existing-data": [*on_text("one", "two"), sse("onetwo", max_chunks=2)],
    "sse-receives-new-data": [*on_text("old"), *follow("new", "new", live="sse")],
    "sse-resumes-from-offset": [*on_text("old", "new"), sse("new", offset="${append1}")],
    "sse-up-to-date-signal": [*on_text("all"), sse("all")],
    "sse-empty-stream": [*on_text(), sse("")],
    "sse-json-empty-stream": [create(content_type=JSON), sse("")],
    "sse-json-receives-new-data-after-empty-catchup": [
        *stream_of('{"id":0}', content_type=JSON),
        *follow('{"id":1}', items({"id": 1}), live="sse"),
    ],
    "sse-binary-data": [
        *stream_of(b"\xfd\xfe\xff\x00", content_type=BINARY),
        sse(b"\xfd\xfe\xff\x00"),
    ],
    "sse-preserves-nel-character": [*on_text("a\u0085b"), sse("a\u0085b")],
    "sse-preserves-line-separator": [*on_text("a\u2028b"), sse("a\u2028b")],
    "sse-preserves-paragraph-separator": [*on_text("a\u2029b"), sse("a\u2029b")],
    "sse-preserves-all-unicode-separators": [
        *on_text("a\u0085b\u2028c\u2029d"),
        sse("a\u0085b\u2028c\u2029d"),
    ],
    # The server sends no space of its own after "data:", so that the first one counts as that.
    "sse-strips-single-leading-space": [*on_text("old"), *follow("  two", " two", live="sse")],
}
EQUIVALENCE: Final[Cases] = {
    "equivalence-existing-data": [
        *on_text("one", "two", "three"),
        poll_once("onetwothree"),
        sse("onetwothree"),
    ],
    "equivalence-from-offset": [
        *on_text("old", "new"),
        poll_once("new", offset="${append1}"),
        sse("new", offset="${append1}"),
    ],
    "equivalence-empty-stream": [*on_text(), poll_once(""), sse("")],
    "equivalence-live-new-data": [
        *on_text("old"),
        *follow("new", "new", live="long-poll", pause=100),
    ],
    "equivalence-sse-live-new-data": [
        *on_text("old"),
        *follow("new", "new", live="sse", pause=100),
    ],
    "equivalence-offset-semantics": [
        *on_text("a", "b", "c"),
        poll_once("bc", offset="${append1}"),
        sse("bc", offset="${append1}"),
        poll_once("c", offset="${append2}"),
        sse("c", offset="${append2}"),
    ],
}


def on_bytes(*data: bytes, content_type: str = BINARY) -> list[Step]:
    """Create a stream of bytes, and read all of it as server-sent events."""
    return [*stream_of(*data, content_type=content_type), sse(b"".join(data))]


ALL_BYTES: Final = bytes(range(256))
PRINTABLE: Final = bytes(range(32, 127))
SSE_BINARY: Final[Cases] = {
    "sse-base64-basic": on_bytes(b"Hello World"),
    "sse-base64-data-integrity-simple": on_bytes(b"Hello World"),
    "sse-base64-data-integrity-multiple-appends": on_bytes(b"first", b"second", b"third"),
    "sse-base64-data-integrity-ascii": on_bytes(PRINTABLE),
    "sse-base64-data-integrity-json-like": on_bytes(b'{"key":"value","num":42}'),
    "sse-base64-special-bytes": on_bytes(b"\x00\xff\xfe\xfd\xfc"),
    "sse-base64-large-payload": on_bytes(ALL_BYTES),
    "sse-base64-multiple-chunks": on_bytes(b"\1\2\3", b"\4\5\6", b"\7\x08\x09"),
    "sse-base64-resume-from-offset": [
        *stream_of(b"\0\0\0", b"\xff\xff", content_type=BINARY),
        sse(b"\xff\xff", offset="${append1}"),
    ],
    "sse-base64-up-to-date": on_bytes(b"\1\2\3\4"),
    "sse-base64-padding-variations": on_bytes(b"a", b"ab", b"abc"),
    "sse-base64-all-byte-values": on_bytes(ALL_BYTES),
    "sse-base64-reconnect-decoding": [
        *stream_of(b"first", b"second", content_type=BINARY),
        read(containing("first"), live="sse", max_chunks=1),
        sse(b"second", offset="${append1}"),
    ],
    "sse-base64-single-null-byte": on_bytes(b"\0"),
    "sse-base64-live-streaming": [
        *stream_of(b"old", content_type=BINARY),
        *follow("new", b"new", live="sse"),
    ],
    "sse-base64-rfc4648-1byte": on_bytes(b"f"),
    "sse-base64-rfc4648-2byte": on_bytes(b"fo"),
    "sse-base64-rfc4648-3byte": on_bytes(b"foo"),
    "sse-base64-rfc4648-6byte": on_bytes(b"foobar"),
    "sse-base64-content-type-protobuf": on_bytes(
        b"\x08\x06\x12\x04name", content_type="application/x-protobuf"
    ),
    "sse-base64-content-type-image": on_bytes(b"\x89PNG\r\n\x1a\n", content_type="image/png"),
    "sse-base64-offset-now": [
        *stream_of(b"old", content_type=BINARY),
        read(b"new", offset="now", live="sse", max_chunks=1, timeout_ms=10_000, background=True),
        wait(500),  # the published 200 are few on a busy machine, and what came before is not read
        post("new"),
        finish_read(),
    ],
    "sse-base64-many-small-messages": on_bytes(
        *(bytes(range(first, first + 3)) for first in range(1, 31, 3))
    ),
}
CASES: Final[Cases] = {**AUTO, **LONG_POLL, **SSE, **EQUIVALENCE, **SSE_BINARY}

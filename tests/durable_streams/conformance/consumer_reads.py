"""Cases of reading what is there."""

from __future__ import annotations

from functools import partial
from typing import Final

from durable_streams.conformance.beside import post, wait
from durable_streams.conformance.expectations import (
    BAD_OFFSET,
    NOT_FOUND,
    NOT_FOUND_NAMED,
    containing,
)
from durable_streams.conformance.runner import Cases
from durable_streams.conformance.steps import (
    BINARY,
    JSON,
    LIVE_WINDOW,
    TEXT,
    append,
    create,
    delete,
    finish_read,
    head,
    read,
    stream_of,
)

catch_up = partial(read, live=False)
DIGITS: Final = [f"{number:02}" for number in range(1, 11)]
GREETING: Final = "Grüße: 日本語 🎉 мир"

REPEATED: Final[Cases] = {
    "cache-head-returns-etag": [*stream_of("one"), head()],
    "cache-read-idempotent": [*stream_of("same"), read("same"), read("same")],
    "cache-offset-deterministic": [
        *stream_of("a", "b"),
        read("b", offset="${append1}"),
        read("b", offset="${append1}"),
    ],
    "cache-immutable-historical-data": [
        *stream_of("old"),
        read("old"),
        append("new"),
        read("oldnew"),
        read("new", offset="${read1}"),
    ],
    "cache-content-type-preserved": [
        *stream_of('{"a":1}', content_type=JSON),
        head(content_type=JSON),
    ],
    "cache-uptodate-stable": [*stream_of("end"), read("end"), read("end"), read("end")],
}
CATCH_UP: Final[Cases] = {
    "read-empty-stream": [create(), catch_up("")],
    "read-single-chunk": [*stream_of("a single chunk"), catch_up("a single chunk")],
    "read-multiple-chunks": [*stream_of("one ", "two ", "three"), catch_up("one two three")],
    "read-from-offset": [*stream_of("one", "two"), catch_up("two", offset="${append1}")],
    "read-from-beginning": [*stream_of("one", "two"), catch_up("onetwo")],
    "read-preserves-offset": [
        *stream_of("one", "two"),
        catch_up(containing("one"), max_chunks=1),
        append("three"),
        catch_up(containing("three"), offset="${read1}"),
    ],
    "read-binary-data": [
        *stream_of(b"\x01\x02\x03", content_type=BINARY),
        catch_up(b"\x01\x02\x03"),
    ],
    "read-unicode-data": [
        *stream_of(GREETING, content_type="text/plain; charset=utf-8"),
        catch_up(GREETING),
    ],
}
ORDER: Final[Cases] = {
    "ordering-sequential-appends": [*stream_of("a", "b", "c", "d", "e"), read("abcde")],
    "ordering-many-messages": [*stream_of(*DIGITS), read("".join(DIGITS))],
    "ordering-longpoll-preserves-order": [
        *stream_of("a", "b", "c"),
        read("abc", live="long-poll", until_up_to_date=True),
    ],
    "ordering-sse-preserves-order": [
        *stream_of("x", "y", "z", content_type=TEXT),
        read("xyz", live="sse", until_up_to_date=True),
    ],
    "ordering-offset-monotonic": [
        *stream_of("1", "2", "3"),
        read("23", offset="${append1}"),
        read("3", offset="${append2}"),
        read("", offset="${append3}"),
    ],
    "ordering-live-new-data": [
        *stream_of("before"),
        read(
            "ABC",
            offset="${append1}",
            live="long-poll",
            timeout_ms=LIVE_WINDOW,
            max_chunks=3,
            background=True,
        ),
        wait(100),
        *map(post, "ABC"),
        finish_read(),
    ],
}
REFUSED: Final[Cases] = {
    "not-found-includes-path": [catch_up(None, fails=NOT_FOUND_NAMED)],
    "not-found-on-append-includes-path": [append("x", fails=NOT_FOUND_NAMED)],
    "head-not-found-includes-path": [head(fails=NOT_FOUND_NAMED)],
    "invalid-offset-includes-context": [
        *stream_of("x"),
        catch_up(None, offset="not-a-valid-offset-format", fails=BAD_OFFSET),
    ],
    "read-nonexistent-stream": [catch_up(None, fails=NOT_FOUND)],
    "read-deleted-stream": [*stream_of("x"), delete(), catch_up(None, fails=NOT_FOUND)],
    "read-invalid-offset": [
        *stream_of("x"),
        catch_up(None, offset="not-a-valid-offset-format", fails=BAD_OFFSET),
    ],
    "read-offset-now-nonexistent": [catch_up(None, offset="now", fails=NOT_FOUND)],
    "read-offset-now-nonexistent-longpoll": [
        read(None, offset="now", live="long-poll", timeout_ms=1000, fails=NOT_FOUND)
    ],
    "read-offset-now-nonexistent-sse": [
        read(None, offset="now", live="sse", timeout_ms=1000, fails=NOT_FOUND)
    ],
    "longpoll-nonexistent": [read(None, live="long-poll", timeout_ms=1000, fails=NOT_FOUND)],
    "sse-nonexistent": [read(None, live="sse", timeout_ms=1000, fails=NOT_FOUND)],
}
CASES: Final[Cases] = {**REPEATED, **CATCH_UP, **ORDER, **REFUSED}

"""Cases of offsets: special ones, and those that replies gave."""

from __future__ import annotations

from functools import partial
from typing import Final

from durable_streams.conformance.runner import Cases
from durable_streams.conformance.steps import TEXT, append, create, head, read, stream_of

catch_up = partial(read, live=False)
poll = partial(read, live="long-poll", timeout_ms=1000)
sse = partial(read, live="sse", until_up_to_date=True)

NOW: Final[Cases] = {
    "offset-now-skips-historical": [
        *stream_of("old", "data"),
        read("", offset="now"),
        append("new"),
        read("new", offset="${read1}"),
    ],
    "offset-now-empty-stream": [
        create(),
        read("", offset="now"),
        append("first"),
        read("first", offset="${read1}"),
    ],
    "offset-now-empty-stream-longpoll": [
        create(),
        poll("", offset="now", status=204, up_to_date=True),
        append("first"),
        read("first", offset="${read1}"),
    ],
    "offset-now-empty-stream-sse": [
        create(content_type=TEXT),
        sse("", offset="now"),
        append("first"),
        read("first", offset="${read1}"),
    ],
    "offset-now-matches-tail": [
        *stream_of("old"),
        read("old"),
        read("", offset="now"),
        append("new"),
        read("new", offset="${read1}"),
        read("new", offset="${read2}"),
    ],
    "offset-now-longpoll-waits": [
        *stream_of("old"),
        poll("", offset="now", status=204, up_to_date=True),
        append("new"),
        read("new", offset="${read1}"),
    ],
    "offset-now-sse": [
        *stream_of("old", content_type=TEXT),
        sse("", offset="now"),
        append("new"),
        read("new", offset="${read1}"),
    ],
}
PLACES: Final[Cases] = {
    "offset-minus-one-start": [*stream_of("a", "b", "c"), read("abc", offset="-1")],
    "offset-empty-stream": [create(), read("")],
    "offset-at-end": [*stream_of("all"), read("", offset="${append1}")],
    "offset-multiple-reads-same-offset": [
        *stream_of("one", "two"),
        *(3 * [read("two", offset="${append1}")]),
    ],
    "offset-byte-exactness": [
        *stream_of("0123456789", "abcdefghij"),
        catch_up("0123456789abcdefghij"),
        catch_up("abcdefghij", offset="${append1}"),
    ],
}
RESUMED: Final[Cases] = {
    "offset-resume-partial": [
        *stream_of("one", "two", "three"),
        read("twothree", offset="${append1}"),
        read("three", offset="${append2}"),
    ],
    "offset-stored-correctly": [
        *stream_of("one", "two"),
        read("onetwo"),
        append("three"),
        read("three", offset="${read1}"),
    ],
    "offset-longpoll-resume": [
        *stream_of("old", "new"),
        poll("new", offset="${append1}", up_to_date=True),
    ],
    "offset-sse-resume": [
        *stream_of("old", "new", content_type=TEXT),
        sse("new", offset="${append1}"),
    ],
    "offset-monotonic": [
        *stream_of("one", "two", "three"),
        catch_up("twothree", offset="${append1}"),
        catch_up("three", offset="${append2}"),
        catch_up("", offset="${append3}"),
    ],
    "offset-exact-resumption": [
        *stream_of("one", "two", "three"),
        catch_up("onetwothree"),
        catch_up("twothree", offset="${append1}"),
        catch_up("three", offset="${append2}"),
    ],
    "offset-persists-across-sessions": [
        *stream_of("first", "second"),
        catch_up("second", offset="${append1}"),
    ],
    "offset-from-head": [
        *stream_of("before"),
        head(),
        append("after"),
        catch_up("after", offset="${head1}"),
    ],
}
CASES: Final[Cases] = {**NOW, **PLACES, **RESUMED}

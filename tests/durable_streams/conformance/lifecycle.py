"""Cases of the life of a stream up to its closure, and of what is sent beside data."""

from __future__ import annotations

from functools import partial
from typing import Final

from durable_streams.conformance.beside import close_beside, wait
from durable_streams.conformance.expectations import CLOSED, NOT_FOUND, containing
from durable_streams.conformance.runner import Cases, Step
from durable_streams.conformance.steps import (
    JSON,
    TEXT,
    append,
    close,
    connect,
    create,
    delete,
    detach,
    dynamic_header,
    dynamic_param,
    finish,
    finish_read,
    head,
    produce,
    read,
    stream_of,
)

catch_up = partial(read, live=False)
BEARER: Final = {"Authorization": "Bearer token"}
COUNTER: Final = "X-Request-Counter"

DYNAMIC: Final[Cases] = {
    "dynamic-header-per-request": [
        create(),
        dynamic_header(COUNTER),
        *(append("x", sent={COUNTER: count}) for count in "123"),
    ],
    "dynamic-header-on-read": [
        *stream_of("all"),
        dynamic_header(COUNTER),
        *(catch_up("all", sent={COUNTER: count}) for count in "12"),
    ],
    "dynamic-param-per-request": [
        *stream_of("all"),
        dynamic_param("request_id"),
        *(catch_up("all", sent_params={"request_id": count}) for count in "12"),
    ],
    "token-refresh-simulation": [
        create(),
        dynamic_header("Authorization", "token", "Bearer v1"),
        append("a", sent={"Authorization": "Bearer v1"}),
        dynamic_header("Authorization", "token", "Bearer v2"),
        append("b", sent={"Authorization": "Bearer v2"}),
    ],
}
HEADERS: Final[Cases] = {
    "custom-headers-create": [create(headers={"X-One": "1", "X-Two": "2"})],
    "custom-headers-append": [create(), append("x", headers={"X-Request-Id": "1", **BEARER})],
    "custom-headers-read": [*stream_of("all"), catch_up("all", headers=BEARER)],
    "custom-headers-head": [create(), head(headers={"X-Trace-Id": "trace"})],
    "custom-headers-delete": [create(), delete(headers=BEARER)],
    "content-type-preserved": [
        create(content_type="application/x-custom-type"),
        head(content_type="application/x-custom-type"),
    ],
    "content-type-with-charset": [
        create(content_type="text/plain; charset=utf-8"),
        head(content_type="text/plain; charset=utf-8"),
    ],
}
LIFE: Final[Cases] = {
    "full-lifecycle": [
        *stream_of("all", content_type=TEXT),
        catch_up("all"),
        delete(),
        catch_up(None, fails=NOT_FOUND),
    ],
    "connect-existing": [*stream_of("all"), connect(), catch_up("all")],
    "head-metadata": [*stream_of('{"a":1}', content_type=JSON), head(content_type=JSON)],
    "head-empty-stream": [create(), head()],
    "multiple-streams": [
        create("a"),
        create("b"),
        append("in a", "a"),
        append("in b", "b"),
        catch_up("in a", "a"),
        catch_up("in b", "b"),
        delete("a"),
        catch_up("in b", "b"),
    ],
    "recreate-after-delete": [*stream_of("old"), delete(), create(), catch_up("")],
}


def text(*data: str) -> list[Step]:
    """Create a stream of texts."""
    return stream_of(*data, content_type=TEXT)


is_closed: Final = head(closed=True)
complete = partial(catch_up, closed=True)

CLOSURE: Final[Cases] = {
    "close-empty-stream": [*text(), close(), is_closed],
    "close-with-content": [*stream_of('{"a":1}', content_type=JSON), close(), is_closed],
    "close-with-final-message": [*text("one"), close("two"), complete("onetwo")],
    "close-returns-result": [*text("one"), close()],
    "close-idempotent": [*text("one"), close(), close(), is_closed],
    "close-nonexistent-stream": [close(fails=NOT_FOUND)],
    "create-closed-stream": [create(content_type=TEXT, closed=True), is_closed, complete("")],
    "create-closed-stream-with-body": [
        create(content_type=TEXT, closed=True, data="all"),
        complete("all"),
    ],
    "create-closed-with-ttl": [
        create(content_type=TEXT, closed=True, ttlSeconds=60),
        is_closed,
    ],
    "create-then-close-with-body": [*text(), close("all"), complete("all")],
    "append-to-closed-stream-fails": [*text(), close(), append("late", fails=CLOSED)],
    "read-closed-stream-catchup": [*text("one", "two"), close(), complete("onetwo")],
    "read-closed-stream-empty-eof": [
        *text("all"),
        catch_up("all"),
        close(),
        complete("", offset="${read1}"),
    ],
    "read-offset-beyond-closed-tail": [
        *text("all"),
        close(),
        complete("all"),
        complete("", offset="${read1}"),
    ],
    "head-closed-stream": [*text("all"), head(closed=False), close(), is_closed],
    "head-closed-stream-returns-tail-offset": [
        *text(),
        head(),
        close("all"),
        is_closed,
        complete("", offset="${head2}"),
    ],
    "delete-closed-stream": [
        *text("all"),
        close(),
        is_closed,
        delete(),
        head(fails=NOT_FOUND),
    ],
    "long-poll-closed-stream-immediate": [
        *text("all"),
        close(),
        complete("all"),
        read(
            "",
            offset="${read1}",
            live="long-poll",
            timeout_ms=5000,
            up_to_date=True,
            closed=True,
        ),
    ],
    "sse-closed-stream-final-event": [
        *text("old"),
        read(
            "last",
            offset="${append1}",
            live="sse",
            max_chunks=1,
            timeout_ms=5000,
            closed=True,
            background=True,
        ),
        wait(200),
        close_beside("last"),
        finish_read(),
    ],
    "state-caught-up-open": [*text("all"), catch_up("all")],
    "state-complete": [*text("all"), close(), complete("all")],
    "state-open-stream-partial-read": [
        *text("one", "two"),
        read(containing("one"), live="long-poll", max_chunks=1, timeout_ms=5000, closed=False),
        catch_up(containing(), offset="${read1}"),
    ],
}
CLOSING_PRODUCERS: Final[Cases] = {
    "idempotent-producer-close": [
        *text(),
        produce("one"),
        finish(),
        is_closed,
        complete("one"),
    ],
    "idempotent-producer-close-with-final-message": [
        *text(),
        produce("one"),
        finish("two"),
        complete("onetwo"),
    ],
    "idempotent-producer-detach-does-not-close": [
        *text(),
        produce("one"),
        detach(),
        head(closed=False),
        append("two"),
        catch_up("onetwo"),
    ],
    "idempotent-producer-close-idempotent": [
        *text(),
        produce("one"),
        finish(),
        finish(),
        is_closed,
    ],
    "idempotent-producer-close-conflict": [
        *text(),
        produce("one"),
        finish(),
        finish(producer="another", fails=CLOSED),
        is_closed,
    ],
    "atomic-close-dedup-with-producer": [
        *text(),
        finish("all"),
        finish("all"),
        complete("all"),
    ],
    "close-with-body-retry-different-body": [
        *text(),
        finish("first"),
        finish("second"),
        complete("first"),
    ],
}
CASES: Final[Cases] = {**DYNAMIC, **HEADERS, **LIFE, **CLOSURE, **CLOSING_PRODUCERS}

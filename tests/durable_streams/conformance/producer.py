"""Cases of creating streams and appending to them without a producer's id."""

from __future__ import annotations

from typing import Final

from durable_streams.conformance.expectations import NO_DATA, NOT_FOUND, OUT_OF_ORDER
from durable_streams.conformance.runner import Cases
from durable_streams.conformance.steps import (
    BINARY,
    JSON,
    TEXT,
    append,
    connect,
    create,
    delete,
    head,
    read,
    stream_of,
)

LARGE: Final = "X" * 10_000
GREETING: Final = "Hello 世界 🌍 Привет"

CREATE: Final[Cases] = {
    "create-basic": [create()],
    "create-with-content-type": [create(content_type=JSON), head(content_type=JSON)],
    "create-idempotent": [create(content_type=TEXT), create(content_type=TEXT, status=200)],
    "create-with-ttl": [create(ttlSeconds=3600), head()],
    "create-with-custom-headers": [create(headers={"X-Custom-Header": "test-value"})],
    "create-binary-stream": [create(content_type=BINARY), head(content_type=BINARY)],
}
APPEND: Final[Cases] = {
    "append-string": [*stream_of("a text", content_type=TEXT), read("a text")],
    "append-multiple": [
        *stream_of("one ", "two ", "three", content_type=TEXT),
        read("one two three"),
    ],
    "append-binary": [*stream_of(b"some bytes", content_type=BINARY), read(b"some bytes")],
    "append-empty": [create(), append("", fails=NO_DATA)],
    "append-large-data": [*stream_of(LARGE, content_type=TEXT), read(LARGE)],
    "append-unicode": [
        *stream_of(GREETING, content_type="text/plain; charset=utf-8"),
        read(GREETING),
    ],
    "append-with-custom-headers": [create(), append("x", headers={"X-Request-Id": "12345"})],
    "batch-concurrent-appends": [
        *stream_of(*"abcde", content_type=TEXT),
        read("abcde"),
    ],
    "batch-preserves-order": [*stream_of(*"12345", content_type=TEXT), read("12345")],
}
SEQUENCES: Final[Cases] = {
    "batch-with-sequences": [
        create(),
        *(append(data, seq=seq) for seq, data in enumerate("abc", 1)),
        read("abc"),
    ],
    "batch-partial-failure": [
        create(),
        append("a", seq=1),
        append("b", seq=2),
        append("late", seq=1, fails=OUT_OF_ORDER),
        append("c", seq=3),
        read("abc"),
    ],
    "seq-basic-ordering": [create(), append("a", seq=1), append("b", seq=2), read("ab")],
    "seq-conflict-detection": [
        create(),
        append("a", seq=1),
        append("b", seq=2),
        append("late", seq=1, fails=OUT_OF_ORDER),
    ],
    "seq-skip-numbers": [
        create(),
        append("a", seq=10),
        append("b", seq=100),
        append("c", seq=1000),
        read("abc"),
    ],
    "seq-same-number-conflict": [
        create(),
        append("a", seq=5),
        append("again", seq=5, fails=OUT_OF_ORDER),
    ],
    "seq-large-numbers": [create(), append("a", seq=(1 << 53) - 1)],
    "seq-without-seq": [*stream_of("a", "b"), read("ab")],
}
REFUSED: Final[Cases] = {
    "append-to-nonexistent": [append("x", fails=NOT_FOUND)],
    "create-then-delete-then-append": [
        *stream_of("before"),
        delete(),
        append("after", fails=NOT_FOUND),
    ],
    "connect-nonexistent": [connect(fails=NOT_FOUND)],
    "head-nonexistent": [head(fails=NOT_FOUND)],
    "delete-nonexistent": [delete(fails=NOT_FOUND)],
    "delete-idempotent": [create(), delete(), delete(fails=NOT_FOUND)],
}
CASES: Final[Cases] = {**CREATE, **APPEND, **SEQUENCES, **REFUSED}

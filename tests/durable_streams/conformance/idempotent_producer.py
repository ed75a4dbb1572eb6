"""Cases of producers whose repeated requests count once.

Many of them never reach the client: they hold for the server that it is tested with.
"""

from __future__ import annotations

import json
from functools import partial
from typing import Any, Final

from durable_streams.conformance.beside import post
from durable_streams.conformance.expectations import items
from durable_streams.conformance.runner import Cases, Step
from durable_streams.conformance.steps import (
    JSON,
    TEXT,
    create,
    delete,
    produce,
    read,
)

on_text: Final = create(content_type=TEXT)
on_json: Final = create(content_type=JSON)
stale = partial(post, "stale", status=403)
wrong = partial(post, "wrong", status=400)
MIXED: Final = ("42", '"string"', "null", "true", '{"obj": 1}')
LONG_ID: Final = "a-producer-id-of-great-length-" * 5


def many(prefix: str, count: int = 20, **options: Any) -> list[Step]:
    """Append many texts at once, and find them in order."""
    texts = [f"{prefix}-{number:02}" for number in range(count)]
    return [on_text, produce(texts, maxInFlight=5, **options), read("".join(texts))]


def many_json(key: str, **options: Any) -> list[Step]:
    """Append ten objects at once, and find them in order."""
    values = [{key: number} for number in range(10)]
    texts = list(map(json.dumps, values))
    return [on_json, produce(texts, maxInFlight=5, **options), read(items(*values))]


def sent(
    data: str,
    epoch: int,
    seq: int,
    /,
    *,
    name: str = "producer",
    **expected: Any,
) -> Step:
    """Append as a producer, beside the client."""
    return post(data, (name, epoch, seq), **expected)


def repeated(data: str, epoch: int, seq: int, **options: Any) -> Step:
    """Append again what the server has."""
    return sent(data, epoch, seq, status=204, **options)


def fenced(epoch: int, *texts: str, **options: Any) -> list[Step]:
    """Append with epoch 0 although the server has seen a later one, and claim the next."""
    data = texts[0] if len(texts) == 1 else texts
    return [
        on_text,
        sent("first", epoch, 0),
        produce(data, autoClaim=True, **options),
        read("first" + "".join(texts)),
    ]


def numbers(*values: str, **headers: str) -> Step:
    """Append with the headers of a producer of any form, which the server refuses."""
    names = ("Producer-Id", "Producer-Epoch", "Producer-Seq")
    return wrong(headers=dict(zip(names, values, strict=False)) | headers)


JSON_BATCHES: Final[Cases] = {
    "json-batch-single-item": [
        on_json,
        produce('{"message": "hello"}'),
        read('[{"message":"hello"}]'),
    ],
    "json-batch-multiple-items": [
        on_json,
        produce(['{"id": 1}', '{"id": 2}', '{"id": 3}']),
        read(items({"id": 1}, {"id": 2}, {"id": 3})),
    ],
    "json-batch-nested-arrays": [
        on_json,
        produce(["[1, 2, 3]", "[4, 5, 6]"]),
        read(items([1, 2, 3], [4, 5, 6])),
    ],
    "json-batch-mixed-types": [
        on_json,
        produce(MIXED),
        read(items(*json.loads(f"[{','.join(MIXED)}]"))),
    ],
    "bytes-batch-concatenates": [
        on_text,
        produce(["Hello", " ", "World"]),
        read("Hello World"),
    ],
    "client-deduplication-works": [
        on_json,
        *(2 * [produce(['{"msg": "first"}', '{"msg": "second"}'])]),
        read('[{"msg":"first"},{"msg":"second"}]'),
    ],
}
CLAIMS: Final[Cases] = {
    "autoclaim-with-pipelining": many("ac", autoClaim=True),
    "autoclaim-with-pipelining-json": many_json("msg", autoClaim=True),
    "autoclaim-recovers-from-stale-epoch": fenced(5, "recovered"),
    "autoclaim-recovers-from-403": fenced(5, "recovered"),
    "autoclaim-batch-recovers-from-403": fenced(3, "one", "two", "three", maxInFlight=1),
    "concurrent-batches-all-delivered": many("msg"),
    "concurrent-json-batches-all-delivered": many_json("id"),
}
BATCHES: Final[Cases] = {
    "batch-retry-deduplication": [
        on_json,
        sent('[{"id":1},{"id":2},{"id":3}]', 0, 0),
        repeated('[{"id":1},{"id":2},{"id":3}]', 0, 0),
        read(items({"id": 1}, {"id": 2}, {"id": 3})),
        sent('[{"id":4}]', 0, 1),
    ],
    "producer-with-stream-seq": [on_text, sent("a", 0, 0, headers={"Stream-Seq": "seq-001"})],
    "duplicate-json-different-payload": [
        on_json,
        sent('{"key": "original"}', 0, 0),
        repeated('{"key": "different", "extra": true}', 0, 0),
        read(items({"key": "original"})),
    ],
}
EPOCHS: Final[Cases] = {
    "epoch-upgrade-accepted": [
        on_text,
        sent("a", 0, 0),
        sent("b", 0, 1),
        sent("c", 1, 0, epoch=1),
    ],
    "stale-epoch-rejected": [on_text, sent("a", 1, 0), stale(("producer", 0, 0), epoch=1)],
    "epoch-rollback-rejected": [on_text, sent("a", 2, 0), stale(("producer", 1, 0))],
    "epoch-increase-requires-seq-zero": [on_text, sent("a", 0, 0), wrong(("producer", 1, 5))],
    "epoch-gap-allowed": [
        on_text,
        sent("a", 0, 0),
        sent("b", 10, 0),
        stale(("producer", 5, 0), epoch=10),
    ],
    "epoch-zero-after-higher-epoch": [
        on_text,
        sent("a", 5, 0),
        stale(("producer", 0, 0), epoch=5),
        stale(("producer", 4, 0), epoch=5),
    ],
    "split-brain-fencing": [
        on_text,
        sent("a", 0, 0),
        sent("b", 1, 0),
        stale(("producer", 0, 1), epoch=1),
    ],
    "large-epoch-numbers": [
        on_text,
        sent("a", 2147483640, 0),
        stale(("producer", 100, 0), epoch=2147483640),
    ],
    "sequence-resets-on-epoch-upgrade": [
        on_text,
        *(sent(str(seq), 0, seq) for seq in range(3)),
        *(sent(str(seq), 1, seq) for seq in range(2)),
        read("01201"),
    ],
}
REFUSED: Final[Cases] = {
    "partial-headers-rejected": [on_text, numbers("producer"), numbers("producer", "0")],
    "invalid-integer-formats-rejected": [
        on_text,
        numbers("producer", "0", "1abc"),
        numbers("producer", "1e3", "0"),
        numbers("producer", "-1", "0"),
    ],
    "empty-producer-id-rejected": [on_text, numbers("", "0", "0")],
    "failed-append-does-not-advance-producer-state": [
        on_json,
        sent('{"msg": 1}', 0, 0),
        wrong(("producer", 0, 1)),
        sent('{"msg": 2}', 0, 1),
        sent('{"msg": 3}', 0, 2),
    ],
    "gap-fill-resume": [
        on_text,
        sent("a", 0, 0),
        sent("c", 0, 2, status=409),
        sent("b", 0, 1),
        sent("c", 0, 2),
        read("abc"),
    ],
}
PRODUCERS: Final[Cases] = {
    "multiple-producers-independent": [
        on_text,
        *(sent(f"{name}{seq}", 0, seq, name=name) for seq in range(2) for name in "AB"),
    ],
    "interleaved-producers-ordering": [
        on_text,
        *(sent(name + seq, 0, int(seq), name=name) for name, seq in ("A0", "B0", "A1", "B1", "A2")),
        read("A0B0A1B1A2"),
    ],
    "producer-scope-per-stream": [
        create("a", TEXT),
        create("b", TEXT),
        sent("in a", 0, 0, stream="a"),
        sent("in b", 0, 0, stream="b"),
        read("in a", "a"),
        read("in b", "b"),
    ],
    "producer-epoch-per-stream": [
        create("a", TEXT),
        create("b", TEXT),
        sent("in a", 5, 0, stream="a"),
        sent("in b", 0, 0, stream="b"),
        stale(("producer", 0, 1), "a", epoch=5),
    ],
    "delete-recreate-resets-producer-state": [
        on_text,
        sent("a", 0, 0),
        sent("b", 0, 1),
        delete(),
        on_text,
        sent("new", 0, 0),
        read("new"),
    ],
    "producer-id-long": [on_text, sent("a", 0, 0, name=LONG_ID), repeated("a", 0, 0, name=LONG_ID)],
    "producer-id-with-special-chars": [
        on_text,
        sent("a", 0, 0, name="service:instance:123"),
        sent("b", 0, 0, name="region/zone/host"),
        sent("c", 0, 0, name="550e8400-e29b-41d4-a716-446655440000"),
    ],
}
SEQUENCES: Final[Cases] = {
    "first-append-accepted": [on_text, sent("a", 0, 0, epoch=0)],
    "sequential-sequences": [on_text, *(sent(str(seq), 0, seq) for seq in range(3))],
    "sequence-gap-rejected": [
        on_text,
        sent("a", 0, 0),
        sent("c", 0, 2, status=409, gap=(1, 2)),
    ],
    "new-producer-seq-not-zero": [on_text, sent("a", 0, 5, status=409, gap=(0, 5))],
    "duplicate-returns-204": [on_text, sent("a", 0, 0), repeated("a", 0, 0), read("a")],
    "duplicate-seq-zero-preserves-state": [
        on_text,
        sent("a", 0, 0),
        repeated("a", 0, 0),
        sent("b", 0, 1),
    ],
    "duplicate-ignores-different-data": [
        on_text,
        sent("original", 0, 0),
        repeated("different", 0, 0),
        read("original"),
    ],
    "ordering-preserved-in-stream": [
        on_json,
        *(sent(f'{{"seq": {seq}}}', 0, seq) for seq in range(3)),
        read(items({"seq": 0}, {"seq": 1}, {"seq": 2})),
    ],
    "duplicate-old-sequence": [
        on_text,
        *(sent(str(seq), 0, seq) for seq in range(6)),
        repeated("1", 0, 1),
        repeated("0", 0, 0),
        sent("6", 0, 6),
        read("0123456"),
    ],
}
CASES: Final[Cases] = {
    **JSON_BATCHES,
    **CLAIMS,
    **BATCHES,
    **EPOCHS,
    **REFUSED,
    **PRODUCERS,
    **SEQUENCES,
}

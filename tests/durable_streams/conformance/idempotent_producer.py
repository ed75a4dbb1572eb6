"""Cases of producers whose repeated requests count once."""

from __future__ import annotations

import json
from typing import Any, Final

from durable_streams.conformance.beside import post
from durable_streams.conformance.expectations import items
from durable_streams.conformance.runner import Cases, Step
from durable_streams.conformance.steps import (
    JSON,
    TEXT,
    create,
    produce,
    read,
)

on_text: Final = create(content_type=TEXT)
on_json: Final = create(content_type=JSON)
MIXED: Final = ("42", '"string"', "null", "true", '{"obj": 1}')


def many(prefix: str, count: int = 20, **options: Any) -> list[Step]:
    """Append many texts at once, and find them in order."""
    texts = [f"{prefix}-{number:02}" for number in range(count)]
    return [on_text, produce(texts, maxInFlight=5, **options), read("".join(texts))]


def many_json(key: str, **options: Any) -> list[Step]:
    """Append ten objects at once, and find them in order."""
    values = [{key: number} for number in range(10)]
    texts = list(map(json.dumps, values))
    return [on_json, produce(texts, maxInFlight=5, **options), read(items(*values))]


def fenced(epoch: int, *texts: str, **options: Any) -> list[Step]:
    """Append with epoch 0 although the server has seen a later one, and claim the next."""
    data = texts[0] if len(texts) == 1 else texts
    return [
        on_text,
        post("first", ("producer", epoch, 0)),
        produce(data, autoClaim=True, **options),
        read("first" + "".join(texts)),
    ]


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
CASES: Final[Cases] = {**JSON_BATCHES, **CLAIMS}

"""What is computed of Spark's reports."""

from __future__ import annotations

import json
from typing import Any

from liftbridge_aio.spark import query_lag


def test_the_lag_is_what_the_batch_left() -> None:
    """Of offsets as texts, as Spark has them, or as objects, as its JSON has them."""
    end = {"a": {"0": 4, "1": 2, "began": {"0": 0, "1": 0}, "created": 17}, "b": {"0": 9}}
    latest = {"a": {"0": 6, "1": 2, "created": 17}, "b": {"0": 9, "1": 3}}
    kafka: dict[str, Any] = {"endOffset": "rate", "latestOffset": None}
    for convert in (json.dumps, dict[str, Any]):
        source = {"endOffset": convert(end), "latestOffset": convert(latest)}
        assert query_lag({"sources": [source, kafka]}) == 2 + 3
    assert query_lag({"sources": [{"endOffset": json.dumps(end), "latestOffset": None}]}) == 0
    assert query_lag(None) == 0

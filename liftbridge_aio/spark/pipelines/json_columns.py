"""How pipelines write columns as JSON: nothing is cut off, and nothing is left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

_TIME: Final = "yyyy-MM-dd'T'HH:mm:ss.SSSSSS"

JSON_OPTIONS: Final[Mapping[str, str]] = {
    "ignoreNullFields": "false",
    "timestampFormat": f"{_TIME}XXX",
    "timestampNTZFormat": _TIME,
}
"""Options of Spark's `to_json`, whose defaults cut microseconds and drop fields that are null."""

"""Messages of Liftbridge's own streams as JSON. Pure."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping


def message_json(
    offset: int, key: bytes, value: bytes, headers: Mapping[str, bytes], timestamp: int
) -> bytes:
    """Return a message as a JSON object.

    Bytes that are UTF-8 are strings; others are in base64, in a field whose name ends in
    `_base64`. The timestamp is in nanoseconds since 1970, as a string: JavaScript cannot hold it.
    """
    fields: dict[str, object] = {"offset": offset, "timestamp": str(timestamp)}
    if key:
        fields |= _text("key", key)
    fields |= _text("value", value)
    if headers:
        fields["headers"] = {
            name: content
            for header, raw in headers.items()
            for name, content in _text(header, raw).items()
        }
    return json.dumps(fields, separators=(",", ":"), ensure_ascii=False).encode()


def _text(name: str, raw: bytes) -> dict[str, str]:
    try:
        return {name: raw.decode()}
    except UnicodeDecodeError:
        return {f"{name}_base64": base64.b64encode(raw).decode()}

"""The streams of the scenario, and the orders in them. Pure."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta
from typing import Any, Final

ORDERS: Final = "orders"
INVOICES: Final = "invoices"
PLAIN_INVOICES: Final = "invoices-plain"
TOTALS: Final = "totals"
PARTITIONS: Final = 2
PLAIN_CURSOR: Final = "plain-worker"
LAST: Final = "last"
"""The id of the order that ends the last window; it is in no total."""

_SHOPS: Final = ("Accra", "Bergen", "Cusco", "Dakar")
_OPENING: Final = datetime(2026, 3, 2, 9, tzinfo=UTC)
_LENGTH: Final = timedelta(hours=1)
WINDOW: Final = "5 minutes"
LATENESS: Final = "30 minutes"
"""More than two waves; no order is later than one."""


def order(number: int, count: int) -> bytes:
    """Make one of `count` orders, spread over an hour."""
    return _encoded(f"order-{number}", _SHOPS[number % 4], _OPENING + _LENGTH * number / count)


def last_order() -> bytes:
    """Make the order that ends all windows before it."""
    return _encoded(LAST, "", _OPENING + timedelta(days=1))


def identity(value: bytes) -> str:
    """Return the id of an order or invoice."""
    found: str = json.loads(value)["id"]
    return found


def total(value: bytes) -> tuple[str, int]:
    """Return the shop and window of a total, and the number of its sales."""
    content = json.loads(value)
    return f"{content['shop']} {content['start']}", content["sales"]


def _encoded(name: str, shop: str, at: datetime) -> bytes:
    content: dict[str, Any] = {"id": name, "shop": shop, "cents": 100, "at": at.isoformat()}
    return json.dumps(content).encode()

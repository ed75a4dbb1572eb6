"""Settings of load on a cluster, and calls that are timed."""

from __future__ import annotations

import time
from collections.abc import Awaitable
from typing import Any, Final, TypeVar

from liftbridge_aio import AckPolicy, ClientOptions, LiftbridgeError
from support.cluster.nodes import BOUND

T = TypeVar("T")

OPTIONS: Final = ClientOptions(
    connect_timeout=1.0,
    call_timeout=3.0,
    ack_timeout=1.0,
    publish_timeout=2.0,
    health_interval=0.5,
    health_timeout=1.0,
)
"""Of a client that notices soon what is wrong, and gives up soon."""

GRACE: Final = 1.0
"""Seconds that a call may take longer than its timeout."""
CALL_BOUND: Final = 3.0 + GRACE


async def timed(call: Awaitable[T], bound: float = CALL_BOUND) -> T:
    """Await a call; it must end within so many seconds, whether well or not."""
    began = time.monotonic()
    try:
        return await call
    finally:
        took = time.monotonic() - began
        assert took <= bound, f"{took:.1f} s"


async def refused(call: Awaitable[object]) -> LiftbridgeError:
    """The error by which a call ends, in time."""
    try:
        result = await timed(call)
    except LiftbridgeError as error:
        return error
    raise AssertionError(f"it succeeded: {result}")


LOAD: Final[dict[str, Any]] = {
    "publishers": 4,
    "policy": AckPolicy.ALL,
    "bound": BOUND,
    "publish_bound": 1.0 + 2.0 + GRACE,
    "pause": 0.005,  # so that the processors are left to the servers
}
"""Of the traffic on a cluster."""

"""The moments in which a driver is killed while it commits a batch to two partitions."""

from __future__ import annotations

from typing import Any, Final

KILL_POINTS: Final = (
    "before its decision",
    "before its commit",
    "between two partitions",
    "after its commit",
)


def stall_at(point: str, stream: str, offset: int) -> dict[str, Any]:
    """Return where a broker stalls the call in which the driver is to be killed.

    Args:
        point: one of `KILL_POINTS`.
        stream: that the batch is written to.
        offset: in both partitions, an offset behind all rows whose acks come later.
    """
    match point:
        case "before its decision":
            return {
                "rpc": "CreateStream",
                "at": "request",
                "when": lambda request: request.name.startswith("spark-decisions-"),
            }
        case "after its commit":
            return {
                "rpc": "PublishAsync",
                "at": "reply",
                "when_reply": lambda reply: (
                    reply.ack.stream == stream and reply.ack.offset >= offset
                ),
                "skip": 1,
            }
        case _:
            return {
                "rpc": "PublishAsync",
                "at": "request",
                "when": lambda request: "txn-ack" in request.headers,
                "skip": KILL_POINTS.index(point) - 1,
            }

"""A client for NSQ: a producer and a consumer for asyncio.

- `connection`: A connection to an nsqd: negotiation, responses in order, heartbeats, frames to
  their owner.
- `core`: The protocol of NSQ, and what a consumer decides. Pure.
- `errors`: The errors of the NSQ client: a tree below `LiftbridgeError`.
- `producer`: `Producer`: publishes to one nsqd, and connects again when it was lost.
"""

from __future__ import annotations

from .producer import Producer

__all__ = ["Producer"]

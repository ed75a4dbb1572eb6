"""Bridges: copy between Liftbridge and NATS Streaming or NSQ while both are in use.

    await Bridge("stan://nats:4222/test-cluster/orders", "liftbridge://lift:9292/orders").run()

The guide is `docs/bridges.md`.

- `bridge`: `Bridge`: copies messages from one system to another, and resumes where it stopped.
- `ends`: What a bridge needs of its two ends.
- `errors`: The errors of bridges, a tree below `LiftbridgeError`; those of clients pass through.
- `liftbridge`: A stream of Liftbridge as an end of a bridge.
- `nsq`: A topic of NSQ as an end of a bridge.
- `stan`: A channel of NATS Streaming as an end of a bridge.
- `core/`: Pure parts of bridges: no event loop, clock, chance or I/O.
"""

from .bridge import Bridge, Progress
from .ends import ID_HEADER, MARKER_HEADER, SOURCE_HEADER, TARGET_HEADER, TIME_HEADER
from .errors import BridgeError, MessageRefused, PositionLost, SourceReset, TargetUnsuitable

__all__ = [
    "ID_HEADER",
    "MARKER_HEADER",
    "SOURCE_HEADER",
    "TARGET_HEADER",
    "TIME_HEADER",
    "Bridge",
    "BridgeError",
    "MessageRefused",
    "PositionLost",
    "Progress",
    "SourceReset",
    "TargetUnsuitable",
]

"""Bridges: copy between Liftbridge and other systems, or two clusters, while both are in use.

    await Bridge("stan://nats:4222/test-cluster/orders", "liftbridge://lift:9292/orders").run()

The guide is `docs/bridges.md`.

- `bridge`: `Bridge`: copies messages from one system to another, and resumes where it stopped.
- `ends`: What a bridge needs of its two ends.
- `errors`: The errors of bridges, a tree below `LiftbridgeError`; those of clients pass through.
- `exact_target`: A stream of Liftbridge as the target of messages that are numbered.
- `liftbridge`: Liftbridge as the system at one end of a bridge, or at both.
- `nsq`: A topic of NSQ as an end of a bridge.
- `stan`: A channel of NATS Streaming as an end of a bridge.
- `stream_source`: A stream of Liftbridge as the source of a bridge.
- `stream_target`: What all targets that are a stream of Liftbridge share.
- `streams`: What both ends of a bridge need of a stream of Liftbridge.
- `systems`: The systems at the ends of a bridge, and their URLs.
- `window_target`: A stream of Liftbridge as the target of messages that have no order.
- `core/`: Pure parts of bridges: no event loop, clock, chance or I/O.
"""

from .bridge import Bridge, Progress
from .ends import ID_HEADER, MARKER_HEADER, PATH_HEADER, SOURCE_HEADER, TARGET_HEADER, TIME_HEADER
from .errors import BridgeError, MessageRefused, PositionLost, SourceReset, TargetUnsuitable

__all__ = [
    "ID_HEADER",
    "MARKER_HEADER",
    "PATH_HEADER",
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


def __dir__() -> list[str]:
    return __all__

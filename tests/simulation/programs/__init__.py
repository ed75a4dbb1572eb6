"""Programs of users in a simulated world, each on hosts of its own, and what they have seen.

A program is started again after its process was killed or stopped. What it has seen outlives it.
"""

from __future__ import annotations

from typing import Final

from .bridges import Mirroring
from .gateway import Serving
from .groups import Grouping, Recreating
from .ledgers import Accounting
from .producers import Producing
from .program import Program
from .queues import Queueing
from .ranges import Batching
from .readers import DurableReading, Reading
from .retries import Retrying
from .seeks import Marking, Seeking
from .stores import Booking
from .transactions import Invoicing, Receipting

AT_LEAST_ONCE: Final[tuple[type[Program], ...]] = (Reading, DurableReading, Grouping, Queueing)
"""Those that go on with what there is where servers have lost messages."""
ALL: Final[tuple[type[Program], ...]] = (
    *AT_LEAST_ONCE,
    Invoicing,
    Receipting,
    Producing,
    Recreating,
    Serving,
    Mirroring,
    Retrying,
    Batching,
    Seeking,
    Marking,
    Accounting,
    Booking,
)

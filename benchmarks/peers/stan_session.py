"""What the programs of NATS Streaming have in common."""

from __future__ import annotations

import os
from typing import Final

CLUSTER: Final = "test-cluster"
CLIENT_ID: Final = f"bench-{os.getpid()}"
MAX_IN_FLIGHT: Final = 1_000
"""Unacked messages of a subscription, the same for all."""

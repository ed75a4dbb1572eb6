"""A Liftbridge server inside your process: real gRPC on a real port, all data in memory.

`log`, `reader`, `partition`, `state` and `subjects` are pure; `service` and `publish_session` bring
the clock and gRPC; `server` and `connections` own the port. Nothing here is shared with the client
but plain values and the messages of the wire, so that a mistake of one is seen by the other.
"""

from .embedded_broker import EmbeddedBroker
from .fault_plan import AppliedFault
from .faults import Fault, Faults, Stall
from .server import BrokerState, BrokerStatistics

__all__ = [
    "AppliedFault",
    "BrokerState",
    "BrokerStatistics",
    "EmbeddedBroker",
    "Fault",
    "Faults",
    "Stall",
]

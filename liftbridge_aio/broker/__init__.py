"""A Liftbridge server inside your process: real gRPC on real ports, alone or as a cluster.

Decisions are pure: `cluster/` and `storage/core/` have no event loop, clock, randomness or I/O.
`server/` brings gRPC and time, the rest of `storage/` the disk. The broker shares only plain values
and protocol messages with the client, so that a mistake in one shows in the other.

- `embedded_broker`: The embedded broker: a Liftbridge server inside this process.
- `embedded_cluster`: A cluster of embedded brokers in one process, with control over failures.
- `errors`: The errors with which the broker refuses requests: status codes of gRPC, without gRPC.
- `flaws`: What Liftbridge 1.9.0 does wrong and the embedded broker does only if it is told to.
- `cluster/`: The state and decisions of a cluster's nodes: no event loop, clock, randomness or I/O.
- `faults/`: Faults that tests inject into a broker.
- `server/`: The network service of a broker, and its background tasks.
- `storage/`: The storage of logs, in memory or on disk.
"""

from .embedded_broker import EmbeddedBroker
from .embedded_cluster import ClusterNode, EmbeddedCluster
from .faults.fault import Fault, Stall
from .faults.fault_plan import AppliedFault
from .faults.faults import Faults
from .flaws import BrokerPanicked, Flaws
from .server.server import BrokerState, BrokerStatistics
from .server.settings import ServerProfile
from .server.tls import BrokerTLS
from .storage.data_directory import DataDirectoryError

__all__ = [
    "AppliedFault",
    "BrokerPanicked",
    "BrokerState",
    "BrokerStatistics",
    "BrokerTLS",
    "ClusterNode",
    "DataDirectoryError",
    "EmbeddedBroker",
    "EmbeddedCluster",
    "Fault",
    "Faults",
    "Flaws",
    "ServerProfile",
    "Stall",
]


def __dir__() -> list[str]:
    return __all__

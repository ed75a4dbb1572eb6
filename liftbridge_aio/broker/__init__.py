"""A Liftbridge server inside your process: real gRPC on real ports, alone or as a cluster.

Decisions are pure: `cluster/` and `storage/core/` have no event loop, clock, randomness or I/O.
`server/` brings gRPC and time, the rest of `storage/` the disk. The broker shares only plain values
and protocol messages with the client, so that a mistake in one shows in the other.

- `embedded_broker`: The embedded broker: a Liftbridge server inside this process.
- `embedded_cluster`: A cluster of embedded brokers in one process, with control over failures.
- `errors`: How the broker refuses requests: gRPC's status codes, without gRPC.
- `cluster/`: The state and decisions of a cluster's nodes: no event loop, clock, randomness or I/O.
- `faults/`: Faults that tests inject into a broker.
- `server/`: What a broker serves over the network, and its background tasks.
- `storage/`: How the embedded broker stores logs, in memory or on disk.
"""

from .embedded_broker import EmbeddedBroker
from .embedded_cluster import ClusterNode, EmbeddedCluster
from .faults.fault import Fault, Stall
from .faults.fault_plan import AppliedFault
from .faults.faults import Faults
from .server.server import BrokerState, BrokerStatistics
from .server.settings import ServerProfile
from .server.tls import BrokerTLS
from .storage.data_directory import DataDirectoryError

__all__ = [
    "AppliedFault",
    "BrokerState",
    "BrokerStatistics",
    "BrokerTLS",
    "ClusterNode",
    "DataDirectoryError",
    "EmbeddedBroker",
    "EmbeddedCluster",
    "Fault",
    "Faults",
    "ServerProfile",
    "Stall",
]

"""A Liftbridge server inside your process: real gRPC on real ports, alone or as a cluster.

What decides is pure (`log`, `reader`, `partition`, `node`, `controller`, `replication`, `groups`);
`service` and its procedures bring gRPC, `server` and `connections` own the port, `data_directory`
and its segments the disk. Nothing here is shared with the client but plain values and the messages
of the wire, so that a mistake of one is seen by the other.
"""

from .cluster import ClusterNode, EmbeddedCluster
from .data_directory import DataDirectoryError
from .embedded_broker import EmbeddedBroker
from .fault_plan import AppliedFault
from .faults import Fault, Faults, Stall
from .profile import ServerProfile
from .server import BrokerState, BrokerStatistics
from .tls import BrokerTLS

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

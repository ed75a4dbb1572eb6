"""What users test their own services with."""

from .fault_proxy import FaultProxy, ProxyStatistics

__all__ = [
    "FaultProxy",
    "ProxyStatistics",
]

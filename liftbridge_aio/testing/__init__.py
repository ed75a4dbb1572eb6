"""What users test their own services with."""

from .fault_plan import PlannedFault, plan_faults
from .fault_proxy import FaultProxy
from .faults import Direction, FaultKind, FaultRecord, ProxyStatistics
from .frames import FrameType, Part

__all__ = [
    "Direction",
    "FaultKind",
    "FaultProxy",
    "FaultRecord",
    "FrameType",
    "Part",
    "PlannedFault",
    "ProxyStatistics",
    "plan_faults",
]

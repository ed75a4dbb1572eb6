"""Tools with which users test their own services.

- `history/`: Recorded histories of a run and the check for delivery defects.
- `proxy/`: A TCP proxy that injects faults between a client and a server.
- `simulation/`: A simulated world: brokers, programs and faults in virtual time, from a seed.
"""

from .history.check import check_history
from .history.file import HistoryFile, read_history, write_history
from .history.history import Event, EventKind, EventRecorder, History
from .history.report import (
    Defect,
    DefectKind,
    Guarantee,
    HistoryBroken,
    HistoryCounts,
    HistoryReport,
    OrderScope,
    TimelineRow,
)
from .proxy.fault_plan import PlannedFault, plan_faults
from .proxy.fault_proxy import FaultProxy
from .proxy.faults import Direction, FaultKind, FaultRecord, ProxyStatistics
from .proxy.frames import FrameType, Part
from .simulation.simulation import Simulation

__all__ = [
    "Defect",
    "DefectKind",
    "Direction",
    "Event",
    "EventKind",
    "EventRecorder",
    "FaultKind",
    "FaultProxy",
    "FaultRecord",
    "FrameType",
    "Guarantee",
    "History",
    "HistoryBroken",
    "HistoryCounts",
    "HistoryFile",
    "HistoryReport",
    "OrderScope",
    "Part",
    "PlannedFault",
    "ProxyStatistics",
    "Simulation",
    "TimelineRow",
    "check_history",
    "plan_faults",
    "read_history",
    "write_history",
]


def __dir__() -> list[str]:
    return __all__

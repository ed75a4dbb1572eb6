"""What users test their own services with.

- `history/`: The history of a run and its judge.
- `proxy/`: The fault proxy: a connection to a server that tests can break.
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
    "TimelineRow",
    "check_history",
    "plan_faults",
    "read_history",
    "write_history",
]

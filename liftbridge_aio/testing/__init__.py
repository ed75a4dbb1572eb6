"""What users test their own services with."""

from .fault_plan import PlannedFault, plan_faults
from .fault_proxy import FaultProxy
from .faults import Direction, FaultKind, FaultRecord, ProxyStatistics
from .frames import FrameType, Part
from .history import Event, EventKind, EventRecorder, History
from .history_check import check_history
from .history_file import HistoryFile, read_history, write_history
from .history_report import (
    Defect,
    DefectKind,
    Guarantee,
    HistoryBroken,
    HistoryCounts,
    HistoryReport,
    OrderScope,
    TimelineRow,
)

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

"""What clients ask of the cluster's metadata, and what is refused before anything happens.

Texts and codes of refusals are those of Liftbridge 1.9.0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from liftbridge_aio.model import RESERVED_STREAMS
from liftbridge_aio.names import group_problem, stream_name_problem, subject_problem

from .errors import BrokerError, Code
from .stream_config import StreamConfig
from .subjects import can_be_listened_on, is_valid_subject, partition_subject

MAX_REPLICATION: Final = -1
"""The replication factor that means "all brokers"."""

MAX_PARTITIONS: Final = 10_000
"""More partitions in one stream are refused: one request must not take all memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """What a CreateStream asks for; 0 partitions or replicas mean one."""

    name: str
    subject: str
    group: str = ""
    replication_factor: int = 0
    partitions: int = 0
    config: StreamConfig = field(default_factory=StreamConfig)


def check_stream_request(request: StreamRequest, *, encryption_key_bytes: int = 0) -> None:
    """Refuse what no broker takes, whatever streams there are.

    Args:
        request: what a client wants.
        encryption_key_bytes: length of the server's encryption key.

    Raises:
        BrokerError: as a real server refuses it, or with INVALID_ARGUMENT what would crash one
            (W30).
    """
    if not request.name:
        raise BrokerError(Code.INVALID_ARGUMENT, "Name cannot be empty")
    if not is_valid_subject(request.subject):
        raise BrokerError(Code.INVALID_ARGUMENT, "Subject is invalid")
    refuse_reserved(request.name)
    if not 0 <= request.partitions <= MAX_PARTITIONS:
        text = f"Invalid partitions {request.partitions}"
        raise BrokerError(Code.INVALID_ARGUMENT, text)
    last = partition_subject(request.subject, max(request.partitions - 1, 0))
    if not can_be_listened_on(last):
        raise BrokerError(Code.INVALID_ARGUMENT, "Subject is invalid")
    _refuse_deadly_names(request)
    request.config.validate()
    if request.config.encryption and encryption_key_bytes not in (16, 32):
        text = (
            "Failed on preconditions for stream's encryption handler: kwp: invalid AES key"
            f" size; want 16 or 32, got {encryption_key_bytes}"
        )
        raise BrokerError(Code.FAILED_PRECONDITION, text)
    if request.replication_factor < MAX_REPLICATION:
        text = f"Invalid replicationFactor {request.replication_factor}"
        raise BrokerError(Code.INVALID_ARGUMENT, text)


def refuse_reserved(name: str) -> None:
    """Refuse to create or delete the server's own streams.

    Raises:
        BrokerError: it is one of them.
    """
    if name in RESERVED_STREAMS:
        raise BrokerError(Code.INVALID_ARGUMENT, "Stream is reserved")


def _refuse_deadly_names(request: StreamRequest) -> None:
    problem = stream_name_problem(request.name) or group_problem(request.group)
    # On ">" a real server lives on, whatever else it may take in.
    if problem is None and request.subject != ">":
        problem = subject_problem(request.subject)
    if problem is not None:
        raise BrokerError(Code.INVALID_ARGUMENT, problem)

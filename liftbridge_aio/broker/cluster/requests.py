"""Requests to create streams, and the checks that need no metadata.

Codes and texts of refusals are those of Liftbridge 1.9.0.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final

from liftbridge_aio._core.names import group_problem, stream_name_problem, subject_problem
from liftbridge_aio.broker.errors import BrokerError, Code
from liftbridge_aio.broker.storage.core.stream_config import StreamConfig
from liftbridge_aio.model import RESERVED_STREAMS

from .subjects import is_subscribable, is_valid_subject, partition_subject

MAX_REPLICATION: Final = -1
"""The replication factor that means "all brokers"."""

MAX_PARTITIONS: Final = 10_000
"""Most partitions of a stream, so that one request cannot take all memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamRequest:
    """A CreateStream request; 0 partitions or replicas mean one."""

    name: str
    subject: str
    group: str = ""
    replication_factor: int = 0
    partitions: int = 0
    config: StreamConfig = field(default_factory=StreamConfig)


def check_stream_request(request: StreamRequest, *, encryption_key_bytes: int = 0) -> None:
    """Check a request to create a stream, except against existing streams.

    Args:
        request: the request.
        encryption_key_bytes: length of the server's encryption key.

    Raises:
        BrokerError: a real server refuses it, or would crash: then with INVALID_ARGUMENT.
    """
    if not request.name:
        raise BrokerError(Code.INVALID_ARGUMENT, "Name cannot be empty")
    if not is_valid_subject(request.subject):
        raise BrokerError(Code.INVALID_ARGUMENT, "Subject is invalid")
    check_not_reserved(request.name)
    if not 0 <= request.partitions <= MAX_PARTITIONS:
        raise BrokerError(Code.INVALID_ARGUMENT, f"Invalid partitions {request.partitions}")
    last = partition_subject(request.subject, max(request.partitions - 1, 0))
    if not is_subscribable(last):
        raise BrokerError(Code.INVALID_ARGUMENT, "Subject is invalid")
    _check_names(request)
    request.config.validate()
    if request.config.encryption and encryption_key_bytes not in (16, 32):
        raise BrokerError(
            Code.FAILED_PRECONDITION,
            "Failed on preconditions for stream's encryption handler: kwp: invalid AES key"
            f" size; want 16 or 32, got {encryption_key_bytes}",
        )
    if request.replication_factor < MAX_REPLICATION:
        raise BrokerError(
            Code.INVALID_ARGUMENT, f"Invalid replicationFactor {request.replication_factor}"
        )


def check_not_reserved(name: str) -> None:
    """Refuse to create or delete an internal stream.

    Raises:
        BrokerError: the name is that of an internal stream.
    """
    if name in RESERVED_STREAMS:
        raise BrokerError(Code.INVALID_ARGUMENT, "Stream is reserved")


def _check_names(request: StreamRequest) -> None:
    # Names that crash a real server.
    problem = stream_name_problem(request.name) or group_problem(request.group)
    # The subject ">" does not crash a real server.
    if problem is None and request.subject != ">":
        problem = subject_problem(request.subject)
    if problem is not None:
        raise BrokerError(Code.INVALID_ARGUMENT, problem)

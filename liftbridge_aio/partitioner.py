"""The partitioners that come with the package; any `model.Partitioner` will do.

A partitioner gets the number of partitions, at least 1, with every message; it never changes while
a stream exists.
"""

from __future__ import annotations

import inspect
import zlib
from typing import Any

from liftbridge_aio._core.foreign_cancellation import CALLBACK_ERRORS

from ._core.arguments import about, check_bytes, check_callable, check_integer
from .errors import InvalidRequest, LiftbridgeError, WrongType
from .model import Partitioner


def choose_partition(
    partitioner: Partitioner, stream: str, key: bytes | None, value: bytes, count: int
) -> int:
    """Return the partition that a partitioner chooses.

    Raises:
        WrongType: key or value are not bytes, or it cannot be called with these arguments, or does
            not return a number, as coroutine functions do not.
        InvalidRequest: it raised an exception, which is the cause, or there is no such partition.
    """
    with about(stream):
        check_callable(partitioner, "a partitioner")
        check_bytes(value, "a value")
        if key is not None:
            check_bytes(key, "a key")
        try:
            chosen: Any = partitioner(stream, key, value, count)
        except LiftbridgeError:
            raise
        except CALLBACK_ERRORS as error:
            raise _failed(partitioner, error) from error
        if inspect.iscoroutine(chosen):
            chosen.close()  # else Python would warn that it was never awaited
        check_integer(chosen, "what a partitioner returns")
        if not 0 <= chosen < count:
            raise InvalidRequest(f"the partitioner chose partition {chosen} of {count}")
    partition: int = chosen
    return partition


def _failed(partitioner: Partitioner, error: BaseException) -> InvalidRequest:
    try:
        inspect.signature(partitioner).bind("", None, b"", 1)
    except (TypeError, ValueError):  # ValueError: what is written in C may have no signature
        if isinstance(error, TypeError):
            text = "a partitioner is called with the stream, the key, the value and the number of"
            return WrongType(f"{text} partitions, which {partitioner!r} does not take: {error}")
    return InvalidRequest(f"the partitioner {partitioner!r} failed: {error!r}")


def by_key(stream: str, key: bytes | None, value: bytes, partition_count: int) -> int:  # noqa: ARG001 - the Partitioner protocol
    """Choose by the CRC-32 of the key, so that equal keys stay together and in order.

    The same as the Go client's PartitionByKey. No key is the same as an empty one: partition 0.
    """
    return zlib.crc32(key or b"") % partition_count


def round_robin(*, start: int = 0) -> Partitioner:
    """Return a partitioner that cycles through the partitions of each stream.

    Args:
        start: the first partition. Give short-lived publishers different ones, or the first
            partitions get more messages than the others.
    """
    counters: dict[str, int] = {}

    def choose_next(stream: str, key: bytes | None, value: bytes, partition_count: int) -> int:  # noqa: ARG001 - the Partitioner protocol
        counter = counters.get(stream, start)
        counters[stream] = counter + 1
        return counter % partition_count

    return choose_next

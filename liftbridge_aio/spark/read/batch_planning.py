"""Plan a batch query: resolve its options into ranges of offsets."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from liftbridge_aio._client.client import Client
from liftbridge_aio.model import StreamPartition
from liftbridge_aio.spark.core.data_loss import (
    Finding,
    LogState,
    judge_position,
    judge_range,
    raise_or_warn,
    readable,
)
from liftbridge_aio.spark.core.offsets import OffsetRange, Offsets
from liftbridge_aio.spark.core.options import ReadOptions
from liftbridge_aio.spark.core.positions import AtOffsets, NoOffsetStrategy
from liftbridge_aio.spark.errors import InvalidOption

from .log_ends import fetch_selected, log_states, offsets_at
from .resolved_offsets import resolve

logger = logging.getLogger("liftbridge_aio.spark")


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """The ranges to read, and the creation times of their streams."""

    ranges: tuple[OffsetRange, ...]
    """Sorted; none is empty."""
    created: Mapping[str, int]
    """When each stream was created, in Unix nanoseconds."""


async def plan_batch(client: Client, options: ReadOptions) -> BatchPlan:
    """Resolve the options of a batch query. Cancelling abandons the calls.

    Raises:
        StreamMissing: a stream or partition in the options does not exist.
        InvalidOption: offsets are given for other partitions, or the start is after the end.
        NoOffsetAtTime: no message is as new as the start time.
        DataLoss: the log ends before the given offsets, and failOnDataLoss is set.
        LiftbridgeError: a call failed.
    """
    limit = options.read_timeout
    found = await fetch_selected(client, options.selection, timeout=limit)
    places = options.selection.partitions(found.counts)
    states = await log_states(client, places, timeout=limit)
    ends = {place: state.end for place, state in states.items()}
    start = await resolve(client, options.starting, ends, options.starting_strategy)
    end = await resolve(client, options.ending, ends, NoOffsetStrategy.LATEST)
    _check_order(options, start, end)
    wanted = start.ranges_to(end)
    for text in raise_or_warn(
        _findings(start, wanted, states),
        fail_on_data_loss=options.fail_on_data_loss,
        streaming=False,
    ):
        logger.warning("%s", text)
    stored = [readable(one, states[one.place]) for one in wanted]
    return BatchPlan(tuple(one for one in stored if one.count > 0), found.created)


async def offsets_from_times(
    client: Client, timestamps: Mapping[StreamPartition, int]
) -> dict[StreamPartition, int]:
    """Return the first offset at or after a time for each partition, or its end.

    Cancelling abandons the reads.

    Raises:
        LiftbridgeError: a partition could not be read.
    """
    states = await log_states(client, timestamps.keys())
    ends = {place: state.end for place, state in states.items()}
    found = await offsets_at(client, ends, timestamps)
    return {place: ends[place] if offset is None else offset for place, offset in found.items()}


def _check_order(options: ReadOptions, start: Offsets, end: Offsets) -> None:
    """Refuse given start offsets after given end offsets; resolved ones may be in that order."""
    if not isinstance(options.starting, AtOffsets) or not isinstance(options.ending, AtOffsets):
        return
    for place in start:
        if start[place] > end[place] and options.ending.offsets[place] >= 0:
            raise InvalidOption(
                f"{options.starting.option} is after {options.ending.option} ({end[place]})",
                stream=place.stream,
                partition=place.partition,
                offset=start[place],
            )


def _findings(
    start: Offsets, wanted: list[OffsetRange], states: Mapping[StreamPartition, LogState]
) -> list[Finding]:
    positions = [judge_position(place, start[place], states[place]) for place in start]
    ranges = [judge_range(one, states[one.place]) for one in wanted]
    return [finding for finding in (*positions, *ranges) if finding is not None]

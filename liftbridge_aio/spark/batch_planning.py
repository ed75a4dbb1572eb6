"""What a batch query reads: the ranges of offsets that its options come to."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass

from liftbridge_aio.client import Client

from .data_loss import Finding, LogState, judge_position, judge_range, raise_or_tell, readable
from .errors import InvalidOption
from .log_ends import log_states, offsets_at, survey
from .offsets import OffsetRange, Offsets, StreamPartition
from .options import ReadOptions
from .positions import AtOffsets, NothingSoNew
from .resolved_offsets import resolve

logger = logging.getLogger("liftbridge_aio.spark")


@dataclass(frozen=True, slots=True)
class BatchPlan:
    """Ranges, and which streams their offsets belong to."""

    ranges: tuple[OffsetRange, ...]
    """Sorted; none is empty."""
    created: Mapping[str, int]
    """When each stream was created, in Unix nanoseconds."""


async def plan_batch(client: Client, options: ReadOptions) -> BatchPlan:
    """Find out what there is to read. Cancelling abandons the calls.

    Raises:
        StreamMissing: a stream or partition that is named does not exist.
        InvalidOption: offsets are given for other partitions, or the start lies behind the end.
        NoOffsetAtTime: no message is as new as the time to start at.
        DataLoss: the log ends before the offsets that are given, and failOnDataLoss is set.
        LiftbridgeError: the servers could not be asked.
    """
    found = await survey(client, options.selection)
    states = await log_states(client, options.selection.partitions(found.counts))
    ends = {place: state.end for place, state in states.items()}
    start = await resolve(client, options.starting, ends, options.starting_strategy)
    end = await resolve(client, options.ending, ends, NothingSoNew.LATEST)
    _check_order(options, start, end)
    wanted = start.ranges_to(end)
    for text in raise_or_tell(
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
    """Find the first offset at or after a time for each partition; its end where there is none.

    Cancelling abandons the readings.

    Raises:
        LiftbridgeError: a partition could not be read.
    """
    states = await log_states(client, timestamps.keys())
    ends = {place: state.end for place, state in states.items()}
    found = await offsets_at(client, ends, timestamps)
    return {place: ends[place] if offset is None else offset for place, offset in found.items()}


def _check_order(options: ReadOptions, start: Offsets, end: Offsets) -> None:
    """Refuse offsets that cannot be meant; ends that were found out may well lie before starts."""
    if not isinstance(options.starting, AtOffsets) or not isinstance(options.ending, AtOffsets):
        return
    for place in start:
        if start[place] > end[place] and options.ending.offsets[place] >= 0:
            text = f"{options.starting.option} begins behind {options.ending.option} ({end[place]})"
            raise InvalidOption(
                text, stream=place.stream, partition=place.partition, offset=start[place]
            )


def _findings(
    start: Offsets, wanted: list[OffsetRange], states: Mapping[StreamPartition, LogState]
) -> list[Finding]:
    positions = [judge_position(place, start[place], states[place]) for place in start]
    ranges = [judge_range(one, states[one.place]) for one in wanted]
    return [finding for finding in (*positions, *ranges) if finding is not None]

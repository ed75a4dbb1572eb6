"""What the micro-batches of a streaming query read: where it starts, ends, and whether that holds.

All of it is asked anew for each batch. What a batch reads is a function of its start and end alone,
which Spark writes down before it is read; the servers are asked only whether that is still there.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from liftbridge_aio.client import Client

from .admission import admit, offsets_within, stricter
from .data_loss import (
    Finding,
    LogState,
    judge_position,
    judge_range,
    judge_streams,
    raise_or_tell,
    readable,
)
from .log_ends import Survey, average_bytes, log_states, survey
from .offsets import OffsetRange, Offsets, StreamPartition
from .options import ReadOptions
from .resolved_offsets import resolve
from .selection import existing

logger = logging.getLogger("liftbridge_aio.spark")


@dataclass(frozen=True, slots=True)
class Limits:
    """How much a micro-batch reads at most; None is no limit."""

    offsets: int | None = None
    size: int | None = None
    """Bytes of keys and values, about: offsets of messages of average size."""


@dataclass(frozen=True, slots=True)
class Step:
    """Where a micro-batch ends, and what there was to read at that time."""

    end: Offsets
    available: Offsets


async def initial_position(client: Client, options: ReadOptions) -> Offsets:
    """Find out where a new query starts. Cancelling abandons the calls.

    Raises:
        StreamMissing: a stream or partition that is named does not exist.
        InvalidOption: offsets are given for other partitions.
        NoOffsetAtTime: no message is as new as the time to start at.
        DataLoss: the log ends before the offsets that are given, and failOnDataLoss is set.
        LiftbridgeError: the servers could not be asked.
    """
    found = await survey(client, options.selection)
    states = await log_states(client, options.selection.partitions(found.counts))
    ends = {place: state.end for place, state in states.items()}
    start = await resolve(client, options.starting, ends, options.starting_strategy)
    findings = [judge_position(place, start[place], states[place]) for place in start]
    # What to change is the option, as there is no checkpoint yet: the advice for batches.
    _tell([finding for finding in findings if finding], options, streaming=False)
    kept = {place: min(offset, states[place].reach) for place, offset in start.items()}
    return Offsets(kept, found.created)


async def newest_position(client: Client, options: ReadOptions) -> Offsets:
    """Find out where the selected streams end now. Cancelling abandons the calls.

    Raises:
        LiftbridgeError: the servers could not be asked.
    """
    found = await survey(client, options.selection)
    places = existing(options.selection, found.counts).partitions(found.counts)
    states = await log_states(client, places)
    return Offsets({place: state.end for place, state in states.items()}, found.created)


async def next_step(
    client: Client,
    options: ReadOptions,
    start: Offsets,
    limits: Limits,
    target: Offsets | None,
) -> Step:
    """Find out where the micro-batch ends that begins at `start`. Cancelling abandons the calls.

    Args:
        client: connected.
        options: of the query.
        start: where the last batch ended.
        limits: how much it may have.
        target: where a query ends that reads what is there and stops; None for one that goes on.

    Raises:
        StreamMissing: a stream is gone, or was never there.
        CheckpointMismatch: `start` belongs to other streams or partitions than the options name.
        DataLoss: a stream was created again, or its log ends before `start`.
        LiftbridgeError: the servers could not be asked.
    """
    found = await survey(client, options.selection, start.streams)
    places = _still_selected(options, start, found)
    states = await log_states(client, places)
    begin = goes_on_at(options, start, found, states)
    available = Offsets({place: state.end for place, state in states.items()}, found.created)
    limit = stricter(limits.offsets, await _offsets_of(client, limits.size, begin, available))
    end = admit(begin, available, max_offsets=limit, target=target)
    return Step(end.of(found.created), available)


async def planned_ranges(
    client: Client, options: ReadOptions, start: Offsets, end: Offsets
) -> list[OffsetRange]:
    """List the ranges of a micro-batch, after a look whether the log still has them.

    Cancelling abandons the calls.

    Raises:
        StreamMissing: a stream is gone.
        CheckpointMismatch: a stream has other partitions now.
        DataLoss: a stream was created again, or its log ends before the end of a range.
        LiftbridgeError: the servers could not be asked.
    """
    ranges = start.ranges_to(end)
    if not ranges:
        return ranges
    found = await survey(client, options.selection, {one.stream for one in ranges})
    _tell(judge_streams(end.only(one.place for one in ranges), found.counts), options)
    there = [one for one in ranges if one.partition < found.counts.get(one.stream, 0)]
    anew = end.recreated(found.created)
    states = await log_states(client, [one.place for one in there])
    findings = [judge_range(one, states[one.place], recreated=one.stream in anew) for one in there]
    _tell([finding for finding in findings if finding], options)
    left = [readable(one, states[one.place], recreated=one.stream in anew) for one in there]
    return [one for one in left if one.count > 0]


def _still_selected(options: ReadOptions, start: Offsets, found: Survey) -> list[StreamPartition]:
    selection = options.selection
    places = existing(selection, found.counts).partitions(found.counts)
    _tell(judge_streams(start, found.counts, places), options)
    return selection.partitions(found.counts) if options.fail_on_data_loss else places


def goes_on_at(
    options: ReadOptions,
    start: Offsets,
    found: Survey,
    states: Mapping[StreamPartition, LogState],
) -> Offsets:
    """Say where reading goes on: at `start`, unless what was there is gone and that is accepted.

    Partitions without a state are left out: they are gone, too.

    Raises:
        DataLoss: a stream was created again, or its log ends before `start`, and that must not be.
    """
    begin = start.only(states)
    anew = begin.recreated(found.created)
    judged = [
        judge_position(place, position, states[place], recreated=place.stream in anew)
        for place, position in begin.items()
    ]
    findings = [finding for finding in judged if finding]
    _tell(findings, options)
    return begin.changed({finding.place: finding.resume_at or 0 for finding in findings})


async def _offsets_of(
    client: Client, size: int | None, begin: Offsets, available: Offsets
) -> int | None:
    if size is None:
        return None
    behind = {
        place: begin.get(place, 0) for place, end in available.items() if begin.get(place, 0) < end
    }
    return offsets_within(size, await average_bytes(client, behind, available))


def _tell(findings: Sequence[Finding], options: ReadOptions, *, streaming: bool = True) -> None:
    for text in raise_or_tell(
        findings, fail_on_data_loss=options.fail_on_data_loss, streaming=streaming
    ):
        logger.warning("%s", text)

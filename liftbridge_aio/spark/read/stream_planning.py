"""Plan the micro-batches of a streaming query: the start, end and ranges of each.

A batch reads what is between its start and end, which Spark stores before it runs the batch. Then
only losses are looked for: in the state of the logs from which the end was planned, or in their
present state if another process has planned it.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from liftbridge_aio._client.client import Client
from liftbridge_aio.model import StreamPartition
from liftbridge_aio.spark.core.admission import admit, offsets_within, stricter
from liftbridge_aio.spark.core.data_loss import (
    Finding,
    LogState,
    judge_position,
    judge_range,
    judge_streams,
    raise_or_warn,
    readable,
)
from liftbridge_aio.spark.core.offsets import OffsetRange, Offsets
from liftbridge_aio.spark.core.options import ReadOptions
from liftbridge_aio.spark.core.selection import existing
from liftbridge_aio.spark.errors import CheckpointMismatch

from .log_ends import SelectedStreams, average_bytes, fetch_selected, log_states
from .resolved_offsets import resolve

logger = logging.getLogger("liftbridge_aio.spark")


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of a micro-batch; None: no limit."""

    offsets: int | None = None
    size: int | None = None
    """Approximate bytes of keys and values, from the average size of messages."""
    min_offsets: int = 0
    """With fewer available offsets there is no batch yet."""


@dataclass(frozen=True, slots=True)
class Logs:
    """The streams of a query and the states of their logs, at one moment."""

    found: SelectedStreams
    states: Mapping[StreamPartition, LogState]


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """The end of a micro-batch, and the ends of the streams when it was planned."""

    end: Offsets
    available: Offsets
    logs: Logs
    """The logs from which it was planned."""


async def initial_position(client: Client, options: ReadOptions) -> Offsets:
    """Resolve where a new query starts. Cancelling abandons the calls.

    Raises:
        StreamMissing: a stream or partition in the options does not exist.
        InvalidOption: offsets are given for other partitions.
        NoOffsetAtTime: no message is as new as the start time.
        DataLoss: the log ends before the given offsets, and failOnDataLoss is set.
        LiftbridgeError: a call failed.
    """
    found = await fetch_selected(client, options.selection, timeout=options.read_timeout)
    places = options.selection.partitions(found.counts)
    states = await log_states(client, places, timeout=options.read_timeout)
    ends = {place: state.end for place, state in states.items()}
    start = await resolve(client, options.starting, ends, options.starting_strategy)
    findings = [judge_position(place, start[place], states[place]) for place in start]
    # There is no checkpoint yet, so the advice is that for batches: change the option.
    _raise_or_log([finding for finding in findings if finding], options, streaming=False)
    kept = {place: min(offset, states[place].reach) for place, offset in start.items()}
    return Offsets(kept, found.created)


async def newest_position(client: Client, options: ReadOptions) -> Offsets:
    """Return where the selected streams end now. Cancelling abandons the calls.

    Raises:
        LiftbridgeError: a call failed.
    """
    found = await fetch_selected(client, options.selection, timeout=options.read_timeout)
    places = existing(options.selection, found.counts).partitions(found.counts)
    states = await log_states(client, places, timeout=options.read_timeout)
    return Offsets({place: state.end for place, state in states.items()}, found.created)


async def next_batch(
    client: Client,
    options: ReadOptions,
    start: Offsets,
    limits: Limits,
    target: Offsets | None,
) -> MicroBatch:
    """Return where the micro-batch that begins at `start` ends. Cancelling abandons the calls.

    Args:
        client: connected.
        options: of the query.
        start: where the last batch ended.
        limits: of the batch.
        target: where a query with `availableNow` ends; None: it does not end.

    Raises:
        StreamMissing: a stream does not exist.
        CheckpointMismatch: `start` has other streams or partitions than the options name, or is
            that of another source.
        DataLoss: a stream was created again, or its log ends before `start`.
        LiftbridgeError: a call failed.
    """
    found = await fetch_selected(
        client, options.selection, start.streams, timeout=options.read_timeout
    )
    _check_origin(start, found)
    places = _still_selected(options, start, found)
    states = await log_states(client, places, timeout=options.read_timeout)
    begin = resume_position(options, start, found, states)
    available = Offsets({place: state.end for place, state in states.items()}, found.created)
    limit = stricter(limits.offsets, await _offsets_of(client, limits.size, begin, available))
    end = admit(begin, available, min_offsets=limits.min_offsets, max_offsets=limit, target=target)
    return MicroBatch(end.of(found.created), available, Logs(found, states))


async def fetch_logs(client: Client, options: ReadOptions, ranges: Sequence[OffsetRange]) -> Logs:
    """Fetch what `planned_ranges` needs. Cancelling abandons the calls.

    Raises:
        LiftbridgeError: a call failed.
    """
    known = {one.stream for one in ranges}
    found = await fetch_selected(client, options.selection, known, timeout=options.read_timeout)
    places = [one.place for one in _existing(ranges, found)]
    return Logs(found, await log_states(client, places, timeout=options.read_timeout))


def planned_ranges(
    options: ReadOptions, ranges: Sequence[OffsetRange], end: Offsets, logs: Logs
) -> list[OffsetRange]:
    """Return the ranges of a micro-batch as far as the logs still have them.

    Raises:
        StreamMissing: a stream no longer exists.
        CheckpointMismatch: a stream was created again with fewer partitions, or `end` is that of
            another source.
        DataLoss: a stream was created again, or its log ends before the end of a range.
    """
    found, states = logs.found, logs.states
    _check_origin(end, found)
    _raise_or_log(judge_streams(end.only(one.place for one in ranges), found.counts), options)
    there = _existing(ranges, found)
    anew = end.recreated(found.created)
    findings = [judge_range(one, states[one.place], recreated=one.stream in anew) for one in there]
    _raise_or_log([finding for finding in findings if finding], options)
    left = [readable(one, states[one.place], recreated=one.stream in anew) for one in there]
    return [one for one in left if one.count > 0]


def _check_origin(kept: Offsets, found: SelectedStreams) -> None:
    """Refuse offsets that another source has stored in the same form.

    Those of Kafka's source differ in nothing but the creation time, which they lack. They count
    other messages, so messages would be skipped or read twice.

    Raises:
        CheckpointMismatch: a stream has no creation time, though servers know it.
    """
    for place, offset in kept.items():
        if place.stream not in kept.created and found.created.get(place.stream):
            error = CheckpointMismatch(
                "the checkpoint has offsets without the creation time of their stream: they are"
                " those of another source, such as Kafka's",
                stream=place.stream,
                partition=place.partition,
                offset=offset,
            )
            error.hint = (
                "set checkpointLocation to a new directory, and startingOffsets to where the query"
                " is to begin in the stream"
            )
            raise error


def _existing(ranges: Sequence[OffsetRange], found: SelectedStreams) -> list[OffsetRange]:
    return [one for one in ranges if one.partition < found.counts.get(one.stream, 0)]


def _still_selected(
    options: ReadOptions, start: Offsets, found: SelectedStreams
) -> list[StreamPartition]:
    selection = options.selection
    places = existing(selection, found.counts).partitions(found.counts)
    _raise_or_log(judge_streams(start, found.counts, places), options)
    return selection.partitions(found.counts) if options.fail_on_data_loss else places


def resume_position(
    options: ReadOptions,
    start: Offsets,
    found: SelectedStreams,
    states: Mapping[StreamPartition, LogState],
) -> Offsets:
    """Return where a query continues: at `start`, or beyond losses that it accepts.

    Partitions without a state no longer exist and are left out.

    Raises:
        DataLoss: a stream was created again or its log ends before `start`, and failOnDataLoss is
            set.
    """
    begin = start.only(states)
    anew = begin.recreated(found.created)
    judged = [
        judge_position(place, position, states[place], recreated=place.stream in anew)
        for place, position in begin.items()
    ]
    findings = [finding for finding in judged if finding]
    _raise_or_log(findings, options)
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


def _raise_or_log(
    findings: Sequence[Finding], options: ReadOptions, *, streaming: bool = True
) -> None:
    for text in raise_or_warn(
        findings, fail_on_data_loss=options.fail_on_data_loss, streaming=streaming
    ):
        logger.warning("%s", text)

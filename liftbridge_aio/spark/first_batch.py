"""Where a query began, kept with the end of its first batch. Pure.

Spark writes down where each batch ends, and takes it for the start of the next. Where the first
batch starts it writes down nowhere: it asks the source when it plans that batch, when it runs it,
and when it runs it again after a crash. By then "latest" and "earliest" are other offsets, so the
end of the first batch says where it starts, stream by stream:
`{"orders":{"0":40,"began":{"0":23},"created":1700000000000000000}}`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .offsets import BEGAN, Offsets


def end_of_first_batch(start: Offsets, end: Offsets) -> dict[str, dict[str, Any]]:
    """Make what `Offsets.to_dict` makes of the end, and say in it where the batch starts."""
    anew = start.recreated(end.created)
    began = {place: 0 if place.stream in anew else start[place] for place in end if place in start}
    beside = Offsets(began).to_dict()
    kept: dict[str, dict[str, Any]] = {}
    for stream, offsets in end.to_dict().items():
        note = {BEGAN: beside[stream]} if stream in beside else {}
        kept[stream] = dict(sorted({**offsets, **note}.items()))
    return kept


def start_of_batch(start: Mapping[str, Any], end: Mapping[str, Any]) -> Offsets:
    """Say where a batch starts: as its end has it, else as Spark has it.

    Args:
        start: what Spark gives as the start.
        end: what it gives as the end.

    Raises:
        CheckpointMismatch: they are the offsets of another source.
    """
    stop = Offsets.from_checkpoint(end)
    began = {stream: end[stream][BEGAN] for stream in stop.streams if BEGAN in end[stream]}
    return (
        Offsets.from_checkpoint(began).of(stop.created) if began else Offsets.from_checkpoint(start)
    )

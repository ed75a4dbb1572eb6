"""The options that users write: their names, and values read from text. Pure.

Spark hands options over as text, and does not care for capitals in their names. A name that is not
known is told as a warning, because options of Spark and of other sources may be among them; one
that is nearly right is refused, as it was surely meant to do something.
"""

from __future__ import annotations

import difflib
import enum
import warnings
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from liftbridge_aio.arguments import INT64_MAX

from .errors import InvalidOption

CONNECTION_NAMES: Final = ("servers", "liftbridge.bootstrap.servers")
COLUMN_NAMES: Final = ("includeHeaders", "includeSubject", "includeTimestampNanos")
SELECTION_NAMES: Final = ("stream", "subscribe", "path", "subscribePattern", "assign")
STARTING_NAMES: Final = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
STRATEGY_NAME: Final = "startingOffsetsByTimestampStrategy"
ENDING_NAMES: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
BATCH_ONLY_NAMES: Final = (*ENDING_NAMES, "pushdownFilters")
STREAM_ONLY_NAMES: Final = ("maxOffsetsPerTrigger", "maxBytesPerTrigger")
READ_NAMES: Final = (
    *CONNECTION_NAMES,
    *COLUMN_NAMES,
    *SELECTION_NAMES,
    *STARTING_NAMES,
    STRATEGY_NAME,
    *BATCH_ONLY_NAMES,
    *STREAM_ONLY_NAMES,
    "minPartitions",
    "maxRecordsPerPartition",
    "failOnDataLoss",
    "arrowBatchRows",
    "readTimeout",
)
TARGET_NAMES: Final = ("stream", "topic", "path")
WRITE_NAMES: Final = (
    *CONNECTION_NAMES,
    *TARGET_NAMES,
    "ackPolicy",
    "maxInFlight",
    "publishTimeout",
    "includeWriteId",
)
CLIENT_PREFIX: Final = "liftbridge."

_OF_SPARK: Final = frozenset(
    {
        "path",
        "paths",
        "checkpointlocation",
        "queryname",
        "outputmode",
        "asyncprogresstrackingenabled",
        "asyncprogresstrackingcheckpointintervalms",
    }
)
"""What Spark itself reads from the options of any source or sink."""

_NOT_OFFERED: Final = (
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "isolationLevel",
    "delivery",
    "decisionStream",
    "groupIdPrefix",
    "includeTimestampType",
)
"""Options of other sources, or of later releases, that a pipeline may bring along."""

_OTHER_WORDS: Final = {"kafka.bootstrap.servers": "servers", "bootstrap.servers": "servers"}
"""Without these a pipeline cannot have worked elsewhere, and cannot work here."""

_NEAR: Final = 0.8
"""Similarity from which a name passes for a misspelt one, by difflib."""


class UnknownOption(UserWarning):
    """An option that does nothing here."""


def folded(options: Mapping[str, str]) -> dict[str, str]:
    """Make the names lower case, as Spark does not care."""
    return {name.lower(): text for name, text in options.items()}


def check_names(options: Mapping[str, str], *, reading: bool) -> None:
    """Warn of names that do nothing, and refuse those that are nearly right.

    Names below `liftbridge.` are left to `ConnectionOptions`.

    Raises:
        InvalidOption: a name is nearly that of an option.
    """
    own, other = (READ_NAMES, WRITE_NAMES) if reading else (WRITE_NAMES, READ_NAMES)
    for name in sorted(options):
        lower = name.lower()
        if lower in _lower(own) or lower in _OF_SPARK or lower.startswith(CLIENT_PREFIX):
            continue
        if lower in _lower(other):
            doing = "writing" if reading else "reading"
            warn(f"the option {name} belongs to {doing} and does nothing here")
        elif lower in _lower(_NOT_OFFERED):
            warn(f"the option {name} is not offered by the source liftbridge and does nothing")
        else:
            refuse_near_miss(name, own)
            warn(f"the source liftbridge does not know the option {name}; it does nothing")


def refuse_near_miss(name: str, known: Iterable[str]) -> None:
    """Refuse a name that nearly is one of those known.

    Raises:
        InvalidOption: with the name that was meant.
    """
    by_lower = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=_NEAR)
    meant = by_lower[near[0]] if near else _OTHER_WORDS.get(name.lower())
    if meant is not None:
        text = f"there is no option {name}; did you mean {meant}?"
        raise InvalidOption(text)


def warn(text: str) -> None:
    """Warn; Python shows each text once in a process."""
    warnings.warn(text, UnknownOption, stacklevel=4)


def _lower(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


def chosen(options: Mapping[str, str], names: Iterable[str]) -> str | None:
    """Say which one of some options that exclude each other is given; None where none is.

    Args:
        options: with folded names.
        names: as users write them.

    Raises:
        InvalidOption: more than one is given.
    """
    given = [name for name in names if name.lower() in options]
    if len(given) > 1:
        text = f"{' and '.join(given)} exclude each other; leave all but one out"
        raise InvalidOption(text)
    return given[0] if given else None


_SWITCH: Final = {"true": True, "false": False}


def switch(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Read true or false.

    Raises:
        InvalidOption: it is something else.
    """
    text = options.get(name.lower())
    if text is None:
        return default
    value = _SWITCH.get(text.strip().lower())
    if value is None:
        raise _refusal(name, text, "true or false")
    return value


_Default = TypeVar("_Default")


def whole_number(
    options: Mapping[str, str], name: str, *, default: _Default, most: int = INT64_MAX
) -> int | _Default:
    """Read a whole number from 1 up.

    Raises:
        InvalidOption: it is none, or out of range.
    """
    text = options.get(name.lower())
    if text is None:
        return default
    try:
        value = int(text)
    except ValueError:
        value = 0
    if not 1 <= value <= most:
        raise _refusal(name, text, f"a whole number from 1 to {most}")
    return value


def seconds_above_zero(options: Mapping[str, str], name: str, *, default: float) -> float:
    """Read a number of seconds.

    Raises:
        InvalidOption: it is none, or not above 0.
    """
    text = options.get(name.lower())
    if text is None:
        return default
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0 < value < float("inf"):
        raise _refusal(name, text, "a number of seconds above 0")
    return value


_Choice = TypeVar("_Choice", bound=enum.Enum)


def one_of(
    options: Mapping[str, str], name: str, choices: Mapping[str, _Choice], *, default: _Choice
) -> _Choice:
    """Read one of some words.

    Raises:
        InvalidOption: it is another word.
    """
    text = options.get(name.lower())
    if text is None:
        return default
    choice = choices.get(text.strip().lower())
    if choice is None:
        raise _refusal(name, text, " or ".join(choices))
    return choice


def _refusal(name: str, text: str, wanted: str) -> InvalidOption:
    problem = f"the option {name} is {wanted}, not {text!r}"
    return InvalidOption(problem)

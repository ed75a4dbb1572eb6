"""Names of options, and parsers for their values. Pure.

Spark passes options as text with names in lower case; errors spell known names as the
documentation does. An unknown name causes a warning, as it may be an option of Spark or of another
source. A misspelt name or an option of Spark's Kafka connector is refused, as its author expects an
effect.
"""

from __future__ import annotations

import difflib
import re
import warnings
from collections.abc import Iterable, Mapping
from typing import Final, TypeVar

from liftbridge_aio._core.arguments import INT64_MAX
from liftbridge_aio.spark.errors import InvalidOption

from .kafka_options import meant_for_kafka

CONNECTION_NAMES: Final = ("servers", "liftbridge.bootstrap.servers")
COLUMN_NAMES: Final = ("includeHeaders", "includeSubject", "includeTimestampNanos")
SELECTION_NAMES: Final = ("stream", "subscribe", "path", "subscribePattern", "assign")
STARTING_NAMES: Final = ("startingOffsets", "startingTimestamp", "startingOffsetsByTimestamp")
STRATEGY_NAME: Final = "startingOffsetsByTimestampStrategy"
ENDING_NAMES: Final = ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp")
BATCH_ONLY_NAMES: Final = (*ENDING_NAMES, "pushdownFilters")
STREAM_ONLY_NAMES: Final = (
    "maxOffsetsPerTrigger",
    "maxBytesPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "positionsGroup",
)
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
    "isolationLevel",
    "onMalformed",
    "readTimeout",
)
TARGET_NAMES: Final = ("stream", "topic", "path")
EXACTLY_ONCE_NAMES: Final = ("decisionStream", "writeId")
WRITE_NAMES: Final = (
    *CONNECTION_NAMES,
    *TARGET_NAMES,
    "ackPolicy",
    "maxInFlight",
    "publishTimeout",
    "includeWriteId",
    "delivery",
    *EXACTLY_ONCE_NAMES,
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
"""Options that Spark itself reads, whatever the source or sink."""

_NOT_OFFERED: Final = ("includeTimestampType",)
"""Options of other sources that a ported pipeline may have, which have no effect here."""

_SPELLED: Final = {name.lower(): name for name in (*READ_NAMES, *WRITE_NAMES, *_NOT_OFFERED)}

_NEAR: Final = 0.8
"""Similarity, by difflib, from which an unknown name counts as misspelt."""


class UnknownOption(UserWarning):
    """An option that has no effect."""


def folded(options: Mapping[str, str]) -> dict[str, str]:
    """Return options with names in lower case, as Spark ignores case."""
    return {name.lower(): text for name, text in options.items()}


def check_names(options: Mapping[str, str], *, reading: bool) -> None:
    """Warn of options without effect, and refuse misspelt ones and those for Kafka.

    `ConnectionOptions` checks names that begin with `liftbridge.`.

    Raises:
        InvalidOption: a name is misspelt, or is that of an option for Kafka.
    """
    own, other = (READ_NAMES, WRITE_NAMES) if reading else (WRITE_NAMES, READ_NAMES)
    for given in sorted(options):
        lower = given.lower()
        name = _SPELLED.get(lower, given)
        if lower in _lower(own) or lower in _OF_SPARK or lower.startswith(CLIENT_PREFIX):
            continue
        if lower in _lower(other):
            doing = "writing" if reading else "reading"
            warn(f"the option {name} is for {doing} and has no effect here")
        elif name in _NOT_OFFERED:
            warn(f"the source liftbridge does not offer the option {name}; it has no effect")
        elif (problem := meant_for_kafka(name)) is not None:
            raise InvalidOption(problem)
        else:
            refuse_near_miss(name, own)
            warn(f"the source liftbridge does not know the option {name}; it has no effect")


def refuse_near_miss(name: str, known: Iterable[str]) -> None:
    """Refuse a misspelt name of an option.

    Raises:
        InvalidOption: the name is similar to a known one, which the text suggests.
    """
    by_lower = {one.lower(): one for one in known}
    near = difflib.get_close_matches(name.lower(), by_lower, n=1, cutoff=_NEAR)
    if near:
        raise InvalidOption(f"there is no option {name}; did you mean {by_lower[near[0]]}?")


def warn(text: str) -> None:
    """Issue a warning; Python shows each text once in a process."""
    warnings.warn(text, UnknownOption, stacklevel=4)


def _lower(names: Iterable[str]) -> set[str]:
    return {name.lower() for name in names}


def chosen(options: Mapping[str, str], names: Iterable[str]) -> str | None:
    """Return which of some mutually exclusive options is given; None if none is.

    Args:
        options: with names in lower case.
        names: as users write them.

    Raises:
        InvalidOption: more than one is given.
    """
    given = [name for name in names if name.lower() in options]
    if len(given) > 1:
        raise InvalidOption(f"{' and '.join(given)} exclude each other; set only one of them")
    return given[0] if given else None


_SWITCH: Final = {"true": True, "false": False}


def switch(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    """Parse true or false.

    Raises:
        InvalidOption: it is neither.
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
    """Parse a whole number from 1 up.

    Raises:
        InvalidOption: it is no number, or out of range.
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
    """Parse a duration such as `90s` or `2m`; a number alone is seconds.

    Raises:
        InvalidOption: it is no duration above 0.
    """
    text = options.get(name.lower())
    if text is None:
        return default
    value = _duration(text, "s")
    if value is None or not 0 < value < float("inf"):
        raise _refusal(name, text, "a number of seconds above 0, or a duration such as 90s or 2m")
    return value


_UNITS: Final = {"us": 1e-6, "ms": 1e-3, "s": 1, "m": 60, "min": 60, "h": 3600, "d": 86_400}
_DURATION: Final = re.compile(rf"([0-9]{{1,15}}(?:\.[0-9]{{1,9}})?)({'|'.join(_UNITS)})?")


def _duration(text: str, unit: str) -> float | None:
    """Return the seconds of a duration, with a unit for a number alone; None if it is none."""
    found = _DURATION.fullmatch(text.strip().lower())
    return None if found is None else float(found[1]) * _UNITS[found[2] or unit]


def in_seconds(text: str) -> str:
    """Return a duration with a unit as a number of seconds, and any other text as it is."""
    seconds = _duration(text, "s")
    return text if seconds is None or text.strip()[-1:].isdecimal() else repr(seconds)


def time_span(options: Mapping[str, str], name: str, *, default: float) -> float:
    """Parse a duration as Spark writes it, such as `15m`; a number alone is milliseconds.

    Returns:
        Seconds.

    Raises:
        InvalidOption: it is no duration.
    """
    text = options.get(name.lower())
    if text is None:
        return default
    value = _duration(text, "ms")
    if value is None:
        raise _refusal(name, text, "a duration such as 30s or 15m")
    return value


_Choice = TypeVar("_Choice")


def one_of(
    options: Mapping[str, str], name: str, choices: Mapping[str, _Choice], *, default: _Choice
) -> _Choice:
    """Parse one of some words.

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
    problem = f"the option {name} must be {wanted}, not {text!r}"
    return InvalidOption(problem)

"""Options of a stream, as flags of `streams create`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, Final

from cyclopts import Parameter

from liftbridge_aio.options import StreamOptions

from .arguments import DURATION_HELP, parse_duration
from .connection import OptionalInteger

_DURATIONS: Final = frozenset(
    {"retention_max_age", "cleaner_interval", "segment_max_age", "auto_pause_time"}
)


def _flag(text: str) -> Parameter:
    return Parameter(help=text)


def _duration(text: str) -> Parameter:
    return Parameter(help=f"{text} ({DURATION_HELP}).")


@Parameter(name="*", group="Options of the stream (default: the server's)")
@dataclass(frozen=True, kw_only=True)
class StreamFlags:
    """A flag for each field of `StreamOptions`; durations are text."""

    retention_max_bytes: Annotated[
        OptionalInteger, _flag("Most bytes of a partition's log; 0: no limit.")
    ] = None
    retention_max_messages: Annotated[
        OptionalInteger, _flag("Most messages of a partition's log; 0: no limit.")
    ] = None
    retention_max_age: Annotated[
        str | None, _duration("Age at which segments are deleted; 0: never")
    ] = None
    cleaner_interval: Annotated[
        str | None, _duration("Interval between runs of the log cleaner")
    ] = None
    segment_max_bytes: Annotated[OptionalInteger, _flag("Most bytes of a segment file.")] = None
    segment_max_age: Annotated[
        str | None, _duration("Age at which a segment is closed; 0: only by size")
    ] = None
    compact_max_goroutines: Annotated[
        OptionalInteger, _flag("Concurrency of compaction in the server.")
    ] = None
    compact_enabled: Annotated[bool | None, _flag("Keep only the newest message of each key.")] = (
        None
    )
    auto_pause_time: Annotated[
        str | None, _duration("Time without messages after which a partition pauses; 0: never")
    ] = None
    auto_pause_disable_if_subscribers: Annotated[
        bool | None, _flag("Do not pause a partition that has subscribers.")
    ] = None
    min_isr: Annotated[
        OptionalInteger, _flag("Least number of in-sync replicas to commit a message.")
    ] = None
    optimistic_concurrency_control: Annotated[
        bool | None, _flag("Check the expected offset of publishes.")
    ] = None
    encryption: Annotated[bool | None, _flag("Encrypt stored values.")] = None

    def options(self) -> StreamOptions:
        """Return the options.

        Raises:
            BadArgument: a duration is invalid.
            InvalidRequest: another value is invalid.
        """
        values: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and field.name in _DURATIONS:
                value = parse_duration(value)
            values[field.name] = value
        return StreamOptions(**values)


DEFAULT_FLAGS: Final = StreamFlags()
"""No flag given."""

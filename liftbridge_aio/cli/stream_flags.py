"""The options of a stream as flags of `streams create`."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Annotated, Any, Final

from cyclopts import Parameter

from liftbridge_aio.options import StreamOptions

from .arguments import DURATION_HELP, parse_duration

_DURATIONS: Final = frozenset(
    {"retention_max_age", "cleaner_interval", "segment_max_age", "auto_pause_time"}
)


def _flag(text: str) -> Parameter:
    return Parameter(help=text)


def _duration(text: str) -> Parameter:
    return Parameter(help=f"{text} ({DURATION_HELP}).")


@Parameter(name="*", group="Options of the stream (left out: the server's)")
@dataclass(frozen=True, kw_only=True)
class StreamFlags:
    """One flag per field of `StreamOptions`; durations are text until they are parsed."""

    retention_max_bytes: Annotated[
        int | None, _flag("Bytes of a partition's log; 0: no limit.")
    ] = None
    retention_max_messages: Annotated[
        int | None, _flag("Messages of a partition's log; 0: no limit.")
    ] = None
    retention_max_age: Annotated[
        str | None, _duration("Age at which segments are deleted; 0: never")
    ] = None
    cleaner_interval: Annotated[str | None, _duration("Time between looks for old segments")] = None
    segment_max_bytes: Annotated[int | None, _flag("Bytes of one segment file.")] = None
    segment_max_age: Annotated[
        str | None, _duration("Age at which a new segment is begun; 0: only by size")
    ] = None
    compact_max_goroutines: Annotated[int | None, _flag("How parallel the server compacts.")] = None
    compact_enabled: Annotated[bool | None, _flag("Keep only the newest message of a key.")] = None
    auto_pause_time: Annotated[
        str | None, _duration("Time without messages after which a partition pauses; 0: never")
    ] = None
    auto_pause_disable_if_subscribers: Annotated[
        bool | None, _flag("Do not pause a partition while somebody reads it.")
    ] = None
    min_isr: Annotated[int | None, _flag("Least in-sync replicas to commit anything.")] = None
    optimistic_concurrency_control: Annotated[
        bool | None, _flag("Check the expected offset of publishes.")
    ] = None
    encryption: Annotated[bool | None, _flag("Encrypt values where they are stored.")] = None

    def options(self) -> StreamOptions:
        """Make the options.

        Raises:
            BadArgument: a duration is none.
            InvalidRequest: a value makes no sense.
        """
        values: dict[str, Any] = {}
        for field in fields(self):
            value = getattr(self, field.name)
            if value is not None and field.name in _DURATIONS:
                value = parse_duration(value)
            values[field.name] = value
        return StreamOptions(**values)


DEFAULT_FLAGS: Final = StreamFlags()
"""Nothing chosen."""

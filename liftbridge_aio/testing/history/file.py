"""Histories in files, one JSON object per line, which survive the death of their process."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote_from_bytes, unquote_to_bytes

from .history import Event, EventKind, EventRecorder, History

_READABLE = " !#$&'()*+,/:;<=>?@[]^`{|}"  # not percent-encoded, besides letters and digits


class HistoryFile(EventRecorder):
    """A file to which events are appended.

    Each event is written with one system call before the method returns, so recorded events survive
    a SIGKILL of the process, but not a crash of the machine. The file must not exist yet. Only one
    process may write it, from any number of threads.
    """

    def __init__(self, path: str | PathLike[str], clock: Callable[[], float] | None = None) -> None:
        """Create the file.

        Args:
            path: the file to create; it must not exist.
            clock: returns the time, in seconds, for events that are recorded without one. The
                processes of a machine share `time.monotonic` where it counts from the machine's
                start.

        Raises:
            OSError: the file cannot be created, or exists.
        """
        self._file = Path(path).open("xb", buffering=0)  # noqa: SIM115 (open until close)
        super().__init__(self._write, clock)

    def _write(self, event: Event) -> None:
        line = format_event(event).encode() + b"\n"
        if self._file.write(line) != len(line):
            raise OSError(f"short write to the history {self._file.name}")

    def close(self) -> None:
        """Close the file; idempotent."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()


def write_history(path: str | PathLike[str], events: Iterable[Event]) -> None:
    """Write events to a new file.

    Raises:
        OSError: the file cannot be written, or exists.
    """
    with Path(path).open("x", encoding="ascii", newline="\n") as file:
        file.writelines(f"{format_event(event)}\n" for event in events)


def read_history(*paths: str | PathLike[str]) -> History:
    """Read the files of a history and merge them.

    If one producer or reader continues in another file, list the files in its order; otherwise the
    order of the files does not matter. A truncated last line is skipped and reported in
    `History.torn`. If events are recorded as documented, a truncated send was never published, and
    a truncated outcome leaves the outcome of its send unknown.

    Args:
        paths: files written by `HistoryFile` or `write_history`.

    Raises:
        OSError: a file cannot be read.
        ValueError: a line other than the last one is not a valid event.
    """
    history = History()
    for path in paths:
        with Path(path).open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    history.extend([parse_event(line)])
                except ValueError as error:
                    if line.endswith(b"\n"):
                        raise ValueError(f"{path}, line {number}: {error}") from None
                    history.torn.append(f"{path}, line {number}: {line[:60]!r}")
    return history


def format_event(event: Event) -> str:
    """Format an event as one line of JSON, without the line break.

    Values and keys are percent-encoded where they are not readable ASCII.
    """
    fields: dict[str, Any] = {
        "event": event.kind.value,
        "time": event.time,
        "actor": event.actor,
        "partition": event.partition,
    }
    if event.kind is not EventKind.FINISHED:
        fields["value"] = quote_from_bytes(event.value, _READABLE)
    if event.key is not None:
        fields["key"] = quote_from_bytes(event.key, _READABLE)
    if event.offset is not None:
        fields["offset"] = event.offset
    return json.dumps(fields)


def parse_event(line: str | bytes) -> Event:
    """Parse an event from one line of JSON.

    Raises:
        ValueError: the line is not a valid event.
    """
    try:
        fields = json.loads(line)
        key = fields.get("key")
        offset = fields.get("offset")
        return Event(
            EventKind(fields["event"]),
            float(fields["time"]),
            str(fields["actor"]),
            int(fields["partition"]),
            unquote_to_bytes(fields.get("value", "")),
            None if key is None else unquote_to_bytes(key),
            None if offset is None else int(offset),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise ValueError(f"not an event of a history: {error!r}") from error

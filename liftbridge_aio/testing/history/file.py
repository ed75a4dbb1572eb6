"""Histories in files: one JSON object a line, so that processes that are killed leave theirs."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from os import PathLike
from pathlib import Path
from typing import Any, Self
from urllib.parse import quote_from_bytes, unquote_to_bytes

from .history import Event, EventKind, EventRecorder, History

_READABLE = " !#$&'()*+,/:;<=>?@[]^`{|}"  # what values show as it is, beside letters and digits


class HistoryFile(EventRecorder):
    """Events in a file.

    Each event is written by one system call before the method returns, so what a process has
    recorded survives its SIGKILL, though not that of the machine. The file must be a new one; one
    process writes it, from as many threads as it likes.
    """

    def __init__(self, path: str | PathLike[str], clock: Callable[[], float] | None = None) -> None:
        """Create the file.

        Args:
            path: where; nothing may be there yet.
            clock: tells the time of events that come without one, in seconds. `time.monotonic`
                is one that the processes of a machine share, where it counts from its start.

        Raises:
            OSError: the file cannot be created, or exists.
        """
        self._file = Path(path).open("xb", buffering=0)  # noqa: SIM115 (open until close)
        super().__init__(self._write, clock)

    def _write(self, event: Event) -> None:
        line = format_event(event).encode() + b"\n"
        if self._file.write(line) != len(line):
            text = f"no room for the history in {self._file.name}"
            raise OSError(text)

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
    """Read the parts of a history and put them together.

    Where one producer or one reader goes on in another file, name the files in its order; else the
    order of files does not matter. A last line that was cut off is left out and told in
    `History.torn`: recorded as they should be, a torn send was never published, and a torn outcome
    leaves its send unknown.

    Args:
        paths: files that `HistoryFile` or `write_history` made.

    Raises:
        OSError: a file cannot be read.
        ValueError: a line that is not the last one is no event.
    """
    history = History()
    for path in paths:
        with Path(path).open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    history.extend([parse_event(line)])
                except ValueError as error:
                    if line.endswith(b"\n"):
                        text = f"{path}, line {number}: {error}"
                        raise ValueError(text) from None
                    history.torn.append(f"{path}, line {number}: {line[:60]!r}")
    return history


def format_event(event: Event) -> str:
    """Write an event as one line of JSON, without its end of line.

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
    """Read an event from one line of JSON.

    Raises:
        ValueError: the line is no event.
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
        text = f"no event of a history: {error!r}"
        raise ValueError(text) from error

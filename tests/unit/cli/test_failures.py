"""The text and exit code of failures."""

from __future__ import annotations

import inspect
import re

import pytest

from liftbridge_aio import errors
from liftbridge_aio.cli.output import failure_line
from liftbridge_aio.errors import ClientClosed, ConcurrentRead, LiftbridgeError, SubscriptionLost

OF_PROGRAMS = {
    *(
        "CallbackCancelled",
        "ClientClosed",
        "ConcurrentRead",
        "DuplicateCorrelationId",
        "NoCommittedPosition",
    ),
    *("PublishManyFailed", "UndecodableMessage"),
}
"""Errors that no command ends with: what they say is for those who write Python."""
KINDS = [
    kind
    for name, kind in inspect.getmembers(errors, inspect.isclass)
    if issubclass(kind, LiftbridgeError) and name not in OF_PROGRAMS
]


@pytest.mark.parametrize("kind", KINDS)
def test_no_error_of_a_command_speaks_python(kind: type[LiftbridgeError]) -> None:
    line = failure_line(kind("it failed", stream="s", partition=1, offset=7))
    assert line.startswith("it failed [stream='s', partition=1, offset=7]")
    assert not re.search(r"\w=(?!')|\w\(|await|async", line.partition("]")[2])


def test_errors_of_programs_do() -> None:
    for kind in (ClientClosed, ConcurrentRead):
        assert failure_line(kind("no")).startswith("no: ")


def test_where_a_reading_stopped_is_told_as_where_to_go_on() -> None:
    assert failure_line(SubscriptionLost("lost", offset=7)).endswith("continue at offset 8")
    assert failure_line(SubscriptionLost("lost")) == "lost"


def test_a_failure_is_one_line_that_fools_nobody() -> None:
    assert failure_line(OSError("no\n such\u202efile \x1b[2J")) == r"no such\u202efile \x1b[2J"
    assert failure_line(OSError()) == "OSError"

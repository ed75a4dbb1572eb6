from __future__ import annotations

import dataclasses
import inspect
from typing import Any

import pytest

from liftbridge_aio import telemetry
from liftbridge_aio.model import Ack, Message
from liftbridge_aio.telemetry import Hook

RECORDS = [value for value in vars(telemetry).values() if dataclasses.is_dataclass(value)]
RECORDS = [
    record
    for record in RECORDS
    if isinstance(record, type) and record.__module__ == telemetry.__name__
]
METHODS = [name for name, _ in inspect.getmembers(Hook, inspect.isfunction)]


def record_of(kind: type) -> Any:
    """Make a record; what stands in its fields does not matter here."""
    return kind(*(field.name for field in dataclasses.fields(kind)))


def argument_of(method: str) -> Any:
    (_, parameter) = inspect.signature(getattr(Hook, method), eval_str=True).parameters.values()
    if parameter.annotation is Ack:
        return Ack("s", "s", "s", 0)
    if parameter.annotation is Message:
        return Message("s", 0, 0, b"", b"", 0)
    return record_of(parameter.annotation)


@pytest.mark.parametrize("kind", RECORDS)
def test_records_cannot_be_changed(kind: type) -> None:
    record = record_of(kind)
    for field in dataclasses.fields(kind):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(record, field.name, "other")
    assert not hasattr(record, "__dict__")


def test_every_event_has_a_method_that_takes_it() -> None:
    taken = {type(argument_of(method)) for method in METHODS}
    events = {kind for kind in RECORDS if "Statistics" not in str(kind)}
    assert taken == {*events, Ack, Message}

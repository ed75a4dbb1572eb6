from __future__ import annotations

import copy
import inspect
import pickle
import re
from typing import Any

import pytest

from liftbridge_aio import errors
from liftbridge_aio.errors import (
    IncorrectOffset,
    InvalidRequest,
    LiftbridgeError,
    PublishRefused,
    RequestTimeout,
    ServerError,
    StreamExists,
    SubscriptionLost,
)

TREE_LINE = re.compile(r"(?P<lead>[ │├└─]*)(?P<name>[A-Z]\w+)(?: \((?P<second>\w+)\))?(?: .*)?")

ALL_ERRORS = [
    value
    for value in vars(errors).values()
    if inspect.isclass(value) and issubclass(value, LiftbridgeError)
]


def drawn_tree() -> dict[str, tuple[str, ...]]:
    """Read the names of each class's bases from the tree in the module's docstring."""
    assert errors.__doc__
    drawing = [line[4:] for line in errors.__doc__.splitlines() if line.startswith("    ")]
    bases: dict[str, tuple[str, ...]] = {}
    branch: list[str] = []
    for line in drawing:
        match = TREE_LINE.fullmatch(line)
        assert match, line
        depth = len(match["lead"]) // 4
        branch[depth:] = [match["name"]]
        parent = branch[depth - 1] if depth else "Exception"
        bases[match["name"]] = (parent, match["second"]) if match["second"] else (parent,)
    return bases


def test_the_drawn_tree_is_the_real_one() -> None:
    assert drawn_tree() == {
        error.__name__: tuple(base.__name__ for base in error.__bases__) for error in ALL_ERRORS
    }


@pytest.mark.parametrize("error", ALL_ERRORS)
def test_whatever_is_a_timeout_is_a_timeout_error(error: type[LiftbridgeError]) -> None:
    ran_out_of_time = error.__name__.endswith("Timeout") or error is SubscriptionLost
    assert issubclass(error, TimeoutError) == ran_out_of_time


@pytest.mark.parametrize("error", ALL_ERRORS)
def test_the_text_says_what_where_and_what_to_do(error: type[LiftbridgeError]) -> None:
    text = str(error("it broke", stream="orders", partition=0, offset=7))
    assert text.startswith("it broke [stream='orders', partition=0, offset=7]")
    assert text.endswith(error.hint or "]")


def test_the_text_leaves_out_what_is_not_known() -> None:
    assert str(LiftbridgeError("it broke")) == "it broke"
    assert str(LiftbridgeError("it broke", partition=0)) == "it broke [partition=0]"
    assert str(StreamExists("there")) == f"there: {StreamExists.hint}"


def pickled(error: LiftbridgeError) -> Any:
    return pickle.loads(pickle.dumps(error))  # noqa: S301 - made here


@pytest.mark.parametrize("error", ALL_ERRORS)
@pytest.mark.parametrize("duplicate", [pickled, copy.copy, copy.deepcopy])
def test_copies_keep_every_attribute(error: type[LiftbridgeError], duplicate: Any) -> None:
    original = error("it broke", stream="orders", partition=1, offset=7)
    original.hint = "try the other one"
    original.add_note("a note")
    again = duplicate(original)
    assert type(again) is error
    assert vars(again) == vars(original)
    assert (again.args, str(again)) == (original.args, str(original))


def test_codes_and_ids_survive_pickling_too() -> None:
    refused = PublishRefused("no")
    refused.code, refused.correlation_id = "READONLY", "id-1"
    again = pickled(refused)
    assert (again.code, again.correlation_id) == ("READONLY", "id-1")


def test_codes_are_unknown_until_they_are_set() -> None:
    assert ServerError("x").code == PublishRefused("x").code == "UNKNOWN"
    assert IncorrectOffset("x").correlation_id == ""


def test_the_place_is_filled_in_but_never_overwritten() -> None:
    error = LiftbridgeError("it broke", partition=0)
    assert error.at("orders", 3, 7) is error
    assert (error.stream, error.partition, error.offset) == ("orders", 0, 7)


def test_a_lost_subscription_says_how_far_it_came() -> None:
    assert SubscriptionLost("lost", offset=41).last_offset == 41
    assert SubscriptionLost("lost").last_offset is None


def test_they_are_caught_as_what_users_expect() -> None:
    for error, kind in (
        (InvalidRequest("it broke"), ValueError),
        (RequestTimeout("it broke"), TimeoutError),
    ):
        with pytest.raises(kind, match="it broke"):
            raise error

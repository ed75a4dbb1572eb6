from __future__ import annotations

import pickle

import pytest

from liftbridge_aio.errors import LiftbridgeError
from liftbridge_aio.spark import errors
from liftbridge_aio.spark.errors import InvalidOption, ReadStalled, SparkSourceError

ALL = [
    value
    for value in vars(errors).values()
    if isinstance(value, type) and issubclass(value, SparkSourceError)
]


@pytest.mark.parametrize("kind", ALL)
def test_the_text_says_code_place_and_remedy(kind: type[SparkSourceError]) -> None:
    error = kind("it broke", stream="orders", partition=1, offset=7)
    error.hint = "mend it"
    assert str(error) == (
        f"[{kind.code}] it broke [stream='orders', partition=1, offset=7]: mend it"
    )


def test_each_kind_has_a_code_of_its_own() -> None:
    codes = [kind.code for kind in ALL]
    assert len(set(codes)) == len(codes)
    assert all(code.startswith("LIFTBRIDGE_") for code in codes)


def test_the_drawing_has_every_kind_and_its_code() -> None:
    assert errors.__doc__
    drawn = {
        line.split("─ ")[1].split()[0]: line.split("[")[1].split("]")[0]
        for line in errors.__doc__.splitlines()
        if "─ " in line
    }
    assert drawn == {kind.__name__: kind.code for kind in ALL if kind is not SparkSourceError}


@pytest.mark.parametrize("kind", ALL)
def test_errors_come_back_from_a_worker_as_they_were(kind: type[SparkSourceError]) -> None:
    error = kind("it broke", stream="orders")
    error.hint = "mend it"
    again = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert type(again) is kind
    assert str(again) == str(error)


def test_they_are_caught_as_what_they_are() -> None:
    assert issubclass(SparkSourceError, LiftbridgeError)
    assert issubclass(InvalidOption, ValueError)
    assert issubclass(ReadStalled, TimeoutError)

"""Values come back as they were written, and what is no value is refused."""

from __future__ import annotations

import datetime as dt
import math
import sys
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import msgspec
import pydantic
import pytest
from hypothesis import given
from hypothesis import strategies as st

from liftbridge_aio import InvalidRequest, WrongType
from liftbridge_aio.serializers import (
    BYTES,
    JSON,
    MsgspecSerializer,
    PydanticSerializer,
    Serializer,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]))
JSON_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | TEXT,
    lambda inner: st.lists(inner) | st.dictionaries(TEXT, inner),
    max_leaves=20,
)


class Order(pydantic.BaseModel):
    number: int = pydantic.Field(alias="orderNumber")
    note: str | None = None
    at: dt.datetime

    @pydantic.computed_field  # type: ignore[prop-decorator]
    @property
    def label(self) -> str:
        return f"order {self.number}"


class StrictOrder(Order, extra="forbid"):
    pass


class Payment(msgspec.Struct):
    cents: int
    payer: str = ""


NOON = dt.datetime(2026, 11, 21, 12, tzinfo=dt.UTC)


@given(data=st.binary())
def test_bytes_stay_what_they_are(data: bytes) -> None:
    assert BYTES.deserialize(BYTES.serialize(data)) is data


def test_bytes_are_nothing_else() -> None:
    wrong: Any = "text"
    with pytest.raises(WrongType):
        BYTES.serialize(wrong)


@given(value=JSON_VALUES)
def test_json_values_come_back(value: Any) -> None:
    assert JSON.deserialize(JSON.serialize(value)) == value


def test_json_is_compact_utf8() -> None:
    assert JSON.serialize({"größe": [1, 2]}) == '{"größe":[1,2]}'.encode()


@pytest.mark.parametrize(
    "value", [math.nan, math.inf, -math.inf, object(), b"bytes", "\ud800", {1, 2}, {(1, 2): 3}]
)
def test_what_json_cannot_hold_is_refused(value: Any) -> None:
    with pytest.raises((TypeError, ValueError)):
        JSON.serialize(value)


@pytest.mark.parametrize(
    "data",
    [
        *(b"", b"{", b"NaN", b"[-Infinity]", b"1e999", b"\xff", b"1 2"),
        *("1".encode("utf-16"), b"[" * 100_000),
    ],
)
def test_what_is_no_json_is_refused(data: bytes) -> None:
    with pytest.raises((ValueError, RecursionError)):
        JSON.deserialize(data)


@given(
    number=st.integers(),
    note=st.none() | TEXT,
    at=st.datetimes(timezones=st.just(dt.UTC)),
)
def test_models_of_pydantic_come_back(number: int, note: str | None, at: dt.datetime) -> None:
    orders = PydanticSerializer(Order)
    order = Order(orderNumber=number, note=note, at=at)
    assert orders.deserialize(orders.serialize(order)) == order


def test_models_are_written_as_pydantic_reads_them_without_computed_fields() -> None:
    orders = PydanticSerializer(StrictOrder)
    order = StrictOrder(orderNumber=7, at=NOON)
    data = orders.serialize(order)
    assert JSON.deserialize(data) == {
        "orderNumber": 7,
        "note": None,
        "at": "2026-11-21T12:00:00Z",
    }
    assert orders.deserialize(data) == order


def test_pydantic_serves_any_type_that_it_knows() -> None:
    numbers = PydanticSerializer(list[int])
    assert numbers.deserialize(numbers.serialize([1, 2])) == [1, 2]
    assert repr(numbers) == "PydanticSerializer(list[int])"


def test_pydantic_refuses_a_value_of_another_type() -> None:
    wrong: Any = {"orderNumber": 7}
    with pytest.raises(ValueError, match="Expected `Order`"):
        PydanticSerializer(Order).serialize(wrong)


@pytest.mark.parametrize("data", [b"", b"7", b'{"orderNumber":"x"}', b"\xff"])
def test_what_is_no_model_is_refused(data: bytes) -> None:
    with pytest.raises(pydantic.ValidationError):
        PydanticSerializer(Order).deserialize(data)


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
@given(cents=st.integers(-(2**63), 2**63 - 1), payer=TEXT)
def test_structs_of_msgspec_come_back(encoding: Any, cents: int, payer: str) -> None:
    payments = MsgspecSerializer(Payment, encoding)
    payment = Payment(cents, payer)
    assert payments.deserialize(payments.serialize(payment)) == payment


@pytest.mark.parametrize("encoding", ["json", "msgpack"])
@pytest.mark.parametrize("data", [b"", b"\xc1", b'{"cents":"x"}', b"\x81\xa5cents\xa1x"])
def test_what_is_no_struct_is_refused(encoding: Any, data: bytes) -> None:
    with pytest.raises(msgspec.DecodeError):
        MsgspecSerializer(Payment, encoding).deserialize(data)


class Reading(pydantic.BaseModel):
    celsius: float = 0.0
    """A number of the model itself."""
    more: Any = None
    prices: dict[str, Decimal] = {}
    by_level: dict[float, int] = {}


class Constants(Reading, ser_json_inf_nan="constants"):
    pass


class Strings(Reading, ser_json_inf_nan="strings"):
    pass


class Measured(msgspec.Struct):
    celsius: float = 0.0
    more: Any = None
    by_level: dict[float, int] = {}


NOT_FINITE = (math.nan, math.inf, -math.inf)


@pytest.mark.parametrize("number", NOT_FINITE)
@pytest.mark.parametrize("model", [Reading, Constants, Strings])
def test_pydantic_refuses_numbers_that_json_lacks(model: Any, number: float) -> None:
    for fields in (
        {"celsius": number},
        {"more": [{"deep": (1, number)}]},
        {"more": Reading.model_construct(celsius=number)},
        {"prices": {"tea": Decimal(number)}},
        {"by_level": {number: 1}},
    ):
        with pytest.raises(ValueError, match="JSON has no"):
            PydanticSerializer(model).serialize(model.model_construct(**fields))
    with pytest.raises(ValueError, match="JSON has no"):
        PydanticSerializer(list[float]).serialize([1.0, number])


@pytest.mark.parametrize("number", NOT_FINITE)
@pytest.mark.parametrize("encoding", ["json", "msgpack"])
def test_msgspec_refuses_numbers_that_json_lacks(encoding: Any, number: float) -> None:
    for value in (
        Measured(number),
        Measured(more=[{"deep": Measured(number)}]),
        Measured(by_level={number: 1}),
    ):
        with pytest.raises(ValueError, match="JSON has no"):
            MsgspecSerializer(Measured, encoding).serialize(value)


@pytest.mark.parametrize("data", [b"[NaN]", b'["-Infinity"]', b"[1e999]", b"[1%s]" % (b"0" * 400)])
def test_pydantic_reads_no_number_that_json_lacks(data: bytes) -> None:
    with pytest.raises(ValueError):
        PydanticSerializer(list[float]).deserialize(data)
    with pytest.raises(ValueError):
        PydanticSerializer(list[Reading]).deserialize(b'[{"celsius":%s}]' % data[1:-1])


def test_null_and_words_for_numbers_stay_values() -> None:
    reading = Reading(more=[None, "NaN", "Infinity", {"inf": None}])
    readings = PydanticSerializer(Reading)
    assert readings.deserialize(readings.serialize(reading)) == reading
    measured = Measured(more=[None, "NaN", {"nan": None}, b"\xcb\x7f\xff".hex()])
    for encoding in ("json", "msgpack"):
        structs = MsgspecSerializer(Measured, encoding)
        assert structs.deserialize(structs.serialize(measured)) == measured


def test_msgspec_has_no_other_encoding() -> None:
    wrong: Any = "yaml"
    with pytest.raises(InvalidRequest, match="yaml"):
        MsgspecSerializer(Payment, wrong)


@pytest.mark.parametrize(
    ("package", "make"),
    [
        ("pydantic", lambda: PydanticSerializer(int)),
        ("msgspec", lambda: MsgspecSerializer(int)),
    ],
)
def test_a_package_that_is_missing_is_named_with_its_extra(
    monkeypatch: pytest.MonkeyPatch, package: str, make: Callable[[], object]
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ImportError, match=rf"liftbridge-aio\[{package}\]"):
        make()


def test_a_serialiser_of_ones_own_needs_two_methods() -> None:
    class Numbers:
        def serialize(self, value: int, /) -> bytes:
            return b"%d" % value

        def deserialize(self, data: bytes, /) -> int:
            return int(data)

    numbers: Serializer[int] = Numbers()
    assert numbers.deserialize(numbers.serialize(-7)) == -7

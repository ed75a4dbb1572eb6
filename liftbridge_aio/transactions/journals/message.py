"""Messages of journals, and what comes with them when they are read."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any, Generic, NamedTuple, Protocol, Self, TypeAlias, TypeVar, runtime_checkable

from liftbridge_aio._core.foreign_text import json_bytes
from liftbridge_aio.serializers import JSON
from liftbridge_aio.transactions.core.mapping import Journal
from liftbridge_aio.transactions.core.uuid import NIL_UUID

M = TypeVar("M", bound="Message")


class Message(Protocol):
    """A message of any type that keeps the UUID that it is given.

    One that cannot keep it returns `NIL_UUID`: it takes no part in transactions, is visible at
    once, and may be delivered twice. What else it needs depends on the framing of its journal.
    """

    def get_uuid(self) -> bytes:
        """Return the UUID, 16 bytes."""

    def set_uuid(self, uuid: bytes, /) -> None:
        """Keep a UUID."""

    def new_acknowledgement(self, journal: Journal, /) -> Message:
        """Return a new message of this type that commits those before it in the journal."""


@runtime_checkable
class Validator(Protocol):
    """A message that is checked before it is published."""

    def validate(self) -> None:
        """Raise an exception if the message is not to be published."""


NewMessage: TypeAlias = Callable[[Journal], M]
"""Returns an empty message for what is read from a journal."""


class Envelope(NamedTuple, Generic[M]):
    """A message and its place in the journal: offsets from `begin` to before `end`."""

    journal: Journal
    begin: int
    end: int
    message: M


class JsonMessage:
    """A message of JSON: an object, whose UUID is text under `uuid`."""

    def __init__(self, **fields: Any) -> None:
        """Keep the fields."""
        self.fields = fields

    def __repr__(self) -> str:
        """Return the fields."""
        return f"{type(self).__name__}({self.fields!r})"

    def get_uuid(self) -> bytes:
        """Return the UUID; `NIL_UUID` if there is none.

        Raises:
            ValueError: the field is no UUID.
        """
        text = self.fields.get("uuid")
        return NIL_UUID if text is None else uuid.UUID(text).bytes

    def set_uuid(self, uuid_bytes: bytes, /) -> None:
        """Keep a UUID."""
        self.fields["uuid"] = str(uuid.UUID(bytes=uuid_bytes))

    def new_acknowledgement(self, _: Journal, /) -> Self:
        """Return an empty object."""
        return type(self)()

    def marshal_json(self) -> bytes:
        """Return the fields as JSON.

        Raises:
            TypeError: JSON has no such value.
            ValueError: the same, for a number that is not finite.
        """
        text = json.dumps(self.fields, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
        return json_bytes(text)

    def unmarshal_json(self, data: bytes) -> None:
        """Take the fields from JSON.

        Raises:
            ValueError: it is no object, or its UUID is none.
        """
        fields = JSON.deserialize(data)
        if not isinstance(fields, dict):
            raise ValueError(f"expected an object, not {type(fields).__name__}")  # noqa: TRY004 - as for other bytes that are malformed
        self.fields = fields
        try:
            self.get_uuid()
        except (TypeError, AttributeError) as error:
            raise ValueError(f"its uuid is no text: {fields['uuid']!r}") from error


class CsvRecord:
    """A record of CSV, whose first field is its UUID as text."""

    def __init__(self, *fields: str) -> None:
        """Keep the fields after that of the UUID."""
        self.fields = [str(uuid.UUID(bytes=NIL_UUID)), *fields]

    def __repr__(self) -> str:
        """Return the fields."""
        return f"{type(self).__name__}({', '.join(map(repr, self.fields[1:]))})"

    def get_uuid(self) -> bytes:
        """Return the UUID."""
        return uuid.UUID(self.fields[0]).bytes

    def set_uuid(self, uuid_bytes: bytes, /) -> None:
        """Keep a UUID."""
        self.fields[0] = str(uuid.UUID(bytes=uuid_bytes))

    def new_acknowledgement(self, _: Journal, /) -> Self:
        """Return a record of as many fields, which are empty."""
        return type(self)(*[""] * (len(self.fields) - 1))

    def marshal_csv(self) -> list[str]:
        """Return all fields."""
        return self.fields

    def unmarshal_csv(self, fields: list[str]) -> None:
        """Take all fields.

        Raises:
            ValueError: the first is no UUID.
        """
        try:
            uuid.UUID(fields[0])
        except ValueError:
            raise ValueError(f"its first field is no UUID: {fields[0]!r}") from None
        self.fields = fields

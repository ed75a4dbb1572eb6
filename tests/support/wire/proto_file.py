"""Reads our .proto files, so that tests can hold the code against them.

It knows the part of the language that those files use, and makes protobuf's own classes of it, in
a pool of their own.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, Final, NamedTuple

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

PROTOS: Final = Path(__file__).parents[3] / "protos"

_FIELD: Final = re.compile(
    r"(?P<repeated>repeated )?(?P<map>map<(?P<key>\w+), (?P<item>\w+)>|\w+)"
    r" (?P<name>\w+) = (?P<n>\d+);"
)
_VALUE: Final = re.compile(r"(?P<name>\w+) = (?P<n>\d+);")
_METHOD: Final = re.compile(
    r"rpc (?P<name>\w+)\((?P<in_stream>stream )?(?P<request>\w+)\)"
    r" returns \((?P<out_stream>stream )?(?P<reply>\w+)\);"
)
_OPENING: Final = re.compile(r"(?P<kind>message|enum|service) (?P<name>\w+) \{(?P<end>\})?")

_Field = descriptor_pb2.FieldDescriptorProto
_SCALARS: Final = {
    name: getattr(_Field, f"TYPE_{name.upper()}")
    for name in ("string", "bytes", "bool", "int32", "int64", "uint32", "uint64", "fixed64")
}


class Method(NamedTuple):
    """A remote procedure as the file declares it."""

    name: str
    request: str
    reply: str
    streams_requests: bool
    streams_replies: bool


class ProtoFile:
    """A .proto file: its methods, and protobuf's own class of each message."""

    def __init__(self, name: str) -> None:
        self.methods: list[Method] = []
        self._file = descriptor_pb2.FileDescriptorProto(name=name, syntax="proto3")
        self._open: list[Any] = []
        for line in (PROTOS / name).read_text(encoding="utf-8").splitlines():
            statement = line.partition("//")[0].strip()
            if statement:
                self._read(statement)
        self.enums = {enum.name for enum in self._file.enum_type}
        for message in self._file.message_type:
            self._name_types(message)
        pool = descriptor_pool.DescriptorPool()
        pool.Add(self._file)
        self._messages = {
            message.name: message_factory.GetMessageClass(
                pool.FindMessageTypeByName(f"{self._file.package}.{message.name}")
            )
            for message in self._file.message_type
        }

    def message(self, name: str) -> Any:
        """Return protobuf's own class of a message."""
        return self._messages[name]

    @property
    def messages(self) -> dict[str, Any]:
        """Protobuf's own class of each message, by name."""
        return dict(self._messages)

    def _read(self, statement: str) -> None:
        opening = _OPENING.fullmatch(statement)
        inner = self._open[-1] if self._open else None
        if statement.startswith("package "):
            self._file.package = statement.removeprefix("package ").rstrip(";")
        elif opening is not None:
            self._enter(opening["kind"], opening["name"])
            if opening["end"]:
                self._open.pop()
        elif statement == "}":
            self._open.pop()
        elif isinstance(inner, descriptor_pb2.EnumDescriptorProto):
            match = _VALUE.fullmatch(statement)
            assert match, statement
            inner.value.add(name=match["name"], number=int(match["n"]))
        elif isinstance(inner, descriptor_pb2.DescriptorProto):
            self._add_field(inner, statement)
        elif isinstance(inner, descriptor_pb2.ServiceDescriptorProto):
            self._add_method(statement)
        else:
            assert statement.startswith("syntax"), statement

    def _enter(self, kind: str, name: str) -> None:
        outer = self._open[-1] if self._open else self._file
        if kind == "message":
            self._open.append(outer.message_type.add(name=name))
        elif kind == "enum":
            self._open.append(outer.enum_type.add(name=name))
        else:
            self._open.append(descriptor_pb2.ServiceDescriptorProto(name=name))

    def _add_method(self, statement: str) -> None:
        match = _METHOD.fullmatch(statement)
        assert match, statement
        streams = bool(match["in_stream"]), bool(match["out_stream"])
        self.methods.append(Method(match["name"], match["request"], match["reply"], *streams))

    @staticmethod
    def _add_field(message: descriptor_pb2.DescriptorProto, statement: str) -> None:
        match = _FIELD.fullmatch(statement)
        assert match, statement
        name, kind = match["name"], match["map"]
        repeated = bool(match["repeated"] or match["key"])
        if match["key"]:
            kind = f"{name[0].upper()}{name[1:]}Entry"
            entry = message.nested_type.add(name=kind)
            entry.options.map_entry = True
            for number, part in enumerate(("key", "item"), 1):
                entry.field.add(
                    name="key" if part == "key" else "value",
                    number=number,
                    type_name=match[part],
                    label=_Field.LABEL_OPTIONAL,
                )
        message.field.add(
            name=name,
            number=int(match["n"]),
            type_name=kind,
            label=_Field.LABEL_REPEATED if repeated else _Field.LABEL_OPTIONAL,
        )

    def _name_types(self, message: descriptor_pb2.DescriptorProto) -> None:
        """Tell scalars, enums and messages apart, now that all are known."""
        nested = {inner.name for inner in message.nested_type}
        own_enums = {enum.name for enum in message.enum_type}
        for field in [*message.field, *(f for inner in message.nested_type for f in inner.field)]:
            kind = field.type_name
            if kind in _SCALARS:
                field.type = _SCALARS[kind]
                field.ClearField("type_name")
                continue
            is_enum = kind in own_enums or kind in self.enums
            field.type = _Field.TYPE_ENUM if is_enum else _Field.TYPE_MESSAGE
            inside = f"{message.name}." if kind in own_enums | nested else ""
            field.type_name = f".{self._file.package}.{inside}{kind}"


LIFTBRIDGE: Final = ProtoFile("liftbridge.proto")

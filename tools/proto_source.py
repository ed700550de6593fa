"""The wire contract with its comments, as protoc reads it."""

import re
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from google.protobuf.descriptor_pb2 import (
    DescriptorProto,
    EnumDescriptorProto,
    FieldDescriptorProto,
    FileDescriptorProto,
    FileDescriptorSet,
)

from tools.environment import Problem, call

_MESSAGE, _ENUM, _SERVICE = (
    4,
    5,
    6,
)  # numbers of fields of FileDescriptorProto, as they stand in a location's path
_FIELD, _METHOD, _VALUE = 2, 2, 2
_SCALARS = {
    FieldDescriptorProto.TYPE_DOUBLE: "double",
    FieldDescriptorProto.TYPE_FLOAT: "float",
    FieldDescriptorProto.TYPE_INT64: "int64",
    FieldDescriptorProto.TYPE_UINT64: "uint64",
    FieldDescriptorProto.TYPE_INT32: "int32",
    FieldDescriptorProto.TYPE_BOOL: "bool",
    FieldDescriptorProto.TYPE_STRING: "string",
    FieldDescriptorProto.TYPE_BYTES: "bytes",
}


class Field(NamedTuple):
    number: int
    name: str
    type: str
    message: str
    """The message of this contract that it is, or has in it; else empty."""
    choice: str
    """The oneof that it belongs to; else empty."""
    comment: str


@dataclass(frozen=True)
class Message:
    name: str
    comment: str
    fields: tuple[Field, ...]


class Rpc(NamedTuple):
    name: str
    request: str
    response: str
    takes_stream: bool
    gives_stream: bool
    is_original: bool
    comment: str


@dataclass(frozen=True)
class Group:
    """RPCs that stand together under one comment."""

    comment: str
    rpcs: list[Rpc] = field(default_factory=list)


@dataclass(frozen=True)
class Contract:
    groups: list[Group]
    messages: dict[str, Message]

    @property
    def rpcs(self) -> list[Rpc]:
        return [rpc for group in self.groups for rpc in group.rpcs]


class _Location(NamedTuple):
    line: int
    above: str
    behind: str


def read_contract() -> Contract:
    """Return the contract of proto/pulse/v1/pulse.proto."""
    with tempfile.TemporaryDirectory() as directory:
        output = Path(directory, "contract")
        command = ["-m", "grpc_tools.protoc", "-Iproto", "--include_source_info"]
        code, printed = call(
            [sys.executable, *command, f"--descriptor_set_out={output}", "pulse/v1/pulse.proto"]
        )
        if code:
            raise Problem(f"protoc cannot read the contract:\n{printed.rstrip()}")
        (file,) = FileDescriptorSet.FromString(output.read_bytes()).file
    locations = {
        tuple(found.path): _Location(found.span[0], found.leading_comments, found.trailing_comments)
        for found in file.source_code_info.location
    }
    enums = {enum.name: _values(enum, (_ENUM, at), locations) for at, enum in enumerate(file.enum_type)}
    messages = [
        _message(message, (_MESSAGE, at), locations, enums) for at, message in enumerate(file.message_type)
    ]
    return Contract(list(_groups(file, locations)), {message.name: message for message in messages})


def _groups(file: FileDescriptorProto, locations: dict[tuple[int, ...], _Location]) -> Iterator[Group]:
    group: Group | None = None
    last_line = 0
    for at, method in enumerate(file.service[0].method):
        location = locations[_SERVICE, 0, _METHOD, at]
        # A comment after an empty line is about all RPCs that follow, one right below an RPC about the next.
        is_first = location.line - last_line - location.above.count("\n") > 1
        last_line = location.line
        if is_first or group is None:
            if group is not None:
                yield group
            group = Group(_text(location.above))
        group.rpcs.append(
            Rpc(
                method.name,
                _short(method.input_type),
                _short(method.output_type),
                method.client_streaming,
                method.server_streaming,
                _text(location.behind) == "original",
                "" if is_first else _text(location.above),
            )
        )
    if group is not None:
        yield group


def _values(
    enum: EnumDescriptorProto, path: tuple[int, ...], locations: dict[tuple[int, ...], _Location]
) -> str:
    """The values of an enum, each with its comment: an enum has no section of its own to link to."""
    return ". ".join(
        f"{value.name}: {_text(locations[*path, _VALUE, at].behind) or value.number}"
        for at, value in enumerate(enum.value)
    )


def _message(
    message: DescriptorProto,
    path: tuple[int, ...],
    locations: dict[tuple[int, ...], _Location],
    enums: dict[str, str],
) -> Message:
    maps = {nested.name: nested for nested in message.nested_type if nested.options.map_entry}
    fields = []
    for at, described in enumerate(message.field):
        location = locations[*path, _FIELD, at]
        choice = ""
        if described.HasField("oneof_index") and not described.proto3_optional:
            choice = message.oneof_decl[described.oneof_index].name
        own = _short(described.type_name) if described.type_name.startswith(".pulse.") else ""
        fields.append(
            Field(
                described.number,
                described.name,
                _type(described, maps),
                "" if own in maps or own in enums else own,
                choice,
                " ".join(filter(None, [_text(location.above), _text(location.behind), enums.get(own, "")])),
            )
        )
    return Message(message.name, _text(locations[path].above), tuple(fields))


def _type(described: FieldDescriptorProto, maps: dict[str, DescriptorProto]) -> str:
    name = _SCALARS.get(described.type) or _short(described.type_name)
    if name in maps:
        key, value = maps[name].field
        return f"map<{_type(key, {})}, {_type(value, {})}>"
    if described.label == FieldDescriptorProto.LABEL_REPEATED:
        return f"repeated {name}"
    return f"optional {name}" if described.proto3_optional else name


def _short(name: str) -> str:
    return name.rpartition(".")[2]


def _text(comment: str) -> str:
    return re.sub(r"\s+", " ", comment).strip()

"""Serialized messages that are small on the wire and large once they are parsed."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto

from pulse.v1 import pulse_pb2 as pb

BYTES = FieldDescriptorProto.TYPE_BYTES
STRING = FieldDescriptorProto.TYPE_STRING

REQUESTS = {
    method.name: getattr(pb, method.input_type.name)
    for method in pb.DESCRIPTOR.services_by_name["PulseService"].methods
}


def varint(number: int) -> bytes:
    found = b""
    while number >= 0x80:
        found += bytes([number & 0x7F | 0x80])
        number >>= 7
    return found + bytes([number])


def field(number: int, value: bytes = b"") -> bytes:
    return varint(number << 3 | 2) + varint(len(value)) + value


def repeats(value: bytes, size: int) -> bytes:
    """As many repeats as fit, at least two."""
    return value * max(2, size // len(value))


def dense_messages(
    described: Any, size: int, entry: int, *, is_request: bool = True
) -> Iterator[tuple[str, bytes]]:
    """Yield messages of the type, of about `size` bytes, that consist of nothing but entries.

    Each field that is a list, a map, a message or a choice is repeated: empty, and full of what makes its own
    type dense. Messages in messages have about `entry` bytes.
    """
    definition = DescriptorProto()
    described.CopyToProto(definition)
    for own in definition.field:
        is_list = own.label == FieldDescriptorProto.LABEL_REPEATED
        nested = described.fields_by_number[own.number].message_type
        if nested is not None:
            yield f"{own.name} of nothing", repeats(field(own.number), size)
            for name, value in dense_messages(nested, entry, entry, is_request=False):
                yield f"{own.name}.{name}", repeats(field(own.number, value), size)
        elif is_list and own.type in (BYTES, STRING):
            yield own.name, repeats(field(own.number), size)
    for choice in described.oneofs:
        if len(choice.fields) > 1:
            yield f"{choice.name} by turns", repeats(b"".join(map(_empty, choice.fields)), size)
    # In an entry without messages they take as much memory as on the wire, and are not counted.
    if is_request or any(own.message_type is not None for own in described.fields):
        yield "unknown fields", repeats(b"\xf8\x7f\x00", size)


def _empty(described: Any) -> bytes:
    is_text = described.message_type is not None or described.type in (BYTES, STRING)
    return field(described.number) if is_text else varint(described.number << 3) + b"\x01"

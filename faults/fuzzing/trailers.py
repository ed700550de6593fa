"""Reads the status of a call from the frames of a bare connection."""

from __future__ import annotations

# HPACK's own table (RFC 7541): entries that are not used here, except for the statuses of HTTP.
_STATIC = [("", "")] * 61
_STATIC[7:14] = [(":status", code) for code in ("200", "204", "206", "304", "400", "404", "500")]

_INDEXED, _REMEMBERED, _RESIZED = 0x80, 0x40, 0x20


class Unreadable(Exception):
    """The block has an encoding that is not supported here."""


class HeaderReader:
    """Reads the blocks of headers of one connection, in their order: later ones refer to earlier ones."""

    def __init__(self) -> None:
        self._dynamic: list[tuple[str, str]] = []

    def read(self, block: bytes) -> dict[str, str]:
        headers: dict[str, str] = {}
        place = 0
        while place < len(block):
            first = block[place]
            if first & _INDEXED:
                index, place = _number(block, place, 7)
                name, value = self._entry(index)
            elif not first & _REMEMBERED and first & _RESIZED:
                _, place = _number(block, place, 5)
                continue
            else:
                remembers = bool(first & _REMEMBERED)
                index, place = _number(block, place, 6 if remembers else 4)
                if index:
                    name = self._entry(index)[0]
                else:
                    name, place = _text(block, place)
                value, place = _text(block, place)
                if remembers:
                    self._dynamic.insert(0, (name, value))
            headers[name] = value
        return headers

    def _entry(self, index: int) -> tuple[str, str]:
        entries = _STATIC + self._dynamic
        if not 1 <= index <= len(entries):
            raise Unreadable
        return entries[index - 1]


def _number(block: bytes, place: int, bits: int) -> tuple[int, int]:
    most = (1 << bits) - 1
    number = block[place] & most
    place += 1
    if number < most:
        return number, place
    shift = 0
    while True:
        digit = block[place]
        number += (digit & 0x7F) << shift
        place, shift = place + 1, shift + 7
        if not digit & 0x80:
            return number, place


def _text(block: bytes, place: int) -> tuple[str, int]:
    if block[place] & 0x80:
        raise Unreadable  # with Huffman's code, which gRPC writes for binary values only
    length, place = _number(block, place, 7)
    return block[place : place + length].decode("latin-1"), place + length

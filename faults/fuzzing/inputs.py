"""The inputs to pulsed, and their form as Python, to send them again."""

from __future__ import annotations

import base64
import zlib
from dataclasses import dataclass

from google.protobuf import text_format
from google.protobuf.message import DecodeError

from faults.fuzzing.contract import BY_PATH

Metadata = tuple[tuple[str, str | bytes], ...]

_LONGEST_HEX = 400  # bytes; beyond it the text is packed
_LONGEST_TEXT = 600


@dataclass(frozen=True)
class Call:
    """One call: the messages that are sent on it, as bytes, and whether its caller hangs up at once."""

    path: str
    messages: tuple[bytes, ...] = (b"",)
    metadata: Metadata = ()
    hangs_up: bool = False
    kind: str = "structured"

    def __repr__(self) -> str:
        """As Python, to be kept in known.py. A comment behind it decodes the messages."""
        parts = [repr(self.path), f"messages=({''.join(f'{_written(one)}, ' for one in self.messages)})"]
        if self.metadata:
            parts.append(f"metadata={self.metadata!r}")
        if self.hangs_up:
            parts.append("hangs_up=True")
        return f"Call({', '.join(parts)})  # {self._meaning()}"

    def _meaning(self) -> str:
        rpc = BY_PATH.get(self.path)
        if rpc is None:
            return "no such method"
        meanings = []
        for encoded in self.messages:
            try:
                message = rpc.request.FromString(encoded)
            except (DecodeError, ValueError, RecursionError):
                meanings.append("no message")
            else:
                meanings.append(text_format.MessageToString(message, as_one_line=True) or "empty")
        text = " | ".join(meanings) or "no message at all"
        return text if len(text) <= _LONGEST_TEXT else f"{text[:_LONGEST_TEXT]}… ({len(text)} characters)"


@dataclass(frozen=True)
class Wire:
    """Bytes for a connection of their own. `stays`: the caller does not close the connection after them."""

    data: bytes
    stays: bool = False
    kind: str = "wire"

    def __repr__(self) -> str:
        stays = ", stays=True" if self.stays else ""
        return f"Wire({_written(self.data)}{stays})"


Input = Call | Wire


def packed(text: str) -> bytes:
    """Unpack bytes that were too long for hex."""
    return zlib.decompress(base64.b85decode(text))


def _written(data: bytes) -> str:
    if not data:
        return 'b""'
    if len(data) <= _LONGEST_HEX:
        return f'bytes.fromhex("{data.hex()}")'
    return f'packed("{base64.b85encode(zlib.compress(data, 9)).decode()}")'

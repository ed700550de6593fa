"""Credentials: the Authorization header of HTTP's Basic scheme, which gRPC carries as metadata."""

from __future__ import annotations

from binascii import a2b_base64
from dataclasses import dataclass, field


class BadCredentials(Exception):
    """The header does not have the form of Basic credentials. Never contains the header."""


@dataclass(slots=True)  # not frozen: one is made for every call, and a frozen one takes thrice as long
class Credentials:
    name: str
    password: bytes = field(repr=False)
    raw: bytes = field(repr=False)  # name:password; the name has no colon, so no two pairs look the same

    @classmethod
    def parse(cls, header: str) -> Credentials:
        """Read the header. BadCredentials if it cannot be."""
        scheme, _, token = header.partition(" ")
        if scheme != "Basic" and scheme.lower() != "basic":
            raise BadCredentials
        try:
            raw = a2b_base64(token.strip(), strict_mode=True)
            name, colon, password = raw.partition(b":")
            if colon:
                return cls(name.decode(), password, raw)
        except ValueError:  # its text would quote the bytes, and those are a secret
            pass
        raise BadCredentials

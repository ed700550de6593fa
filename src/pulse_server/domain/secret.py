"""The secret of a queue, and what is derived from it: a value for each purpose. ADR-0084

It is a row of pulse.cluster_secret, which only roles that serve can read. Values of one purpose reveal
nothing about those of another.
"""

from __future__ import annotations

import hmac
from hashlib import sha256

# Of a derived value. Half of a SHA-256, because a caller who knows a whole one can continue it.
_BYTES = 16
_SEAL_CHARACTERS = 2 * _BYTES


def completion_key(secret: bytes, worker_id: str) -> bytes:
    """The key that a worker gets with its stream. The worker id is as it is stored.

    From it the SDK makes the token of a claim, which pulse.complete_job computes and compares.
    """
    return _derived(b"completion:", secret, worker_id.encode())


class Seal:
    """Names the channel between the servers of a queue, and seals their messages.

    Any role of the database can notify on any channel whose name it knows. Without the secret it can neither
    make a message that opens, nor send one again: a seal is good for one session of the database.
    """

    def __init__(self, secret: bytes) -> None:
        self.channel = f"pulse_{_derived(b'channel:', secret).hex()}"
        self._key = _derived(b"messages:", secret)

    def sealed(self, message: str, pid: int) -> str:
        """The message as the session with this process id may send it."""
        return self._seal(message, pid) + message

    def opened(self, payload: str, pid: int) -> str | None:
        """The message that the session with this process id has sent. None: it is no server's."""
        message = payload[_SEAL_CHARACTERS:]
        seal = payload[:_SEAL_CHARACTERS].encode()
        return message if hmac.compare_digest(seal, self._seal(message, pid).encode()) else None

    def _seal(self, message: str, pid: int) -> str:
        return hmac.digest(self._key, f"{pid}:{message}".encode(), "sha256")[:_BYTES].hex()


def _derived(purpose: bytes, secret: bytes, name: bytes = b"") -> bytes:
    return sha256(purpose + secret + name).digest()[:_BYTES]

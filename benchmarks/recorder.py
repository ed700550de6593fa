"""What a worker process tells its observer, through a mapped file: a hit costs a fraction of a microsecond.

Layout: count (u64), connected (u64), then pairs of doubles (submitted, started), in seconds of one clock.
"""

from __future__ import annotations

import mmap
import struct
import uuid
from pathlib import Path

_CAPACITY = 1_200_000
_HEADER = struct.Struct("<QQ")
_PAIR = struct.Struct("<dd")
_COUNT = struct.Struct("<Q")


class Recording:
    def __init__(self, path: Path) -> None:
        self.path = path
        with path.open("r+b") as file:
            self._map = mmap.mmap(file.fileno(), 0)
        self._hits = 0

    @classmethod
    def create(cls, folder: Path) -> Recording:
        path = folder / f"recording-{uuid.uuid4().hex[:8]}"
        with path.open("wb") as file:
            file.truncate(_HEADER.size + _CAPACITY * _PAIR.size)
        return cls(path)

    def connected(self) -> None:
        _COUNT.pack_into(self._map, 8, 1)

    def hit(self, submitted: float, started: float) -> None:
        _PAIR.pack_into(self._map, _HEADER.size + self._hits * _PAIR.size, submitted, started)
        self._hits += 1
        _COUNT.pack_into(self._map, 0, self._hits)

    @property
    def is_connected(self) -> bool:
        return bool(_COUNT.unpack_from(self._map, 8)[0])

    @property
    def count(self) -> int:
        return int(_COUNT.unpack_from(self._map, 0)[0])

    def pairs(self) -> list[tuple[float, float]]:
        end = _HEADER.size + self.count * _PAIR.size
        return [(a, b) for a, b in _PAIR.iter_unpack(self._map[_HEADER.size : end])]

    def close(self) -> None:
        self._map.close()
        self.path.unlink()

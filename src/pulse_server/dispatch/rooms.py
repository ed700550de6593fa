"""Finds who has the most room without looking at everyone: items in classes, by powers of two. ADR-0044"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Generic, TypeVar

Item = TypeVar("Item")

# Of those with about as much room so many are compared. Up to here the order is exact.
COMPARED = 8


class Rooms(Generic[Item]):
    """Those that have room. Within a class the one that was filed, or had a turn, last comes last."""

    __slots__ = ("_class_of", "_classes")

    def __init__(self) -> None:
        self._classes: dict[int, dict[Item, None]] = {}
        self._class_of: dict[Item, int] = {}

    def __bool__(self) -> bool:
        return bool(self._class_of)

    @property
    def largest(self) -> int:
        """The class of the one with the most room; 0 if none has any."""
        return max(self._classes, default=0)

    @property
    def only(self) -> Item | None:
        """The one that has room, if there is no other."""
        return next(iter(self._class_of)) if len(self._class_of) == 1 else None

    def file(self, item: Item, room_class: int) -> None:
        """Put the item at the end of its class. Class 0 is no room."""
        if room_class == self._class_of.get(item, 0) and len(self._class_of) < 2:
            return
        self.remove(item)
        if room_class:
            self._class_of[item] = room_class
            self._classes.setdefault(room_class, {})[item] = None

    def remove(self, item: Item) -> None:
        if (room_class := self._class_of.pop(item, 0)) == 0:
            return
        members = self._classes[room_class]
        del members[item]
        if not members:
            del self._classes[room_class]

    def had_a_turn(self, item: Item) -> None:
        """Let the others of its class come first."""
        self.file(item, self._class_of.get(item, 0))

    def a_few(self) -> list[Item]:
        """Of those with the most room as many as are compared."""
        return list(islice(self._classes[self.largest], COMPARED)) if self._classes else []

    def roomiest_first(self, room: Callable[[Item], int]) -> Iterator[Item]:
        """All of them, as they are asked for. Nothing may be filed meanwhile."""
        if len(self._class_of) == 1:
            yield from self._class_of
            return
        for room_class in sorted(self._classes, reverse=True):
            members = iter(self._classes[room_class])
            while compared := list(islice(members, COMPARED)):
                yield from sorted(compared, key=room, reverse=True)


def class_of(room: int) -> int:
    """1, 2 to 3, 4 to 7, 8 to 15: within a class none has twice as much room as another."""
    return room.bit_length()

"""The names of steps and signals: which steps an attempt has used, and where."""

from __future__ import annotations

from typing import NamedTuple

from pulse.errors import InvalidArgument, SignalTimeout
from pulse.messages import check_unicode

LONGEST_NAME = 200


class Mark(NamedTuple):
    """The names that were in use when a part of the attempt began."""

    places: dict[str, str]
    sleeps: int


AT_THE_START = Mark({}, 0)


class Signals(NamedTuple):
    """The signals that a step waits for: one, or any of several."""

    names: tuple[str, ...]
    is_any: bool

    @property
    def verb(self) -> str:
        """The call in the handler, for messages."""
        return f"ctx.wait_for{'_any' * self.is_any}({', '.join(map(repr, self.names))})"

    @property
    def step(self) -> str:
        """The name of the step that waits for them."""
        return " or ".join(self.names)

    @property
    def lines(self) -> str:
        """The names, one in each line."""
        return "\n".join(self.names)

    def timed_out(self) -> SignalTimeout:
        """Return the error for a signal that did not come in time."""
        names = " or ".join(map(repr, self.names))
        return SignalTimeout(f"The signal {names} did not come in time.")


class StepNames:
    """The names that one attempt has used. Each may be used once."""

    def __init__(self) -> None:
        self.places: dict[str, str] = {}
        """Where each name is used, as file:line."""
        self._sleeps = 0
        self._asked: set[str] = set()

    def take(self, place: str, name: str, index: int | None) -> str:
        """Return the name under which a step is stored. Raises InvalidArgument if the attempt has used it."""
        own = stored_name(name, index)
        if own in self.places:
            raise InvalidArgument(
                f"Step {own!r} is used twice in one attempt: at {self.places[own]} and at {place}. Give "
                "each a name of its own, and in a loop an index: ctx.step(name, function, …, index=i)."
            )
        self.places[own] = place
        return own

    def take_sleep(self, place: str) -> str:
        """Return the name of a sleep that was given none. These are numbered."""
        self._sleeps += 1
        return self.take(place, "sleep", self._sleeps if self._sleeps > 1 else None)

    def mark(self) -> Mark:
        """Return the names that are in use now."""
        return Mark(dict(self.places), self._sleeps)

    def rewind(self, mark: Mark) -> None:
        """Let the names that were used since the mark be used again."""
        self._asked.update(self.places)
        self.places, self._sleeps = dict(mark.places), mark.sleeps

    def has_asked_for(self, name: str) -> bool:
        """Whether the attempt has used this name, also before it was rewound."""
        return name in self.places or name in self._asked


def stored_name(name: str, index: int | None) -> str:
    """Return the name under which a step is stored. Raises InvalidArgument if it cannot be one."""
    if not isinstance(name, str) or not 0 < len(name) <= LONGEST_NAME - 20 or "#" in name:
        raise InvalidArgument(
            f"{name!r} cannot be the name of a step: use a text of up to {LONGEST_NAME - 20} characters, "
            "without #."
        )
    check_unicode("The name", name)
    if index is None:
        return name
    if not isinstance(index, int) or isinstance(index, bool):
        raise InvalidArgument(f"The index of step {name!r} has to be a number, not {index!r}.")
    return f"{name}#{index}"


def check_signals(names: tuple[str, ...], *, is_any: bool) -> Signals:
    """Return the signals to wait for. Raises InvalidArgument for an invalid name."""
    if is_any and not names:
        raise InvalidArgument("ctx.wait_for_any() takes the names of signals: none was given.")
    for name in names:
        stored_name(name, None)
        if "\n" in name:
            raise InvalidArgument(f"{name!r} cannot be the name of a signal: leave out the line break.")
    return Signals(tuple(dict.fromkeys(names)), is_any)

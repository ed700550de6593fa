"""Shorthands for workflows: `chain` and `group`, made of signatures of handlers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Generic, Protocol, TypeVar

from pulse.errors import InvalidArgument
from pulse.handlers.handler import Handler
from pulse.handlers.workflows import Node
from pulse.jobs.submissions import EnqueueOptions

R = TypeVar("R", covariant=True)


class Draft(Protocol):
    """A workflow that is being written."""

    def add(self, job: Any, /, *, after: Any = ()) -> Node[Any]: ...


class Pattern:
    """Jobs and their order: a signature, a chain or a group."""

    def then(self, *patterns: Pattern) -> Chain:
        """Return the chain of this and the patterns: each waits for all ends of the one before."""
        return chain(self, *patterns)

    def _add_to(self, draft: Draft, after: Sequence[Node[Any]]) -> list[Node[Any]]:
        """Add the jobs. Those at the start wait for `after`. Returns those at the end."""
        raise NotImplementedError

    def _topics(self) -> Iterator[str]:
        raise NotImplementedError


class Signature(Pattern, Generic[R]):
    """A handler with its arguments and options, as `job.s(…)` makes it. `R` is the type of its result."""

    def __init__(self, handler: Handler, payload: bytes, options: EnqueueOptions) -> None:
        self.topic = handler.topic
        self._handler = handler
        self._payload = payload
        self._options = options

    def _add_to(self, draft: Draft, after: Sequence[Node[Any]]) -> list[Node[Any]]:
        return [draft.add(self, after=after)]

    def _topics(self) -> Iterator[str]:
        yield self.topic

    def __repr__(self) -> str:
        return f"<Signature {self.topic!r}>"


class _Several(Pattern):
    def __init__(self, patterns: Sequence[Pattern]) -> None:
        self._patterns = patterns
        if not patterns:
            raise InvalidArgument(f"A {self._word} needs a job at the least: give it signatures, job.s(…).")
        for pattern in patterns:
            if not isinstance(pattern, Pattern):
                raise InvalidArgument(
                    f"A {self._word} is made of signatures, job.s(…), chains and groups, not of {pattern!r}."
                )

    @property
    def _word(self) -> str:
        return type(self).__name__.lower()

    def _topics(self) -> Iterator[str]:
        for pattern in self._patterns:
            yield from pattern._topics()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {', '.join(self._topics())}>"


class Chain(_Several):
    """Patterns that run one after the other."""

    def _add_to(self, draft: Draft, after: Sequence[Node[Any]]) -> list[Node[Any]]:
        ends = list(after)
        for pattern in self._patterns:
            ends = pattern._add_to(draft, ends)
        return ends


class Group(_Several):
    """Patterns that run beside each other."""

    def _add_to(self, draft: Draft, after: Sequence[Node[Any]]) -> list[Node[Any]]:
        return [node for pattern in self._patterns for node in pattern._add_to(draft, after)]


def chain(*patterns: Pattern) -> Chain:
    """Return jobs that run one after the other: `pulse.chain(fetch.s(url), parse.s(), store.s())`.

    `await p.start(…)` stores it. A job reads the result of the one before from `ctx.parents`.
    """
    return Chain(patterns)


def group(*patterns: Pattern | Iterable[Pattern]) -> Group:
    """Return jobs that run beside each other: `pulse.group(resize.s(i) for i in images).then(collage.s())`.

    It takes signatures, chains and groups, or one iterable of them.
    """
    if len(patterns) == 1 and not isinstance(patterns[0], Pattern) and isinstance(patterns[0], Iterable):
        return Group(list(patterns[0]))
    return Group(patterns)  # type: ignore[arg-type]  # it checks them

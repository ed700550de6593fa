"""Acts on single jobs, a few at a time. A refusal does not stop the rest."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

import pulse
from pulse_ui import tuning
from pulse_ui.views.words import count, plural

_REASONS_SHOWN = 2

Act = Callable[[str], Awaitable[object]]


@dataclass(slots=True)
class Outcome:
    """The result of an action on single jobs."""

    done: int = 0
    refused: list[str] = field(default_factory=list)
    """The reason of each refusal."""
    failure: pulse.PulseError | None = None
    """Why it ended early."""
    untried: int = 0

    @property
    def is_good(self) -> bool:
        return not self.refused and self.failure is None

    def sentence(self, done_word: str) -> str:
        """Return the result as sentences."""
        said = [f"{plural(self.done, 'job')} {'was' if self.done == 1 else 'were'} {done_word}."]
        if self.refused:
            shown = self.refused[:_REASONS_SHOWN]
            more = len(self.refused) - len(shown)
            said.append(f"{count(len(self.refused))} were refused: {' '.join(shown)}")
            said += [f"And {count(more)} more."] if more else []
        if self.failure is not None:
            said.append(f"Then: {self.failure} {count(self.untried)} were not tried, or got no response.")
        return " ".join(said)


async def act_on_each(ids: Sequence[str], act: Act) -> Outcome:
    """Act on each. Raises the error that ended it early, unless a job was changed before."""
    outcome = Outcome()

    async def act_on_one(job_id: str) -> None:
        if outcome.failure is not None:
            outcome.untried += 1
            return
        try:
            await act(job_id)
            outcome.done += 1
        except (pulse.InvalidTransition, pulse.NotFound) as error:
            outcome.refused.append(str(error))
        except pulse.PulseError as error:
            outcome.failure = error
            outcome.untried += 1

    await each(ids, act_on_one)
    if outcome.failure is not None and not outcome.done and not outcome.refused:
        raise outcome.failure
    return outcome


async def each(ids: Sequence[str], act: Callable[[str], Awaitable[None]]) -> None:
    """Act on each, a few at a time."""
    turn = asyncio.Semaphore(tuning.CALLS_AT_ONCE)

    async def one(job_id: str) -> None:
        async with turn:
            await act(job_id)

    await asyncio.gather(*map(one, ids))

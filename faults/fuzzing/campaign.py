"""Rounds of inputs against one server: every RPC in turn, then inputs that belong to none."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import asyncpg
from hypothesis.strategies import SearchStrategy

from faults.fuzzing.acquaintances import Acquaintances
from faults.fuzzing.callers import credentials_of
from faults.fuzzing.client import Client, Run, running_client
from faults.fuzzing.contract import RPCS
from faults.fuzzing.inputs import Input
from faults.fuzzing.making import Making, oversize
from faults.fuzzing.searching import Finding, Volley, search
from faults.fuzzing.seeding import refresh
from faults.fuzzing.tally import Tally
from pulse_server.access.users import Role
from tests.postgres.sessions import Connection

# Beside the volleys of each RPC: how many times as many belong to no RPC.
_MISPLACED, _WIRES = 12, 16
_OVERSIZE_EVERY_ROUNDS = 20
# The seeded jobs are restored after each group of this many RPCs.
_REFRESH_EVERY = 4


@dataclass(frozen=True)
class Plan:
    """The work of one client: a minimum of inputs, in rounds of this many volleys for each RPC."""

    address: str
    dsn: str
    seed: int
    inputs: int
    volleys: int
    guarded: bool = False


class Campaign:
    """Sends inputs until there are enough, or one gets a bad answer."""

    def __init__(
        self, plan: Plan, known: Acquaintances, client: Client, run: Run, database: Connection
    ) -> None:
        self._plan = plan
        self._known = known
        self._client = client
        self._run = run
        self._database = database
        self._making = Making(known, guarded=plan.guarded)
        self._searches = 0

    @property
    def tally(self) -> Tally:
        return self._client.tally

    def attack(self, report: Callable[[Tally], None]) -> list[Finding]:
        """Send at least one round of inputs. Reports the counts after each part of it."""
        for rounds in itertools.count():
            findings = self.send(oversize()) if rounds % _OVERSIZE_EVERY_ROUNDS == 0 else []
            findings += self._round(report)
            findings += _as_finding((), self._run(self._client.look_after()))
            if findings or self.tally.inputs >= self._plan.inputs:
                return findings
        raise AssertionError("the loop ends only by a return")

    def send(self, volley: Volley) -> list[Finding]:
        """Send exactly these."""
        return _as_finding(volley, self._shoot(volley))

    def _round(self, report: Callable[[Tally], None]) -> list[Finding]:
        volleys, making = self._plan.volleys, self._making
        searches = [(making.about(rpc), volleys) for rpc in RPCS]
        searches += [(making.misplaced(), volleys * _MISPLACED), (making.wires(), volleys * _WIRES)]
        findings = []
        for inputs, count in searches:
            finding = self._search(inputs, count)
            findings += [finding] if finding is not None else []
            report(self.tally)
        return findings

    def _search(self, inputs: SearchStrategy[Input], volleys: int) -> Finding | None:
        if self._searches % _REFRESH_EVERY == 0:
            self._run(refresh(self._database, self._known))
        self._searches += 1
        number = self._plan.seed * 1_000_003 + self._searches
        return search(inputs, self._shoot, volleys=volleys, number=number)

    def _shoot(self, volley: Volley) -> Sequence[str]:
        return self._run(self._client.shoot(volley))


@contextmanager
def campaign(plan: Plan) -> Iterator[Campaign]:
    """A client of the server and of its database."""
    known = Acquaintances(plan.seed)
    login = credentials_of(Role.ADMIN) if plan.guarded else ()
    with running_client(plan.address, known, login) as (client, run):
        database: Connection = run(asyncpg.connect(plan.dsn))
        try:
            yield Campaign(plan, known, client, run, database)
        finally:
            run(database.close())


def _as_finding(volley: Sequence[Input], wrong: Sequence[str]) -> list[Finding]:
    return [Finding(tuple(volley), tuple(wrong))] if wrong else []

"""A Patroni cluster of three machines: its leader, its standbys, and sessions to them."""

from __future__ import annotations

import asyncio
import json
import secrets
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from datetime import datetime
from pathlib import Path
from typing import Any, TypeVar

import asyncpg

from faults.ha import templates
from faults.ha.addresses import MACHINES, free_addresses
from faults.ha.machine import Machine
from faults.ha.programs import Programs

DATABASE = "pulse"
_PATIENCE_SECONDS = 180.0
_POLL_SECONDS = 0.02
_LOOK_SECONDS = 0.5
# The last one: a session that was ended while it was idle.
_AWAY = (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, asyncpg.InternalClientError)

Answer = TypeVar("Answer")


class Cluster:
    def __init__(self, directory: Path, programs: Programs) -> None:
        self._programs = programs
        self._passwords = templates.new_secrets()
        self._password = secrets.token_urlsafe(16)
        addresses = free_addresses()
        self.machines = [Machine(name, addresses, directory, programs, self._passwords) for name in addresses]

    @property
    def dsn(self) -> str:
        """The DB_HOST of pulsed: every machine."""
        hosts = ",".join(f"{machine.address}:{templates.PORTS['Postgres']}" for machine in self.machines)
        return f"postgresql://{DATABASE}:{self._password}@{hosts}/{DATABASE}"

    async def begin(self) -> Machine:
        """Start everything; return the leader once the others replicate, one of them synchronously."""
        for machine in self.machines:
            machine.start_etcd()
        for machine in self.machines:
            machine.start_patroni()
        leader = await self.is_whole()
        async with self.session(leader) as connection:
            await connection.execute(f"CREATE ROLE {DATABASE} LOGIN PASSWORD '{self._password}'")
            await connection.execute(f"CREATE DATABASE {DATABASE} OWNER {DATABASE}")
        return leader

    def end(self) -> None:
        for machine in self.machines:
            machine.end()

    async def is_whole(self) -> Machine:
        """Return the leader once all machines are up and one of the others is the synchronous standby."""
        return await _eventually(self._leader_of_all, "the cluster is whole again", _LOOK_SECONDS)

    async def promoted_instead_of(self, *machines: Machine) -> tuple[Machine, datetime]:
        """Return which of the others became the primary, and when by its own clock."""
        others = [machine for machine in self.machines if machine not in machines]
        question = "SELECT clock_timestamp() WHERE NOT pg_is_in_recovery()"
        watching = {asyncio.create_task(self._answer_of(machine, question)): machine for machine in others}
        try:
            done, _ = await asyncio.wait(watching, return_when=asyncio.FIRST_COMPLETED)
            first = done.pop()
            return watching[first], first.result()
        finally:
            for task in watching:
                task.cancel()
            await asyncio.gather(*watching, return_exceptions=True)

    async def has_stepped_down(self, leader: Machine) -> None:
        """Return once the leader is a standby, though there is no other leader to follow."""
        await self._answer_of(leader, "SELECT clock_timestamp() WHERE pg_is_in_recovery()")

    async def in_step_instead_of(self, standby: Machine, leader: Machine) -> tuple[Machine, datetime]:
        """Return the new synchronous standby, and when it became so by the leader's clock."""
        (other,) = [machine for machine in self.machines if machine not in (standby, leader)]
        question = (
            "SELECT clock_timestamp() FROM pg_stat_replication "
            f"WHERE sync_state = 'sync' AND application_name = '{other.name}'"
        )
        return other, await self._answer_of(leader, question)

    async def synchronous_standby(self) -> Machine:
        """Return the standby that has every acknowledged commit."""
        members = await self._members() or []
        (name,) = [member["name"] for member in members if member["role"] == "sync_standby"]
        (standby,) = [machine for machine in self.machines if machine.name == name]
        return standby

    async def _answer_of(self, machine: Machine, question: str) -> datetime:
        """Return the answer once there is one, however often the machine goes away meanwhile."""

        async def look() -> datetime | None:
            with suppress(*_AWAY):
                async with self.session(machine) as connection:
                    while not (at := await connection.fetchval(question, timeout=5)):  # noqa: ASYNC110
                        await asyncio.sleep(_POLL_SECONDS)
                    found: datetime = at
                    return found
            return None

        return await _eventually(look, f"{machine.name} answers: {question}", _POLL_SECONDS)

    async def switch_over(self, leader: Machine) -> None:
        """Ask Patroni to make the synchronous standby the leader, as an operator does."""
        candidate = await self.synchronous_standby()
        command = [self._programs.patronictl, "-c", str(leader.configuration), "switchover", "--force"]
        command += ["--leader", leader.name, "--candidate", candidate.name]
        asked = await asyncio.to_thread(
            subprocess.run,
            command,
            # Only the settings of Patroni, none of ours.
            env={**leader.patroni_settings, "LC_ALL": "C.UTF-8", "PATH": "/usr/bin:/bin"},
            capture_output=True,
            text=True,
            timeout=_PATIENCE_SECONDS,
            check=False,
        )
        assert asked.returncode == 0, asked.stdout + asked.stderr

    @asynccontextmanager
    async def session(
        self, machine: Machine, database: str = "postgres"
    ) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
        """A session of the superuser."""
        connection = await asyncpg.connect(
            host=machine.address,
            port=templates.PORTS["Postgres"],
            user="postgres",
            password=self._passwords["PATRONI_SUPERUSER_PASSWORD"],
            database=database,
            timeout=5,
        )
        try:
            yield connection
        finally:
            connection.terminate()

    async def _leader_of_all(self) -> Machine | None:
        members = await self._members()
        if not members or {member["state"] for member in members} - {"running", "streaming"}:
            return None
        by_role = {member["role"]: member["name"] for member in members}
        if len(members) < MACHINES or not {"leader", "sync_standby"} <= by_role.keys():
            return None
        (leader,) = [machine for machine in self.machines if machine.name == by_role["leader"]]
        with suppress(*_AWAY):
            async with self.session(leader) as connection:
                # Patroni reports that a standby runs, not that it replicates.
                following = await connection.fetchval("SELECT count(*) FROM pg_stat_replication")
                return leader if following == MACHINES - 1 else None
        return None

    async def _members(self) -> list[dict[str, Any]] | None:
        """Return the members, from the first Patroni that answers."""
        for machine in self.machines:
            if machine.is_frozen:
                continue
            with suppress(OSError, ValueError):
                return await asyncio.to_thread(_ask_patroni, machine.address)
        return None


def _ask_patroni(address: str) -> list[dict[str, Any]]:
    with urllib.request.urlopen(
        f"http://{address}:{templates.PORTS['Patroni']}/cluster", timeout=5
    ) as answer:
        members: list[dict[str, Any]] = json.load(answer)["members"]
        return members


async def _eventually(
    look: Callable[[], Awaitable[Answer | None]], what: str, pause_seconds: float
) -> Answer:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while not (answer := await look()):
        assert time.monotonic() < deadline, f"this did not happen within {_PATIENCE_SECONDS:.0f} s: {what}"
        await asyncio.sleep(pause_seconds)
    return answer

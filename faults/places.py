"""Places for processes: in each, one process after the other is started, killed, frozen and restarted."""

from __future__ import annotations

import signal
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from faults.history import History
from pulse.failpoints import SEED_VARIABLE, VARIABLE
from tests.eventually import eventually
from tests.system.stage import Process

SKEW, FAILPOINTS = "skew", "failpoints"


@dataclass(frozen=True)
class Life:
    """How a process is started."""

    seconds_ahead: int = 0  # of its wall clock
    failpoints: str = ""
    replica: str = ""  # that a worker connects to
    keeps_name: bool = False  # a worker's: it has the worker_id of the one before it
    concurrency: int = 3

    def __str__(self) -> str:
        parts = [f"clock {self.seconds_ahead:+d} s"] if self.seconds_ahead else []
        parts += [f"at {self.replica}"] if self.replica else []
        parts += ["same name"] if self.keeps_name else []
        parts += [self.failpoints] if self.failpoints else []
        return f"({', '.join(parts)})" if parts else "plain"

    @property
    def oddities(self) -> dict[str, dict[str, Any]]:
        """The faults that it has from the start, by kind."""
        odd: dict[str, dict[str, Any]] = {}
        if self.seconds_ahead:
            odd[SKEW] = {"seconds_ahead": self.seconds_ahead}
        if self.failpoints:
            odd[FAILPOINTS] = {"points": self.failpoints}
        return odd


PLAIN = Life()


@dataclass
class Ground:
    """What all places share."""

    directory: Path
    history: History
    seed: int
    is_control: bool = False  # handlers do not use ctx.complete
    failures: list[str] = field(default_factory=list)  # what no process may do, under any fault
    attachments: dict[str, str] = field(default_factory=dict)  # which server each worker connects to

    @property
    def events(self) -> Path:
        return self.directory / "history"


class Place:
    """Holds one process at a time."""

    def __init__(self, name: str, ground: Ground) -> None:
        self.name = name
        self.process: Process | None = None
        self.lives: list[Process] = []
        self.is_wanted = False
        self.is_frozen = False
        self._ground = ground
        self.life = PLAIN

    # ------------------------------------------------------------ from life to life

    def begin(self, life: Life = PLAIN) -> None:
        """Start a process here. Returns at once."""
        assert self.process is None, f"{self.name} is taken"
        name = f"{self.name}.{len(self.lives) + 1}"
        self.life = life
        self.process = self._start(name, self._ground.directory / f"{name}.log", life)
        self.lives.append(self.process)
        self.is_wanted = True
        self._ground.history.write("began", target=name, **self._facts(life))
        for kind, facts in life.oddities.items():
            self._ground.history.write("fault", kind=kind, target=name, **facts)

    def kill(self) -> None:
        """SIGKILL the process, if there is one."""
        self.is_wanted = False
        if self.process is not None:
            self._ground.history.write("ending", target=self.process.name)
            self.process.kill()
            self.bury()

    async def stop(self, patience_seconds: float = 30) -> None:
        """SIGTERM the process. Before it handles signals, it dies of it; that is allowed."""
        self.is_wanted = False
        process = self.process
        if process is None:
            return
        listens = self.is_up
        self._ground.history.write("ending", target=process.name)
        process.signal(signal.SIGTERM)
        try:
            await eventually(lambda: not process.is_running, "it ends", patience_seconds)
        except AssertionError:
            self._ground.failures.append(f"{process.name} did not stop within {patience_seconds} s.")
        code = await process.ended() if not process.is_running else None
        if listens and code not in (0, None):
            self._ground.failures.append(f"{process.name} received SIGTERM and exited with {code}.")
        self.kill()

    def freeze(self) -> None:
        self.is_frozen = True
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)
        self.is_frozen = False

    def disarm(self) -> None:
        """Record that the armed failpoint has acted."""
        if self.life.failpoints:
            self._ground.history.write("healed", kind=FAILPOINTS, target=self.present_name)
            self.life = replace(self.life, failpoints="")

    def bury(self) -> None:
        """Record that the process is gone."""
        assert self.process is not None
        assert not self.process.is_running
        self._ground.history.write("gone", target=self.process.name)
        for kind in self.life.oddities:
            self._ground.history.write("healed", kind=kind, target=self.process.name)
        self.process = None
        self.is_frozen = False

    # ------------------------------------------------------------ how it is

    @property
    def present_name(self) -> str:
        """The name of the present or last process, under which it writes its history."""
        return f"{self.name}.{len(self.lives)}"

    @property
    def was_up(self) -> bool:
        return self.process is not None and self._says_so(self.process)

    @property
    def is_armed(self) -> bool:
        return self.process is not None and bool(self.life.failpoints)

    @property
    def has_ended_itself(self) -> bool:
        return self.is_wanted and self.process is not None and not self.process.is_running

    @property
    def is_up(self) -> bool:
        """Whether the process handles signals."""
        return self.process is not None and self.process.is_running and self.was_up

    @property
    def has_stopped_itself(self) -> bool:
        """Whether a failpoint sent it SIGSTOP."""
        if self.process is None or self.is_frozen or not self.life.failpoints:
            return False
        try:
            fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return False
        return fields[0] == "T"

    def _signal(self, number: signal.Signals) -> None:
        if self.process is not None:
            self.process.signal(number)

    def _start(self, name: str, log: Path, life: Life) -> Process:
        raise NotImplementedError

    def _facts(self, life: Life) -> dict[str, Any]:
        """The fields of its `began` event."""
        return {}

    def _says_so(self, process: Process) -> bool:
        raise NotImplementedError

    def _environment(self, life: Life) -> dict[str, str]:
        if not life.failpoints:
            return {}
        return {
            VARIABLE: life.failpoints,
            SEED_VARIABLE: f"{self._ground.seed} {self.name} {len(self.lives)}",
        }

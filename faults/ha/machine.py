"""One machine of the cluster: an etcd, a Patroni and its Postgres, at an address of their own."""

from __future__ import annotations

import os
import platform
import pwd
import signal
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from faults.ha import templates
from faults.ha.programs import Programs
from pulse_server.embedded.cluster import read_postmaster
from pulse_server.embedded.processes import Child, Identity, Launcher
from tests.server.outage_postgres import children_of

# etcd of Debian 12 starts on these platforms only with this variable: they are unsupported.
_UNSUPPORTED = {"aarch64": "arm64", "riscv64": "riscv64", "s390x": "s390x", "ppc64le": "ppc64le"}


def unprivileged() -> Identity:
    """The current account, or one without privileges instead of root: Postgres refuses to run as root."""
    if os.geteuid() != 0:
        return Identity("self", os.geteuid(), os.getegid())
    for name in ("postgres", "nobody"):
        with suppress(KeyError):
            account = pwd.getpwnam(name)
            return Identity(f"account:{account.pw_uid}:{account.pw_gid}", account.pw_uid, account.pw_gid)
    raise LookupError("there is neither an account postgres nor an account nobody to run Postgres as")


class Machine:
    """Its processes run without privileges, and end with this one."""

    def __init__(
        self,
        name: str,
        addresses: Mapping[str, str],
        directory: Path,
        programs: Programs,
        passwords: Mapping[str, str],
    ) -> None:
        self.name = name
        self.address = addresses[name]
        self.directory = directory / name
        self._programs = programs
        self._launcher = Launcher(unprivileged(), "signal")
        variables = templates.variables(name, addresses, self.directory, programs.postgres)
        self._etcd_settings = templates.filled("etcd.env.in", variables) | _of_this_platform()
        self.patroni_settings = {**templates.filled("patroni.env.in", variables), **passwords}
        self._data = Path(variables["POSTGRES_DATA"])
        self._etcd: Child | None = None
        self._patroni: Child | None = None
        self._frozen: list[int] = []
        self.directory.mkdir(0o700)
        self.configuration = templates.patroni_configuration(self.directory)
        for path in (self.directory, *self.directory.rglob("*")):
            os.chown(path, self._launcher.identity.uid, self._launcher.identity.gid)

    @property
    def is_frozen(self) -> bool:
        return bool(self._frozen)

    def start_etcd(self) -> None:
        self._etcd = self._spawn("etcd", [self._programs.etcd], self._etcd_settings)

    def start_patroni(self) -> None:
        """Start Patroni, which makes a Postgres of what it finds: a new cluster, a standby, or the leader."""
        self._patroni = self._spawn(
            "patroni", [self._programs.patroni, str(self.configuration)], self.patroni_settings
        )

    def kill(self) -> None:
        """SIGKILL Patroni and every process of Postgres. etcd goes on."""
        self._kill(self._patroni)

    def kill_postgres(self) -> None:
        """SIGKILL every process of Postgres. Patroni detects it."""
        self._kill()

    def freeze(self) -> None:
        """SIGSTOP everything, etcd as well, like a paused virtual machine."""
        self._halt(self._etcd, self._patroni)

    def freeze_etcd(self) -> None:
        """SIGSTOP etcd alone."""
        if self._etcd is not None:
            self._stop_one(self._etcd.process.pid)

    def thaw(self) -> None:
        for pid in self._frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)
        self._frozen = []

    def end(self) -> None:
        """SIGKILL everything: its data is removed with its directory."""
        self._kill(self._etcd, self._patroni)

    def log(self, program: str) -> str:
        path = self.directory / f"{program}.log"
        return path.read_text(errors="replace") if path.exists() else ""

    def _kill(self, *children: Child | None) -> None:
        self._halt(*children)
        for pid in self._frozen:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self._frozen = []
        for child in filter(None, children):
            child.stop(())

    def _halt(self, *children: Child | None) -> None:
        """SIGSTOP parents first, so that they start no children meanwhile."""
        for child in children:
            if child is not None and child.is_running:
                self._stop_one(child.process.pid)
                for pid in children_of(child.process.pid):
                    self._stop_one(pid)
        for pid in self._postgres_processes():
            self._stop_one(pid)

    def _stop_one(self, pid: int) -> None:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
            self._frozen.append(pid)

    def _postgres_processes(self) -> list[int]:
        server = read_postmaster(self._data)
        if server is None:
            return []
        with suppress(ProcessLookupError, FileNotFoundError):
            os.kill(server.pid, signal.SIGSTOP)
            return [server.pid, *children_of(server.pid)]
        return []

    def _spawn(self, name: str, command: list[str], settings: Mapping[str, str]) -> Child:
        log = os.open(self.directory / f"{name}.log", os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            # The Python of Debian's Patroni must not import our packages.
            environment = {**settings, "PYTHONPATH": "", "HOME": str(self.directory)}
            return self._launcher.spawn(command, self.directory, output=log, environment=environment)
        finally:
            os.close(log)


def _of_this_platform() -> dict[str, str]:
    name = _UNSUPPORTED.get(platform.machine())
    return {} if name is None else {"ETCD_UNSUPPORTED_ARCH": name}

"""The systemd units: what they start, and how they stop it."""

import shlex
from configparser import RawConfigParser
from pathlib import Path

from pulse.supervision.supervised import STOP_GRACE_SECONDS
from pulse.tuning import DEFAULT_DRAIN_SECONDS
from pulse_cli.program import pulse as program
from pulse_server.settings import Settings
from pulse_server.supervisor import longest_drain
from pulse_ui.tuning import STOP_GRACE
from tests.cli.reading import nothing_runs
from tests.deploy.deployment_files import DEPLOY, assignments
from tests.rows import each_row

SYSTEMD = DEPLOY / "systemd"
UNITS = sorted(SYSTEMD.glob("*.service"))
UNITS_OF_THE_SERVER = sorted(SYSTEMD.glob("pulsed*.service"))
LONGEST_STOP = longest_drain(Settings("[::]:50051", "postgres://pulse@localhost/pulse")).total_seconds()


def directives(path: Path) -> dict[str, list[str]]:
    """Each directive of [Service] with its values; a unit may repeat one."""
    found: dict[str, list[str]] = {}
    for line in path.read_text(encoding="utf-8").splitlines():
        name, equals, value = line.partition("=")
        if equals and not line.startswith("#"):
            found.setdefault(name, []).append(value)
    return found


def test_units_are_well_formed() -> None:
    for path in [*UNITS, *SYSTEMD.glob("*.service.d/*.conf")]:
        RawConfigParser(strict=False).read_string(path.read_text(encoding="utf-8"))


def test_systemd_waits_longer_than_a_server_drains() -> None:
    (waits,) = directives(SYSTEMD / "pulsed.service")["TimeoutStopSec"]
    assert int(waits) > LONGEST_STOP


def test_systemd_asks_the_server_alone_to_stop() -> None:
    """To a child, or to the embedded database, a SIGTERM of its own would come too early."""
    assert directives(SYSTEMD / "pulsed.service")["KillMode"] == ["mixed"]
    (start,) = directives(SYSTEMD / "pulsed.service")["ExecStart"]
    assert "exec /opt/pulse/bin/pulsed" in start


@each_row("path", UNITS_OF_THE_SERVER)
def test_a_unit_without_its_database_url_does_not_start_a_database_of_its_own(path: Path) -> None:
    (start,) = directives(path)["ExecStart"]
    assert 'test -n "$$DB_HOST" || exit 1' in start
    assert any(value.startswith("database-url:") for value in directives(path)["LoadCredential"])


def test_systemd_waits_longer_than_a_dashboard_takes_to_stop() -> None:
    (waits,) = directives(SYSTEMD / "pulse-ui.service")["TimeoutStopSec"]
    assert int(waits) > STOP_GRACE.total_seconds()


def test_systemd_waits_longer_than_workers_drain() -> None:
    unit = directives(SYSTEMD / "pulse-worker@.service")
    assert int(unit["TimeoutStopSec"][0]) > DEFAULT_DRAIN_SECONDS + STOP_GRACE_SECONDS
    assert unit["KillMode"] == ["mixed"]
    assert unit["ExecReload"] == ["/bin/kill -HUP $MAINPID"]


def test_options_of_the_example_are_those_of_the_command() -> None:
    options = shlex.split(assignments(SYSTEMD / "worker.env.example")["WORKER_OPTIONS"])
    with nothing_runs() as ran:
        program.main(["worker", *options], "pulse", standalone_mode=False)
    assert ran == ["pulse worker"]
    (start,) = directives(SYSTEMD / "pulse-worker@.service")["ExecStart"]
    assert start.endswith("exec /opt/%i/bin/pulse worker $$WORKER_OPTIONS'")


@each_row("path", UNITS)
def test_units_run_as_an_ordinary_user_without_privileges(path: Path) -> None:
    unit = directives(path)
    # Workers run code of their own; it must not reach the memory or the files of the server.
    assert unit["User"] == (["pulse-worker"] if "worker" in path.name else ["pulse"])
    assert unit["CapabilityBoundingSet"] == [""]
    for name in ("NoNewPrivileges", "PrivateTmp", "ProtectHome"):
        assert unit[name] == ["yes"]
    assert unit["ProtectSystem"] == ["strict"]


def test_credentials_that_are_named_are_loaded() -> None:
    for path in [*UNITS, *SYSTEMD.glob("*.service.d/*.conf")]:
        unit = directives(path)
        loaded = {value.partition(":")[0] for value in unit.get("LoadCredential", [])}
        named = {value.partition("=%d/")[2] for value in unit.get("Environment", []) if "=%d/" in value}
        assert named <= loaded, path

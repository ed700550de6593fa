"""Failpoints: what they do when armed, and that they cost nothing otherwise."""

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from pulse import failpoints
from pulse.worker.reporter import Reporter
from pulse.worker.runners import HandlerCalls
from pulse_server.checks import unknown_variables
from pulse_server.failpoints import TABLE
from pulse_server.jobs.store import PostgresJobRepo
from pulse_server.work.worker_rpcs import WorkRpcs
from tests.rows import each_row

SOURCES = Path(failpoints.__file__).parent.parent
Arm = Callable[..., None]


class Unavailable(Exception):
    """Stands for the error that the callers of a point expect."""


@pytest.fixture
def arm(monkeypatch: pytest.MonkeyPatch) -> Arm:
    """Arm points for functions that are decorated afterwards."""

    def arm(text: str, seed: str = "") -> None:
        monkeypatch.setattr(failpoints, "_armed", failpoints.read(text, seed))

    return arm


def python(program: str, **environment: str) -> "subprocess.Popen[str]":
    """Start a process with these variables."""
    return subprocess.Popen(
        [sys.executable, "-c", program],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))} | environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def output(program: str, **environment: str) -> tuple[int, str, str]:
    """Run a program to its end. Returns its exit code and what it printed."""
    process = python(program, **environment)
    printed, complaint = process.communicate(timeout=60)
    return process.returncode, printed, complaint


# ------------------------------------------------------------------ where


def test_point_that_is_not_armed_leaves_the_very_function() -> None:
    async def insert() -> None: ...

    assert failpoints.before("jobs.inserting", Unavailable)(insert) is insert
    assert failpoints.after("jobs.inserted", Unavailable)(insert) is insert
    assert failpoints.after("worker.reported")(insert) is insert


def test_places_in_the_product_are_unwrapped() -> None:
    for place in (PostgresJobRepo.claim_batch, WorkRpcs._write, Reporter._try, HandlerCalls.start):
        assert not hasattr(place, "__wrapped__")


def test_list_of_points_is_what_the_sources_have() -> None:
    placed = {
        name
        for path in SOURCES.rglob("*.py")
        if path.name != "failpoints.py"
        for name in re.findall(r'failpoints\.(?:before|after)\(\s*"([^"]+)"', path.read_text())
    }
    placed |= {name for points in TABLE for name in (points.before, points.after) if name}
    assert placed == failpoints.names().keys()


def test_place_that_the_list_does_not_know_is_a_bug() -> None:
    with pytest.raises(AssertionError, match=r"jobs\.invented"):
        failpoints.before("jobs.invented", Unavailable)(print)
    with pytest.raises(AssertionError, match=r"jobs\.inserted"):  # whose callers know an error
        failpoints.after("jobs.inserted")(print)


def test_migrations_do_not_bring_grpc_along() -> None:
    """A supervisor and `pulsed migrate` import them without gRPC."""
    program = "import sys, pulse_server.database.schema; print('grpc' in sys.modules)"
    assert output(program, PULSE_FAILPOINTS="")[1].strip() == "False"


# ------------------------------------------------------------------ when


def passes_that_raise(passes: int) -> list[int]:
    """Pass a point that often. Returns the numbers of the passes at which it acted."""

    @failpoints.before("jobs.inserting", Unavailable)
    def insert() -> None: ...

    raised = []
    for number in range(1, passes + 1):
        try:
            insert()
        except Unavailable:
            raised.append(number)
    return raised


def test_point_acts_at_each_pass_by_default(arm: Arm) -> None:
    arm("jobs.inserting=error")
    assert passes_that_raise(4) == [1, 2, 3, 4]


def test_point_acts_at_the_nth_pass_only(arm: Arm) -> None:
    arm("jobs.inserting=error@3")
    assert passes_that_raise(10) == [3]


def test_point_acts_by_chance_and_the_seed_decides_when(arm: Arm) -> None:
    chosen = []
    for seed in ("1", "1", "2"):
        arm("jobs.inserting=error@1/4", seed)
        chosen.append(passes_that_raise(200))
    assert chosen[0] == chosen[1] != chosen[2]
    assert 20 < len(chosen[0]) < 80


def test_passes_of_two_places_with_one_name_are_counted_together(arm: Arm) -> None:
    arm("switch.turning=error@2")

    @failpoints.before("switch.turning", Unavailable)
    def pause() -> str:
        return "paused"

    @failpoints.before("switch.turning", Unavailable)
    def resume() -> str:
        return "resumed"

    assert pause() == "paused"
    with pytest.raises(Unavailable):
        resume()


def test_call_that_found_nothing_is_no_pass(arm: Arm) -> None:
    arm("claim.leased=error@1")

    @failpoints.after("claim.leased", Unavailable, counts=bool)
    def claim(found: list[str]) -> list[str]:
        return found

    assert claim([]) == []
    with pytest.raises(Unavailable):
        claim(["a job"])


# ------------------------------------------------------------------ what


async def test_error_is_the_callers_own_and_comes_before_or_after_the_deed(arm: Arm) -> None:
    arm("jobs.inserting=error@1;jobs.inserted=error@1")
    done = []

    @failpoints.before("jobs.inserting", Unavailable)
    @failpoints.after("jobs.inserted", Unavailable)
    async def insert(job: str) -> str:
        """Store it."""
        done.append(job)
        return job

    with pytest.raises(Unavailable, match=r"The failpoint jobs\.inserting says so"):
        await insert("a")
    assert done == []
    with pytest.raises(Unavailable, match=r"The failpoint jobs\.inserted says so"):
        await insert("b")
    assert done == ["b"]
    assert await insert("c") == "c"
    assert (insert.__name__, insert.__doc__) == ("insert", "Store it.")


async def test_delay_holds_the_call_up_and_lets_it_happen(arm: Arm) -> None:
    arm("worker.reported=delay:0.05;worker.beating=delay:0.05")

    @failpoints.after("worker.reported")
    async def report() -> str:
        return "reported"

    @failpoints.before("worker.beating")
    def beat() -> str:
        return "beaten"

    began = time.monotonic()
    assert (await report(), beat()) == ("reported", "beaten")
    assert time.monotonic() - began >= 0.1


_PASSES = """
from pulse import failpoints

@failpoints.after("worker.reported")
def report(number):
    print(number, flush=True)

for number in (1, 2, 3):
    report(number)
"""


def test_kill_ends_the_process_before_its_next_instruction() -> None:
    code, printed, errors = output(_PASSES, PULSE_FAILPOINTS="worker.reported=kill@2")
    assert (code, printed) == (-signal.SIGKILL, "1\n2\n")
    assert "failpoint_hit: worker.reported=kill@2" in errors


def test_stop_freezes_the_process_until_sigcont() -> None:
    process = python(_PASSES, PULSE_FAILPOINTS="worker.reported=stop@2")
    _, status = os.waitpid(process.pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    process.send_signal(signal.SIGCONT)
    assert process.communicate(timeout=60)[0] == "1\n2\n3\n"


# ------------------------------------------------------------------ how it is configured


def test_armed_points_are_listed_as_they_were_written(arm: Arm) -> None:
    arm(" jobs.inserted=kill@1/200; worker.beating=delay:0.5 ;")
    assert failpoints.armed() == ["jobs.inserted=kill@1/200", "worker.beating=delay:0.5"]


@each_row(
    "text, sentence",
    [
        ("jobs.inserted", "write NAME=ACTION"),
        ("jobs.inserted=die", "ACTION is kill, stop, error or delay:SECONDS"),
        ("jobs.inserted=delay", "delay:SECONDS"),
        ("jobs.inserted=kill@0", "WHEN is N for the Nth pass or 1/N"),
        ("jobs.inserted=kill@2/3", "WHEN is N for the Nth pass or 1/N"),
        ("jobs.insert=kill", "there is no failpoint jobs.insert. Did you mean jobs.inserted?"),
        ("something.else=kill", "pulse.failpoints.names() has those there are"),
        ("worker.beating=error", "no error can be raised there"),
        ("jobs.inserted=kill;jobs.inserted=stop", "has jobs.inserted twice"),
    ],
)
def test_list_that_cannot_be_read_is_refused_with_a_sentence(text: str, sentence: str) -> None:
    with pytest.raises(failpoints.BadFailpoints, match="PULSE_FAILPOINTS has ") as refused:
        failpoints.read(text)
    assert sentence in str(refused.value)
    assert str(refused.value).endswith((".", "?"))


def test_pulsed_refuses_a_misspelled_point_and_the_sdk_does() -> None:
    variables = {"PULSE_FAILPOINTS": "jobs.insertd=kill", "DB_HOST": "postgresql://user@127.0.0.1:1/none"}
    code, _, errors = output("from pulse_server.main import main; raise SystemExit(main())", **variables)
    assert code == 1
    assert errors == (
        "pulsed: PULSE_FAILPOINTS has 'jobs.insertd=kill': there is no failpoint jobs.insertd. "
        "Did you mean jobs.inserted?\n"
    )
    code, _, errors = output("from pulse import Pulse", **variables)
    assert code == 1
    assert "BadFailpoints: PULSE_FAILPOINTS has 'jobs.insertd=kill'" in errors


def test_variables_are_not_taken_for_misspelled_settings() -> None:
    variables = {failpoints.VARIABLE: "", failpoints.SEED_VARIABLE: "", "DB_HOST": "postgresql://a@b/c"}
    assert not list(unknown_variables(variables))
    (finding,) = unknown_variables(variables | {"PULSE_FAILPOINT": ""})
    assert "Did you mean PULSE_FAILPOINTS?" in finding.sentence

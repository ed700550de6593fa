"""`pulse worker`: it runs an application's handlers, from wherever the application is."""

import signal
from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine, ended
from tests.rows import each_row

APPLICATION = """
import pulse

app = pulse.Pulse()

@app.job("{topic}")
async def greet() -> None:
    print("{word}", flush=True)

@app.job("{topic}-other")
async def other() -> None: ...
"""


@pytest.fixture
def application(tmp_path: Path, topic: str) -> Path:
    (tmp_path / "shop").mkdir()
    (tmp_path / "shop" / "__init__.py").touch()
    (tmp_path / "shop" / "tasks.py").write_text(APPLICATION.format(topic=topic, word="first"))
    return tmp_path


def test_worker_runs_handlers_until_ctrl_c_and_drains(
    pulse: CommandLine, application: Path, topic: str
) -> None:
    with pulse.terminal(
        "worker", "shop.tasks:app", "--concurrency", "3", cwd=application, columns=200
    ) as child:
        child.expect(f"Running shop.tasks:app .*: {topic}, {topic}-other")
        assert pulse("submit", topic, "--wait").code == 0
        child.expect("first")
        child.sendintr()
        assert ended(child) == 0
        assert "Traceback" not in child.before


def test_sigterm_drains_and_ends_with_0(pulse: CommandLine, application: Path, topic: str) -> None:
    with pulse.process("worker", "shop.tasks", cwd=application) as process:  # the only Pulse object is found
        assert pulse("submit", topic, "--wait").code == 0
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)
    assert process.returncode == 0


def test_worker_serves_only_the_topics_given(pulse: CommandLine, application: Path, topic: str) -> None:
    passed_over = pulse("submit", topic, "-o", "plain").out.strip()
    with pulse.process("worker", "shop.tasks:app", "--topics", f"{topic}-o*", cwd=application) as process:
        assert pulse("submit", f"{topic}-other", "--wait").code == 0
        process.terminate()
        process.communicate(timeout=30)
    assert pulse("jobs", "get", passed_over, "-o", "json").json["status"] == "PENDING"


def test_blocking_application_runs_as_well(pulse: CommandLine, application: Path, topic: str) -> None:
    source = (
        APPLICATION.format(topic=topic, word="x")
        .replace("async def", "def")
        .replace("Pulse()", "SyncPulse()")
    )
    (application / "blocking.py").write_text(source)
    with pulse.process("worker", "blocking:app", "--concurrency", "2", cwd=application) as process:
        assert pulse("submit", topic, "--wait").code == 0
        process.terminate()
        process.communicate(timeout=30)
    assert process.returncode == 0


def test_saved_context_reaches_the_application(pulse: CommandLine, application: Path, topic: str) -> None:
    assert pulse("save", "creds").code == 0
    with pulse.process("worker", "shop.tasks:app", cwd=application, PULSE_ADDR="") as process:
        assert pulse("submit", topic, "--wait").code == 0
        process.terminate()
        process.communicate(timeout=30)


def test_reload_restarts_the_worker_when_a_file_changes(
    pulse: CommandLine, application: Path, topic: str
) -> None:
    with pulse.terminal("worker", "shop.tasks:app", "--reload", cwd=application, columns=200) as child:
        child.expect("Connected to pulsed")
        assert pulse("submit", topic, "--wait").code == 0
        child.expect("first")
        (application / "shop" / "tasks.py").write_text(APPLICATION.format(topic=topic, word="second"))
        child.expect("Reloading: shop/tasks.py changed")
        child.expect("Connected to pulsed")
        assert pulse("submit", topic, "--wait").code == 0
        child.expect("second")
        (application / "shop" / "tasks.py").write_text("this is not Python")
        child.expect("cannot be imported")
        child.expect("It starts again when a file changes")
        (application / "shop" / "tasks.py").write_text(APPLICATION.format(topic=topic, word="third"))
        child.expect("Connected to pulsed")
        child.sendintr()
        assert ended(child) == 0


@pytest.mark.parametrize(
    ("target", "sentence"),
    [
        ("nowhere:app", "no module 'nowhere'"),
        ("shop.nowhere:app", "no module 'shop.nowhere'"),
        ("shop.tasks:nothing", "where app is the Pulse object: shop.tasks:app"),
        ("shop.tasks:greet", "not a Pulse object. Write it as package.module:app, where app is the Pulse"),
        ("alone:p", "such as --include MODULE, or import them in alone."),
        ("shop/tasks.py", " shop.tasks:app"),
        ("./shop/tasks.py:p", " shop.tasks:p"),
        ("/elsewhere/tasks.py", " tasks:app"),
        ("./shop/tasks:p", " shop.tasks:p"),
        (".tasks:p", "'.tasks:p' is not an application"),
        ("shop", "has no Pulse object"),
        (":app", "is not an application"),
        ("shop.broken:app", "ZeroDivisionError: division by zero"),
        ("shop.missing:app", "ModuleNotFoundError"),
    ],
)
def test_application_that_cannot_be_found_is_a_sentence_and_2(
    pulse: CommandLine, application: Path, target: str, sentence: str
) -> None:
    (application / "shop" / "broken.py").write_text("\n1 / 0\n")
    (application / "alone.py").write_text("import pulse\np = pulse.Pulse()\n")
    (application / "shop" / "missing.py").write_text("import a_package_that_is_not_there\n")
    with pulse.process("worker", target, cwd=application) as process:
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert sentence in errors
    assert "Traceback" not in errors
    assert len(errors.splitlines()) == 1


@each_row("name", ["typo", "typo.*"])
def test_unknown_topic_names_the_known_ones(
    pulse: CommandLine, application: Path, topic: str, name: str
) -> None:
    with pulse.process("worker", "shop.tasks:app", "--topics", name, cwd=application) as process:
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert f"it has: {topic}" in errors

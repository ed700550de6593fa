"""`pulse worker --include`: handlers in several modules, and what is said about those that are missing."""

from pathlib import Path

import pytest

from tests.cli.command_line import CommandLine

APPLICATION = """
import pulse

p = pulse.Pulse()
"""

HANDLER = """
from shop.app import p

@p.job("{topic}-{name}")
async def handle() -> None: ...
"""


@pytest.fixture
def shop(tmp_path: Path, topic: str) -> Path:
    """shop.app without handlers; shop.tasks, shop.mail.tasks and shop.cards.tasks with one each."""
    for name in ("", "mail", "cards"):
        (tmp_path / "shop" / name).mkdir(exist_ok=True)
        (tmp_path / "shop" / name / "__init__.py").touch()
        source = HANDLER.format(topic=topic, name=name or "plain")
        (tmp_path / "shop" / name / "tasks.py").write_text(source)
    (tmp_path / "shop" / "app.py").write_text(APPLICATION)
    return tmp_path


def errors_of(pulse: CommandLine, shop: Path, *arguments: str) -> str:
    with pulse.process("worker", "shop.app:p", *arguments, cwd=shop) as process:
        _, errors = process.communicate(timeout=30)
    assert process.returncode == 2
    assert "Traceback" not in errors
    return errors


@pytest.mark.parametrize(
    ("include", "served"),
    [
        (["shop.tasks"], ["plain"]),
        (["shop.tasks,shop.mail.tasks"], ["plain", "mail"]),
        (["shop.tasks", "--include", "shop.cards.tasks"], ["plain", "cards"]),
        (["shop.*.tasks"], ["cards", "mail"]),
        (["shop.m*.tasks"], ["mail"]),
        (["*.tasks"], ["plain"]),
        (["shop.**.tasks"], ["cards", "mail", "plain"]),
        (["shop.cards.**"], ["cards"]),
    ],
)
def test_handlers_of_included_modules_run(
    pulse: CommandLine, shop: Path, topic: str, include: list[str], served: list[str]
) -> None:
    with pulse.process("worker", "shop.app:p", "--include", *include, cwd=shop) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        process.terminate()
        process.communicate(timeout=30)
    assert f": {', '.join(f'{topic}-{name}' for name in served)}. Ctrl-C" in line


def test_packages_without_an_init_file_are_found(pulse: CommandLine, shop: Path, topic: str) -> None:
    for path in shop.rglob("__init__.py"):
        path.unlink()
    with pulse.process("worker", "shop.app:p", "--include", "shop.*.tasks", cwd=shop) as process:
        assert process.stderr is not None
        line = process.stderr.readline()
        process.terminate()
        process.communicate(timeout=30)
    assert f"{topic}-cards, {topic}-mail. Ctrl-C" in line


def test_nothing_to_run_names_the_modules_that_were_not_imported(pulse: CommandLine, shop: Path) -> None:
    errors = errors_of(pulse, shop)
    assert "There is nothing to run: shop.app:p has no handlers." in errors
    assert "Not imported: shop.cards.*, shop.mail.*, shop.tasks." in errors
    assert "--include 'shop.cards.*'" in errors
    assert len(errors.splitlines()) == 1


def test_included_module_without_handlers_is_named(pulse: CommandLine, shop: Path) -> None:
    (shop / "shop" / "empty.py").touch()
    assert "Importing shop.empty registered none." in errors_of(pulse, shop, "--include", "shop.empty")


def test_included_module_with_a_router_that_no_client_includes_is_named(
    pulse: CommandLine, shop: Path
) -> None:
    (shop / "shop" / "routed.py").write_text("import pulse\nrouter = pulse.Router()\n")
    errors = errors_of(pulse, shop, "--include", "shop.routed")
    assert "shop.routed has a router, and no client includes it" in errors


def test_included_package_is_not_its_modules(pulse: CommandLine, shop: Path) -> None:
    errors = errors_of(pulse, shop, "--include", "shop.cards")
    assert "Importing shop.cards registered none." in errors
    assert "--include 'shop.cards.*'" in errors


@pytest.mark.parametrize(
    ("include", "sentence"),
    [
        ("shop.nothing", "There is no module 'shop.nothing'"),
        ("shop.*.nothing", "--include shop.*.nothing matches no module."),
        ("nowhere.*", "--include nowhere.* matches no module."),
        ("**.tasks", "name the package first, such as shop.**.tasks."),
    ],
)
def test_module_that_is_not_there_is_a_sentence(
    pulse: CommandLine, shop: Path, include: str, sentence: str
) -> None:
    assert sentence in errors_of(pulse, shop, "--include", include)


def test_error_of_an_import_is_a_sentence_and_the_frames_of_the_application(
    pulse: CommandLine, shop: Path
) -> None:
    (shop / "shop" / "prices.py").write_text("import json\n\njson.loads('no JSON')\n")
    (shop / "shop" / "tasks.py").write_text("from shop import prices\n")
    first, *frames = errors_of(pulse, shop, "--include", "shop.tasks").splitlines()
    prices = shop / "shop" / "prices.py"
    assert first.startswith(f"pulse: 'shop.tasks' cannot be imported ({prices}, line 3): JSONDecodeError: ")
    assert frames == [
        f"  {shop / 'shop' / 'tasks.py'}, line 1: from shop import prices",
        f"  {prices}, line 3: json.loads('no JSON')",
    ]


@pytest.mark.parametrize("is_nested", [False, True])
def test_syntax_error_is_reported_with_its_own_file_and_line(
    pulse: CommandLine, shop: Path, is_nested: bool
) -> None:
    tasks, broken = shop / "shop" / "tasks.py", shop / "shop" / "broken.py"
    broken.write_text("import json\n\nprint(json\n")
    tasks.write_text("from shop import broken\n")
    name = "shop.tasks" if is_nested else "shop.broken"
    first, *frames = errors_of(pulse, shop, "--include", name).splitlines()
    where = f"({broken}, line 3)"
    assert first == f"pulse: '{name}' cannot be imported {where}: SyntaxError: '(' was never closed"
    shown = [f"  {tasks}, line 1: from shop import broken", f"  {broken}, line 3: print(json"]
    assert frames == (shown if is_nested else [])


def test_application_that_exits_when_it_is_imported_is_a_sentence(pulse: CommandLine, shop: Path) -> None:
    (shop / "shop" / "tasks.py").write_text("import sys\nsys.exit(3)\n")
    assert "it calls sys.exit() when it is imported" in errors_of(pulse, shop, "--include", "shop.tasks")


@pytest.mark.parametrize("call", ["p.run()", "p.run_processes(2)"])
def test_application_that_starts_a_worker_when_it_is_imported_is_a_sentence(
    pulse: CommandLine, shop: Path, call: str
) -> None:
    (shop / "shop" / "app.py").write_text(
        f"import asyncio, pulse\np = pulse.Pulse()\n"
        f"@p.job('plain')\nasync def plain(): ...\nasyncio.run({call})\n"
    )
    shown = errors_of(pulse, shop)
    assert "(" + str(shop / "shop" / "app.py") + ", line 5)" in shown
    assert 'Put the call of run() behind `if __name__ == "__main__":`.' in shown

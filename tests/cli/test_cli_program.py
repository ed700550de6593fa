"""The program as a whole: help, start-up, completion, version, passwords, the reference page."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator

import bcrypt
import click
import pytest

from pulse_cli import main
from pulse_cli.declaring import Command, Group
from pulse_cli.program import pulse as program
from tests.cli.command_line import SOURCES, CommandLine, ended
from tests.cli.reading import nothing_runs
from tests.rows import each_row


def commands(
    group: click.Group, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    for name, command in group.commands.items():
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from commands(command, (*path, name))


EVERY = dict(commands(program))


def test_help_loads_neither_grpc_nor_rich() -> None:
    """Every command pays for start-up, and these imports would double it."""
    script = (
        "import sys, json\nfrom pulse_cli.main import run\nrun(['--help'])\n"
        "costly = ('grpc', 'pulse.api', 'rich', 'bcrypt', 'asyncio')\n"
        "print(json.dumps([name for name in costly if name in sys.modules]))"
    )
    ran = subprocess.run(
        [sys.executable, "-c", script],
        env=os.environ | {"PYTHONPATH": str(SOURCES)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert json.loads(ran.stdout.splitlines()[-1]) == []


@each_row("path", EVERY)
def test_every_command_explains_itself_with_examples(alone: CommandLine, path: tuple[str, ...]) -> None:
    result = alone(*path, "--help")
    assert result.code == 0
    assert "Examples:" in result.out
    assert "pulse " + " ".join(path) in result.out


@each_row("path", EVERY)
def test_every_command_takes_output(path: tuple[str, ...]) -> None:
    command = EVERY[path]
    assert isinstance(command, Command | Group)
    assert "output" in {param.name for param in command.get_params(click.Context(command))}


EXAMPLES = [
    (path, found)
    for path, command in EVERY.items()
    for example in getattr(command, "examples", [])
    for found in re.findall(r"pulse (?:(?! \| | && | > |\)\").)+", example.split(" #")[0])
]


@each_row("example", sorted({example for _, example in EXAMPLES}))
def test_every_example_can_be_typed(example: str) -> None:
    """It names a command and its options as they are; nothing is run."""
    words = shlex.split(example)[1:]
    with nothing_runs() as ran:
        program.main(words, "pulse", standalone_mode=False)
    assert len(ran) == 1


def test_every_command_has_an_example_of_its_own() -> None:
    shown = {path for path, example in EXAMPLES if tuple(shlex.split(example)[1 : 1 + len(path)]) == path}
    assert shown == set(EVERY)


def test_no_command_shows_the_help_of_its_group(alone: CommandLine) -> None:
    result = alone("jobs")
    assert result.code == 2
    assert "Commands:" in result.err


def test_mistyped_command_suggests_the_nearest(alone: CommandLine) -> None:
    assert "Did you mean 'jobs'?" in alone("jbos").err
    assert "Did you mean 'list'?" in alone("jobs", "lits").err
    assert alone("jbos").code == 2


def test_help_at_a_terminal(alone: CommandLine) -> None:
    result = alone.screen("--help")
    assert result.code == 0
    assert max(map(len, result.out.splitlines())) <= 80


def test_version(alone: CommandLine) -> None:
    assert alone("version").out.startswith("pulse ")
    shape = alone("version", "-o", "json").json
    assert (set(shape), shape["conflicts"]) == ({"version", "python", "conflicts"}, [])
    assert alone.screen("version").code == 0
    assert alone("--version").out == alone("version").out
    assert alone("-o", "json", "--version").json == shape


# ---------------------------------------------------------------- completion


@each_row("shell", ["bash", "zsh", "fish"])
def test_completion_prints_a_script(alone: CommandLine, shell: str) -> None:
    result = alone("completion", shell)
    assert result.code == 0
    assert "_PULSE_COMPLETE" in result.out


@each_row(
    "words, expected",
    [("pulse jo", "jobs"), ("pulse jobs ", "cancel"), ("pulse jobs list --status D", "DEAD_LETTERED")],
)
def test_shell_completion_lists_what_comes_next(alone: CommandLine, words: str, expected: str) -> None:
    variables = {
        "_PULSE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    with alone.process(**variables) as process:
        out, _ = process.communicate(timeout=30)
    assert f"plain,{expected}" in out


def test_completion_at_a_terminal(alone: CommandLine) -> None:
    assert alone.screen("completion", "bash").code == 0


# ---------------------------------------------------------------- passwd


def test_passwd_reads_standard_input(alone: CommandLine) -> None:
    result = alone("passwd", "--password-stdin", "--cost", "4", stdin="swordfish\n")
    assert result.code == 0
    assert bcrypt.checkpw(b"swordfish", result.out.strip().encode())
    assert "swordfish" not in result.out + result.err


def test_passwd_asks_twice_at_a_terminal(alone: CommandLine) -> None:
    with alone.terminal("passwd", "--cost", "4") as child:
        child.expect("Password: ")
        child.sendline("swordfish")
        child.expect("Again: ")
        child.sendline("tuna")
        child.expect("Password: ")
        child.sendline("swordfish")
        child.expect("Again: ")
        child.sendline("swordfish")
        child.expect(r"\$2b\$04\$\S+")
        hashed = child.after
        assert ended(child) == 0
    assert bcrypt.checkpw(b"swordfish", hashed.encode())


@each_row("password", ["", "x" * 73, "a\0b"])
def test_password_that_bcrypt_would_not_keep_whole_is_refused(alone: CommandLine, password: str) -> None:
    result = alone("passwd", "--password-stdin", stdin=password)
    assert (result.code, result.out) == (2, "")


def test_passwd_in_a_pipe_says_how(alone: CommandLine) -> None:
    assert "--password-stdin" in alone("passwd").err


# ---------------------------------------------------------------- unexpected errors


def test_bug_is_a_sentence_and_1(alone: CommandLine, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("the unexpected")

    monkeypatch.setattr("pulse_cli.access.settings_here", lambda **_: fail())
    result = alone("config", "show")
    assert result.code == 1
    assert "the unexpected" in result.err
    assert "Traceback" not in result.err
    with pytest.raises(RuntimeError):
        alone("config", "show", PULSE_DEBUG="1")


def test_ascii_terminal_is_not_a_failure(alone: CommandLine) -> None:
    with alone.process("config", "show", PYTHONIOENCODING="latin-1") as process:
        out, _ = process.communicate(timeout=30)
    assert process.returncode == 0
    assert "password         ?" in out


def test_install_without_the_extra_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "click", None)
    with pytest.raises(SystemExit, match=r"Run.*: pip install .*\[cli\]"):
        main.main()


@each_row("closed", [">&-", "2>&-", "<&- >&- 2>&-"])
def test_command_works_with_closed_standard_streams(closed: str) -> None:
    command = f"{shlex.quote(sys.executable)} -m pulse_cli --help {closed}"
    result = subprocess.run(["sh", "-c", command], capture_output=True, timeout=30)
    assert (result.returncode, result.stderr) == (0, b"")


def test_interrupt_while_the_commands_are_imported_is_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted(_: object) -> int:
        raise KeyboardInterrupt

    monkeypatch.setattr(main, "run", interrupted)
    with pytest.raises(SystemExit) as ended:
        main.main()
    assert (ended.value.code, capsys.readouterr().err) == (130, "pulse: interrupted.\n")

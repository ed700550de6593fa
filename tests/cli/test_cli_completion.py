"""Completion of names that the server knows, as a shell asks for it."""

from pathlib import Path

import pytest

from tests.cli.command_line import PATIENCE_SECONDS, WITH_TESTS, CommandLine
from tests.rows import each_row

CONTENTS = (
    ("topics", "set", "mail.invoice", "--per-lane", "2"),
    ("lanes", "set", "mail.invoice", "bolt", "--weight", "3"),
    ("submit", "mail.welcome", "--lane", "acme"),
    ("submit", "mail.invoice", "--lane", "bolt"),
    ("submit", "sms", "--lane", "acme"),
    ("schedules", "create", "mail.welcome", "--every", "1h", "--name", "morning-mail"),
)


@pytest.fixture(scope="module")
def filled(own_address: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    pulse = CommandLine(tmp_path_factory.mktemp("home"), {"PULSE_ADDR": own_address})
    for command in CONTENTS:
        assert pulse(*command).code == 0
    return own_address


def completions(pulse: CommandLine, words: str, *, module: str = "pulse_cli") -> tuple[list[str], str]:
    """Return the completions of the last word, and the text that the shell would print."""
    variables = {
        "_PULSE_COMPLETE": "bash_complete",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    with pulse.process(module=module, PYTHONPATH=WITH_TESTS, **variables) as process:
        out, err = process.communicate(timeout=PATIENCE_SECONDS)
    return [line.removeprefix("plain,") for line in out.splitlines() if line], err


@each_row(
    "words, expected",
    [
        ("pulse submit mail", ["mail.invoice", "mail.welcome"]),
        ("pulse jobs list --topic s", ["sms"]),
        ("pulse jobs tail --topic nothing", []),
        ("pulse topics show s", ["sms"]),
        ("pulse lanes set mail.invoice ", ["bolt"]),
        ("pulse jobs list --topic mail.invoice --lane b", ["bolt"]),
        ("pulse jobs list --lane b", []),
        ("pulse schedules pause mor", ["morning-mail"]),
        ("pulse jobs list --schedule m", ["morning-mail"]),
    ],
)
def test_names_of_the_server_are_completed(
    filled: str, tmp_path: Path, words: str, expected: list[str]
) -> None:
    pulse = CommandLine(tmp_path, {"PULSE_ADDR": filled})
    assert completions(pulse, words, module="tests.cli.patient_pulse") == (expected, "")


@each_row(
    "variables",
    [
        {"PULSE_ADDR": "127.0.0.1:1"},
        {"PULSE_ADDR": "not an address"},
        {"PULSE_USER": "ada"},
        {"PULSE_CONTEXT": "missing"},
    ],
)
def test_no_answer_is_no_completion_and_no_output(tmp_path: Path, variables: dict[str, str]) -> None:
    assert completions(CommandLine(tmp_path, variables), "pulse submit m") == ([], "")


def test_completion_reads_no_password(filled: str, tmp_path: Path) -> None:
    pulse = CommandLine(tmp_path, {"PULSE_ADDR": filled})
    assert completions(pulse, "pulse --user ada --password-stdin submit m") == ([], "")

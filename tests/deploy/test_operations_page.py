"""docs/operations.md says what the code does."""

import ast
import re
from collections.abc import Iterator

import pytest

from pulse_server.access.users import Role
from pulse_server.settings import OPTIONS, Settings
from tests.deploy.deployment_files import DEPLOY, ROOT, documents

PAGE = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
LEVELS = {"debug", "info", "warning", "error", "exception"}


def section(title: str) -> str:
    """The text below a heading of the second level, up to the next one."""
    found = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


def logged_events() -> set[str]:
    """The first argument of each call of a logger in the server."""
    return {
        event
        for path in (ROOT / "src" / "pulse_server").rglob("*.py")
        for event in _events_of(ast.parse(path.read_text(encoding="utf-8")))
    }


def _events_of(tree: ast.AST) -> Iterator[str]:
    for node in ast.walk(tree):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Name(id="log"), attr=level), args=[event, *_]) if (
                level in LEVELS
            ):
                yield from (
                    part.value
                    for part in ast.walk(event)
                    if isinstance(part, ast.Constant) and isinstance(part.value, str)
                )


@pytest.mark.parametrize("variable", [option.variable for option in OPTIONS])
def test_every_setting_is_on_the_page(variable: str) -> None:
    assert f"`{variable}`" in section("Settings by concern")


def test_every_role_is_on_the_page() -> None:
    for role in Role:
        assert f"`{role}`" in section("Who gets in")


def test_the_events_on_the_page_are_those_of_the_code() -> None:
    listed = set(re.findall(r"^\| `(\w+)`", section("Logs"), re.MULTILINE))
    assert listed == logged_events()


def test_the_connections_on_the_page_are_those_of_the_code() -> None:
    of_one = Settings("127.0.0.1:50051", "postgres://localhost/pulse").most_connections
    assert f"opens up to {of_one}:" in PAGE
    assert f"    {of_one} × processes × servers" in PAGE


def test_every_alert_of_the_page_exists() -> None:
    groups = documents(DEPLOY / "prometheus" / "alerts.yml")[0]["groups"]
    named = {rule["alert"] for group in groups for rule in group["rules"]}
    assert set(re.findall(r"^### (\w+)$", section("Alerts"), re.MULTILINE)) == named

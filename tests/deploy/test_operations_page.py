"""The pages of docs/operations/ say what the code does."""

import re

from pulse_server.access.users import Role
from pulse_server.settings import OPTIONS, Settings
from tests.deploy.deployment_files import ROOT
from tests.rows import each_row

SET_UP, DATABASE = (
    (ROOT / "docs" / "operations" / name).read_text(encoding="utf-8") for name in ("set-up.md", "database.md")
)


def section(title: str) -> str:
    """The text below a heading of the second level, up to the next one."""
    found = re.search(rf"^## {re.escape(title)}$(.*?)(?=^## |\Z)", SET_UP, re.MULTILINE | re.DOTALL)
    assert found, title
    return found[1]


@each_row("variable", [option.variable for option in OPTIONS])
def test_every_setting_is_on_the_page(variable: str) -> None:
    assert f"`{variable}`" in section("Settings by concern")


def test_every_role_is_on_the_page() -> None:
    for role in Role:
        assert f"`{role}`" in section("Who gets in")


def test_the_connections_on_the_page_are_those_of_the_code() -> None:
    of_one = Settings("127.0.0.1:50051", "postgres://localhost/pulse").most_connections
    assert f"opens up to {of_one}:" in DATABASE
    assert f"    {of_one} × processes × servers" in DATABASE

"""docs/dashboard.md says what the dashboard does."""

import re

from pulse_server.access.users import Role
from pulse_ui.settings import DEFAULT_ADDRESS, OPTIONS
from tests.deploy.deployment_files import ROOT

PAGE = (ROOT / "docs" / "dashboard.md").read_text(encoding="utf-8")


def test_settings_on_the_page_are_those_of_the_code() -> None:
    listed = re.findall(r"^\| `(PULSE_\w+)` \| `(--[\w-]+)` \| `?([^|`]+)`? \|", PAGE, re.MULTILINE)
    assert [(variable, flag) for variable, flag, _ in listed] == [
        (option.variable, option.flag) for option in OPTIONS
    ]
    defaults = {variable: default.strip() for variable, _, default in listed}
    assert defaults["PULSE_UI_ADDR"] == DEFAULT_ADDRESS
    for option in OPTIONS:
        found = re.search(r"\(default (.+)\)", option.help)
        assert defaults[option.variable] == (found[1] if found else "none"), option.variable


def test_every_role_is_on_the_page() -> None:
    roles = re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", PAGE, re.MULTILINE)))
    assert {role for role in roles if not role.startswith("PULSE_")} == set(Role)

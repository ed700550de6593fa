"""A constant of the server stands beside its only user; tuning.py has what several modules share."""

from __future__ import annotations

import re

from pulse_server.base import tuning
from tests.docs.pages import ROOT

SERVER = ROOT / "src" / "pulse_server"
# Summed up in tuning.py itself: what one process opens.
SUMMED = re.compile(r"\w+_CONNECTIONS")


def test_constants_of_tuning_are_shared() -> None:
    sources = [path.read_text(encoding="utf-8") for path in SERVER.rglob("*.py")]
    users = {
        name: sum(bool(re.search(rf"\btuning\.{name}\b", source)) for source in sources)
        for name in vars(tuning)
        if name.isupper()
    }
    assert len(users) > 10
    alone = {name for name, count in users.items() if count < 2 and not SUMMED.fullmatch(name)}
    assert not alone, f"define these beside their users: {alone}"

"""Facts about `manage.py pulse_worker` before it starts. `test_django_tasks` runs them."""

import sys

import django
import pytest

django.setup()

from pulse.django.management.commands.pulse_worker import Command  # noqa: E402


def test_missing_extra_is_one_line_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "rich", None)  # as if it was not installed
    with pytest.raises(SystemExit) as ended:
        Command().run_from_argv(["manage.py", "pulse_worker", "--concurrency", "4"])
    (line,) = capsys.readouterr().err.splitlines()
    assert ended.value.code == 1
    assert "which is not installed. Run: pip install" in line
    assert "[cli]" in line

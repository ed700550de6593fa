"""`pulse worker` refuses an application of a Django project that is not set up."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.system.django_project import PATIENCE_SECONDS, SHOP, Project

HANDLER = """
import pulse
p = pulse.SyncPulse()

@p.job("loose")
def loose() -> None:
    from orders.models import Order
"""
MODEL_AT_THE_TOP = "from orders.models import Order"
CONNECTION_AT_THE_TOP = f"from django.db import connection\n{HANDLER}"
IN_ENVIRONMENT = {"DJANGO_SETTINGS_MODULE": "site_of_shop.settings"}


def start(
    directory: Path, source: str, target: str = "loose:p", **variables: str
) -> subprocess.CompletedProcess[str]:
    (directory / "loose.py").write_text(source)
    environment = Project(directory, "127.0.0.1:1").environment
    path = os.pathsep.join([str(SHOP), environment["PYTHONPATH"]])
    return subprocess.run(
        [sys.executable, "-m", "pulse_cli", "worker", target],
        cwd=directory,
        env={**environment, "PYTHONPATH": path, **variables},
        text=True,
        capture_output=True,
        timeout=PATIENCE_SECONDS,
        check=False,
    )


@pytest.mark.parametrize(
    ("source", "variables", "reason"),
    [
        (HANDLER, IN_ENVIRONMENT, "importing loose:p has not set Django up"),
        (CONNECTION_AT_THE_TOP, {}, "loose:p imports django.db, but has not set Django up"),
        (MODEL_AT_THE_TOP, IN_ENVIRONMENT, "AppRegistryNotReady"),
        (MODEL_AT_THE_TOP, {}, "ImproperlyConfigured"),
    ],
    ids=["a model in the handler", "a connection", "a model", "no settings"],
)
def test_project_that_is_not_set_up_is_refused_with_the_remedy(
    tmp_path: Path, source: str, variables: dict[str, str], reason: str
) -> None:
    ended = start(tmp_path, source, **variables)
    assert ended.returncode == 2
    assert reason in ended.stderr
    assert "Run `python manage.py pulse_worker`" in ended.stderr


def test_client_of_django_without_settings_is_refused_with_the_remedy(tmp_path: Path) -> None:
    ended = start(tmp_path, "", "pulse.django:app")
    assert ended.returncode == 2
    assert "'pulse.django:app' cannot be imported" in ended.stderr
    assert "Run `python manage.py pulse_worker`" in ended.stderr

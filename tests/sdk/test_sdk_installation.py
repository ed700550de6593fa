"""The sentence that names what to install: from where this installation came, never from a package index."""

from __future__ import annotations

import json
import shlex
import sys
from pathlib import Path

import pytest

from pulse.installation import how_to_install

HERE = Path(__file__).resolve()
IN_A_CLONE = "Run in a clone of pulse: pip install '.[cli]'"


@pytest.fixture
def installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The metadata of an installation that stands before the one of this environment."""
    directory = tmp_path / "site" / "pulse_jobs-9.9.dist-info"
    directory.mkdir(parents=True)
    (directory / "METADATA").write_text("Metadata-Version: 2.4\nName: pulse-jobs\nVersion: 9.9\n")
    monkeypatch.setattr(sys, "path", [str(directory.parent), *sys.path])
    return directory


def record(installed: Path, origin: dict[str, object]) -> None:
    (installed / "direct_url.json").write_text(json.dumps(origin))


def test_wheel_is_named_by_its_address(installed: Path, tmp_path: Path) -> None:
    wheel = tmp_path / "pulse jobs.whl"
    wheel.touch()
    record(installed, {"url": wheel.as_uri(), "archive_info": {}})
    words = shlex.split(how_to_install("cli", "outbox").removeprefix("Run: "))
    assert words == ["pip", "install", f"pulse-jobs[cli,outbox] @ {wheel.as_uri()}"]


def test_git_address_is_named_with_its_commit(installed: Path) -> None:
    vcs = {"vcs": "git", "requested_revision": "main", "commit_id": "0" * 40}
    record(installed, {"url": "ssh://git@forge.invalid/pulse", "vcs_info": vcs})
    source = f"git+ssh://git@forge.invalid/pulse@{'0' * 40}"
    assert how_to_install("cli") == f"Run: pip install 'pulse-jobs[cli] @ {source}'"


def test_address_of_a_clone_here_has_a_host(installed: Path, tmp_path: Path) -> None:
    record(installed, {"url": tmp_path.as_uri(), "vcs_info": {"vcs": "git", "commit_id": "0" * 40}})
    source = f"git+file://localhost{tmp_path}@{'0' * 40}"
    assert how_to_install("cli") == f"Run: pip install 'pulse-jobs[cli] @ {source}'"


def test_editable_checkout_stays_editable(installed: Path, tmp_path: Path) -> None:
    record(installed, {"url": tmp_path.as_uri(), "dir_info": {"editable": True}})
    assert how_to_install("ui") == f"Run: pip install --editable '{tmp_path}[ui]'"


def test_file_that_is_gone_is_not_named(installed: Path, tmp_path: Path) -> None:
    record(installed, {"url": (tmp_path / "gone.whl").as_uri(), "archive_info": {}})
    assert how_to_install("cli") == IN_A_CLONE


def test_name_is_never_asked_of_an_index(installed: Path) -> None:
    """An installation by name has no origin. Until there is a release, another package may have the name."""
    assert how_to_install("cli") == IN_A_CLONE

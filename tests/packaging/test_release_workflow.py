"""The release workflow: what it may do, what it waits for, and that its commands exist."""

import re
from pathlib import Path
from typing import Any

import yaml

from tests.rows import each_row
from tools.pythons import SUPPORTED

ROOT = Path(__file__).resolve().parents[2]
TEXT = (ROOT / ".github" / "workflows" / "release.yml").read_text(encoding="utf-8")
WORKFLOW: dict[Any, Any] = yaml.safe_load(TEXT)
JOBS: dict[str, dict[str, Any]] = WORKFLOW["jobs"]
ON = WORKFLOW[True]  # YAML reads `on` as true


def step(job: str, action: str) -> dict[str, Any]:
    (found,) = [one for one in JOBS[job]["steps"] if one.get("uses", "").startswith(action)]
    return dict(found)


def test_only_a_tag_of_a_version_starts_it() -> None:
    assert ON == {"push": {"tags": ["v[0-9]*"]}}


def test_nothing_is_published_that_was_not_tested_and_built_for_its_tag() -> None:
    assert JOBS["publish"]["needs"] == ["test", "build"]
    assert JOBS["image"]["needs"] == ["test", "publish"]
    commands = [one.get("run", "") for one in JOBS["build"]["steps"]]
    assert 'python3.11 dev.py build --release "$GITHUB_REF_NAME"' in commands
    assert [one for one in JOBS["test"]["steps"] if one.get("run") == ".ci/run"]


@each_row("job", JOBS)
def test_each_job_has_only_the_rights_that_it_uses(job: str) -> None:
    rights = {
        "test": {"contents": "read"},
        "build": {"contents": "read", "id-token": "write", "attestations": "write"},
        "publish": {"id-token": "write"},
        "image": {"contents": "read", "packages": "write", "id-token": "write", "attestations": "write"},
    }
    assert WORKFLOW["permissions"] == {}
    assert JOBS[job]["permissions"] == rights[job]
    assert JOBS[job]["timeout-minutes"]


def test_no_secret_is_stored_and_no_expression_reaches_a_shell() -> None:
    assert "secrets." not in TEXT
    assert [one["run"] for job in JOBS.values() for one in job["steps"] if "${{" in one.get("run", "")] == []
    checkouts = [step(name, "actions/checkout@") for name in ("test", "build", "image")]
    assert all(checkout["with"] == {"persist-credentials": False} for checkout in checkouts)


def test_build_has_the_oldest_and_the_newest_python() -> None:
    pythons = step("build", "actions/setup-python@")["with"]["python-version"].split()
    assert sorted(pythons) == [SUPPORTED[0], SUPPORTED[-1]]


def test_image_is_built_for_two_architectures_from_the_file_of_deploy() -> None:
    inputs = step("image", "docker/build-push-action@")["with"]
    assert inputs["platforms"] == "linux/amd64,linux/arm64"
    assert (ROOT / inputs["file"]).is_file()
    given = re.findall(r"^(\w+)=", inputs["build-args"], re.MULTILINE)
    declared = re.findall(r"^ARG (\w+)", (ROOT / inputs["file"]).read_text(encoding="utf-8"), re.MULTILINE)
    assert (given, set(given) - set(declared)) == (["VERSION", "REVISION"], set())

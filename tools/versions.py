"""The version: pyproject.toml declares it. Tags of images and names of wheels in texts repeat it."""

import re
from collections.abc import Iterator
from pathlib import Path

from tools.environment import ROOT, Problem

_CHANGELOG = ROOT / "CHANGELOG.md"
_NUMBER = r"(?P<version>\d+\.\d+\.\d+(?:(?:a|b|rc)\d+)?)"
_FORM = re.compile(_NUMBER)
_DECLARED = re.compile(rf'(?<=^version = "){_NUMBER}(?="$)', re.MULTILINE)
_REPEATED = re.compile(
    r"(?:\bpulsed:(?:\$\{PULSE_VERSION:-)?|\bpulse_jobs-|\bnewTag: |#?PULSE_VERSION=|\bARG VERSION=)"
    + _NUMBER
)


def declared() -> str:
    """Return the version that pyproject.toml declares."""
    found = _DECLARED.search((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    if found is None:
        raise Problem('pyproject.toml has no line: version = "1.2.3".')
    return found["version"]


def stale() -> list[str]:
    """Return the places that repeat another version than the declared one."""
    return [
        f"{path.relative_to(ROOT)}: {found['version']}"
        for path in _texts()
        for found in _REPEATED.finditer(path.read_text(encoding="utf-8"))
        if found["version"] != declared()
    ]


def change(version: str) -> list[str]:
    """Declare another version, and repeat it everywhere. Returns the files that changed."""
    if not _FORM.fullmatch(version):
        raise Problem(f"{version!r} is no version such as 1.2.3 or 1.2.3rc1.")
    changed = []
    for path in [ROOT / "pyproject.toml", *_texts()]:
        pattern = _DECLARED if path.name == "pyproject.toml" else _REPEATED
        text = path.read_text(encoding="utf-8")
        fresh = pattern.sub(lambda found: found[0].replace(found["version"], version), text)
        if fresh != text:
            path.write_text(fresh, encoding="utf-8")
            changed.append(str(path.relative_to(ROOT)))
    return changed


def changelog_entry(version: str) -> str:
    """Return the changelog's heading of a version: `0.1.0 (2026-12-01)`. Raises Problem without one."""
    headings = re.findall(r"^## (.+)$", _CHANGELOG.read_text(encoding="utf-8"), re.MULTILINE)
    for heading in headings:
        if heading.split()[0] == version:
            return str(heading)
    raise Problem(
        f"CHANGELOG.md has no section `## {version} (…)`. Write what users notice, then run this again."
    )


def check_release(tag: str) -> None:
    """Raise Problem unless a tag, such as v0.1.0, names this version and its changelog has a date."""
    if tag != f"v{declared()}":
        raise Problem(
            f"the tag is {tag!r}, and pyproject.toml has {declared()}. Tag the commit with v{declared()}."
        )
    entry = changelog_entry(declared())
    if not re.fullmatch(r"\S+ \(\d{4}-\d\d-\d\d\)", entry):
        raise Problem(
            f"the section {entry!r} of CHANGELOG.md has no date. Write: ## {declared()} (YYYY-MM-DD)"
        )


def _texts() -> Iterator[Path]:
    """Yield the files that may repeat the version."""
    yield ROOT / "docs" / "install.md"
    for path in sorted((ROOT / "deploy").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts:
            yield path

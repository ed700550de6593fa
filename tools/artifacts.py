"""Checks of a built sdist and wheel: their contents and metadata are those of the checkout."""

import email
import subprocess
import tarfile
import zipfile
from collections.abc import Iterator
from configparser import ConfigParser
from email.message import Message
from pathlib import Path

from tools.declared import PROJECT, normalized
from tools.environment import ROOT

PACKAGES = [ROOT / path for path in PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]]


def problems_of_wheel(wheel: Path) -> list[str]:
    """Return what is wrong with a wheel, a sentence each."""
    with zipfile.ZipFile(wheel) as archive:
        names = {name for name in archive.namelist() if ".dist-info/" not in name}
        texts = {
            name.rpartition("/")[2]: archive.read(name).decode()
            for name in archive.namelist()
            if name.endswith((".dist-info/METADATA", ".dist-info/entry_points.txt"))
        }
    return [
        *_differences("the wheel", names, expected_in_wheel()),
        *_problems_of_metadata(email.message_from_string(texts["METADATA"])),
        *_problems_of_entry_points(texts["entry_points.txt"]),
    ]


def problems_of_sdist(sdist: Path) -> list[str]:
    """Return what is wrong with an sdist: it holds all that a checkout has, so that its tests run."""
    with tarfile.open(sdist) as archive:
        names = {member.name.partition("/")[2] for member in archive.getmembers() if member.isfile()}
    # PKG-INFO is made by the build; .gitignore is always included, for the build of the wheel.
    return _differences("the sdist", names - {"PKG-INFO", ".gitignore"}, tracked_files() - {".gitignore"})


def expected_in_wheel() -> set[str]:
    """Return the files of the packages below src/, as the wheel names them: SQL and templates too."""
    return {
        path.relative_to(ROOT / "src").as_posix()
        for package in PACKAGES
        for path in package.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }


def tracked_files() -> set[str]:
    """Return the files of the checkout that Git knows and that exist."""
    listed = subprocess.run(["git", "-C", ROOT, "ls-files", "-z"], check=True, capture_output=True, text=True)
    return {path for path in listed.stdout.rstrip("\0").split("\0") if (ROOT / path).exists()}


def _differences(archive: str, found: set[str], expected: set[str]) -> list[str]:
    sentences = {
        f"{archive} lacks": expected - found,
        f"{archive} has, and should not:": found - expected,
    }
    return [f"{sentence} {', '.join(sorted(names))}." for sentence, names in sentences.items() if names]


def _problems_of_metadata(metadata: Message) -> Iterator[str]:
    project = PROJECT["project"]
    for field, expected in {
        "Name": project["name"],
        "Version": project["version"],
        "Summary": project["description"],
        "Requires-Python": project["requires-python"],
        "License-Expression": project["license"],
        "Description-Content-Type": "text/markdown",
    }.items():
        if metadata[field] != expected:
            yield f"the metadata has {field}: {metadata[field]}, and pyproject.toml means {expected}."
    if not str(metadata.get_payload()).strip():
        yield "the metadata has no description: the README is missing."
    if set(metadata.get_all("Provides-Extra", [])) != {*project["optional-dependencies"]}:
        yield f"the metadata has the extras {metadata.get_all('Provides-Extra')}."
    required = [line for line in metadata.get_all("Requires-Dist", []) if "extra ==" not in line]
    if {*map(_name, required)} != {*map(_name, project["dependencies"])}:
        yield f"a bare installation brings {', '.join(required)}."
    if "Typing :: Typed" not in metadata.get_all("Classifier", []):
        yield "the metadata lacks the classifier Typing :: Typed."


def _problems_of_entry_points(entry_points: str) -> Iterator[str]:
    parser = ConfigParser()
    parser.optionxform = str  # type: ignore[assignment,method-assign]
    parser.read_string(entry_points)
    found = {section: {**parser[section]} for section in parser.sections()}
    project = PROJECT["project"]
    if found != {"console_scripts": project["scripts"], **project.get("entry-points", {})}:
        yield f"the entry points are {found}."


def _name(requirement: str) -> str:
    return normalized(requirement.partition(">")[0].partition("<")[0].partition("=")[0].strip())

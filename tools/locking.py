"""Makes the locks, for `dev.py lock`."""

import os
import shutil
import tempfile
from pathlib import Path

from tools.declared import Profile, Requirement
from tools.environment import PYTHON, Problem, call, say
from tools.locks import DEVELOP_LOCK, LOCKS, RUN_LOCK, entries, made_for, text, wanted

_HEADER = """\
# {contents} Made by `python3 dev.py lock`.
# The hashes are those of every platform's files. {made_for}
"""
_OLDEST_PYTHON = "3.11"


def make_locks(*, upgrade: bool) -> list[str]:
    """Regenerate both locks. Returns the entries that are new, such as `click==8.1`.

    Versions that still fit stay, unless an upgrade to the newest ones is asked for.
    """
    before = "\n".join(text(lock) for lock in LOCKS)
    with tempfile.TemporaryDirectory() as directory:
        resolver = _Resolver(Path(directory))
        all_text = resolver.resolve(wanted(Profile.DEVELOP), known="" if upgrade else before)
        run_text = resolver.resolve(wanted(Profile.RUN), known=all_text)
    run, everything = entries(run_text), entries(all_text)
    beside = {line: entry for line, entry in everything.items() if line not in run}
    _write(RUN_LOCK, run, "Everything that pulse needs to run: server, CLI and dashboard.")
    _write(DEVELOP_LOCK, beside, "What the tests and checks need beside run.lock.")
    return sorted((run.keys() | beside.keys()) - entries(before).keys())


def _write(lock: Path, entries: dict[str, str], contents: str) -> None:
    header = _HEADER.format(contents=contents, made_for=made_for())
    lock.parent.mkdir(exist_ok=True)
    lock.write_text(header + "".join(f"{entry}\n" for entry in entries.values()), encoding="utf-8")


class _Resolver:
    """uv, which resolves for every platform at once, where pip knows only the one that it runs on."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._program = shutil.which("uv") or self._fetched()
        # uv does not ask pip's configuration. The address may hold a password: never on a command line.
        index = _configured_index()
        self._variables = {"UV_DEFAULT_INDEX": index} if index else {}

    def resolve(self, requirements: list[Requirement], *, known: str) -> str:
        """Return a lock for the requirements, with the versions of a known lock wherever they fit."""
        source, lock = self._directory / "wanted.in", self._directory / "wanted.lock"
        source.write_text("\n".join(requirement.text for requirement in requirements), encoding="utf-8")
        lock.write_text(known, encoding="utf-8")
        code, output = call(
            [
                *(self._program, "pip", "compile", "--quiet", source, "--output-file", lock),
                *("--universal", "--python-version", _OLDEST_PYTHON, "--generate-hashes"),
                *("--no-header", "--no-annotate"),
            ],
            variables=self._variables,
        )
        if code:
            raise Problem(f"uv found no versions that fit together:\n{output.rstrip()}")
        return lock.read_text(encoding="utf-8")

    def _fetched(self) -> str:
        say("fetching uv, which makes the locks ...")
        target = self._directory / "uv"
        code, output = call([PYTHON, "-m", "pip", "install", "--quiet", "--target", target, "uv"])
        if code:
            raise Problem(f"pip could not fetch uv, which makes the locks:\n{output.rstrip()}")
        return str(target / "bin" / "uv")


def _configured_index() -> str | None:
    """Return the address of the package index that pip is configured to use, if any."""
    if given := os.environ.get("PIP_INDEX_URL"):
        return given
    code, output = call([PYTHON, "-m", "pip", "config", "get", "global.index-url"])
    return output.strip() if code == 0 else None

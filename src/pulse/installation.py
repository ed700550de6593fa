"""The version of this installation, and how it is extended. There is no release on a package index yet."""

from __future__ import annotations

import functools
import json
import shlex
from pathlib import Path
from urllib.parse import unquote, urlsplit

_DISTRIBUTION = "pulse-jobs"


def how_to_install(*extras: str) -> str:
    """Return the sentence with the command that adds extras, for errors: `Run: pip install …`.

    The command names the place that this installation came from: a clone, a wheel or a Git address. Never a
    package index: until there is a release, any user of the index may register the name.
    """
    wanted = f"[{','.join(extras)}]"
    arguments = _arguments(wanted)
    if arguments is None:
        return f"Run in a clone of pulse: pip install {shlex.quote(f'.{wanted}')}"
    return f"Run: {shlex.join(['pip', 'install', *arguments])}"


@functools.cache
def version() -> str:
    """Return the version of this installation; empty if it is not installed."""
    from importlib.metadata import PackageNotFoundError  # slow
    from importlib.metadata import version as version_of

    try:
        return version_of(_DISTRIBUTION)
    except PackageNotFoundError:
        return ""


def _arguments(wanted: str) -> list[str] | None:
    """Return what `pip install` needs for the extras, None if the place is unknown or gone."""
    from importlib.metadata import PackageNotFoundError, distribution  # slow, and only errors need it

    try:
        # Written by the installer for everything that is not from an index (PEP 610).
        recorded = distribution(_DISTRIBUTION).read_text("direct_url.json")
    except PackageNotFoundError:
        checkout = Path(__file__).resolve().parents[2]
        return ["--editable", f"{checkout}{wanted}"] if (checkout / "pyproject.toml").is_file() else None
    if recorded is None:
        return None
    origin = json.loads(recorded)
    url = origin["url"]
    if url.startswith("file:"):
        place = Path(unquote(urlsplit(url).path))
        if not place.exists():
            return None
        if origin.get("dir_info", {}).get("editable"):
            return ["--editable", f"{place}{wanted}"]
    if vcs := origin.get("vcs_info"):
        # pip 23 refuses git+file:///, which has no host.
        url = url.replace("file:///", "file://localhost/")
        url = f"{vcs['vcs']}+{url}@{vcs['commit_id']}"
    return [f"{_DISTRIBUTION}{wanted} @ {url}"]

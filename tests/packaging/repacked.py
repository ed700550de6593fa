"""Wheels made again from what is installed, so that a real installation needs no network."""

import zipfile
from importlib.metadata import Distribution, distributions
from pathlib import Path

WRITTEN_BY_THE_INSTALLER = {"INSTALLER", "REQUESTED", "direct_url.json"}


def repack_installed(into: Path) -> None:
    """Write a wheel for each installed distribution. Editable ones are left out: they have no files."""
    for distribution in distributions():
        if distribution.read_text("WHEEL") and not distribution.read_text("direct_url.json"):
            repack(distribution, into)


def repack(distribution: Distribution, into: Path) -> None:
    name = distribution.metadata["Name"].replace("-", "_")
    wheel = into / f"{name}-{distribution.version}-{tag(distribution)}.whl"
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_STORED) as archive:
        for file in distribution.files or ():
            # Scripts lie outside of site-packages, and no import needs them.
            if file.parts[0] == ".." or file.suffix == ".pyc" or file.name in WRITTEN_BY_THE_INSTALLER:
                continue
            archive.write(str(file.locate()), str(file))


def tag(distribution: Distribution) -> str:
    """Return the tag that makes the wheel's name acceptable to the installer that accepted the original."""
    lines = (distribution.read_text("WHEEL") or "").splitlines()
    return next(line.removeprefix("Tag: ") for line in lines if line.startswith("Tag: "))

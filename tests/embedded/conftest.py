"""Data directories for the tests of the embedded Postgres: initdb runs once, the rest are copies."""

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from pulse_server.embedded import EmbeddedPostgres
from pulse_server.embedded.directory import DataDirectory


@pytest.fixture(scope="session")
def initialized_directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory whose server has run once and stopped. Copy it, do not start it."""
    directory = tmp_path_factory.mktemp("initialized") / "pulse"
    with EmbeddedPostgres(directory, settings={"fsync": "off"}):
        pass
    return directory


@pytest.fixture
def directory(initialized_directory: Path, tmp_path: Path) -> Iterator[Path]:
    """A data directory, as an orderly stop leaves it."""
    copy = tmp_path / "pulse"
    # Not shutil: the data may belong to another account than ours, and the copy must as well.
    subprocess.run(["cp", "-a", initialized_directory, copy], check=True)
    yield copy
    # Taking the lock removes what killed owners left in the temporary directory.
    last_owner = DataDirectory(copy)
    last_owner.acquire()
    last_owner.release()

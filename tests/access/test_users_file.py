"""The file of users is reloaded while the server runs."""

import os
from collections.abc import Iterable
from pathlib import Path

import pytest

from pulse_server.access.service import USERS_FILE_SETTLE, Access
from pulse_server.access.users import BadUsers
from pulse_server.base.metrics import Metrics


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    path.write_text("ann:one\nbob:two\n")
    return path


@pytest.fixture
def access(file: Path) -> Access:
    return Access((), file, Metrics())


async def settled(access: Access) -> None:
    """Check the file until a change is seen and has settled."""
    assert access.users_file is not None
    for _ in range(2):
        await access.users_file.look()


def names(access: Access, known: Iterable[str] = ("ann", "bob", "cid")) -> list[str]:
    return [name for name in known if access.directory.find(name) is not None]


def write(file: Path, text: str) -> None:
    file.write_text(text)


def write_unnoticed(file: Path, text: str) -> None:
    """Write the same number of bytes, and keep the time."""
    before = file.stat()
    file.write_text(text)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))


def remove(file: Path) -> None:
    file.unlink()


def replaced(file: Path, text: str) -> None:
    """Replace the file by another, as `mv` and orchestrators do."""
    other = file.with_suffix(".new")
    other.write_text(text)
    other.replace(file)


async def test_users_are_read_at_the_start(access: Access) -> None:
    assert names(access) == ["ann", "bob"]


def test_bad_file_at_the_start_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(BadUsers):
        Access((), tmp_path / "missing", Metrics())


async def test_file_that_was_replaced_holds(access: Access, file: Path) -> None:
    await settled(access)
    replaced(file, "bob:two\ncid:new\n")
    await settled(access)
    assert names(access) == ["bob", "cid"]


async def test_file_that_was_written_in_place_holds(access: Access, file: Path) -> None:
    await settled(access)
    write(file, "bob:two\ncid:three\n")
    await settled(access)
    assert names(access) == ["bob", "cid"]


async def test_link_that_points_elsewhere_holds(tmp_path: Path) -> None:
    """Kubernetes updates a mounted secret like this."""
    (tmp_path / "old").write_text("ann:one\n")
    (tmp_path / "new").write_text("bob:one\n")
    link = tmp_path / "users"
    link.symlink_to("old")
    access = Access((), link, Metrics())
    await settled(access)
    link.unlink()
    link.symlink_to("new")
    await settled(access)
    assert names(access) == ["bob"]


async def test_file_that_is_still_being_written_is_not_read(access: Access, file: Path) -> None:
    assert access.users_file is not None
    await settled(access)
    with file.open("w") as writing:
        writing.write("bob:two\n")
        writing.flush()
        assert await access.users_file.look() == USERS_FILE_SETTLE
        writing.write("ann:one\n")
        writing.flush()
        assert await access.users_file.look() == USERS_FILE_SETTLE
        assert names(access) == ["ann", "bob"]
    await settled(access)
    assert names(access) == ["ann", "bob"]


async def test_file_that_looks_the_same_is_not_read_until_asked(access: Access, file: Path) -> None:
    assert access.users_file is not None
    await settled(access)
    write_unnoticed(file, "ann:one\ncid:two\n")
    await settled(access)
    assert names(access) == ["ann", "bob"]
    access.read_again()
    await access.users_file.look()
    assert names(access) == ["ann", "cid"]


@pytest.mark.parametrize("text", ["", "# no user\n", "ann\n", "ann:tweety:chief\n", "ann:$2b$tweety\n"])
async def test_broken_file_keeps_the_users_and_is_logged_once(
    access: Access, file: Path, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    replaced(file, text)
    for _ in range(3):
        access.read_again()
        await settled(access)
    assert names(access) == ["ann", "bob"]
    (event,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert event.message == "users_file_is_bad"
    assert "PULSE_AUTH_USERS_FILE" in vars(event)["reason"]
    assert "tweety" not in str(vars(event))


async def test_file_that_vanishes_keeps_the_users_until_it_is_back(
    access: Access, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    await settled(access)
    remove(file)
    await settled(access)
    assert names(access) == ["ann", "bob"]
    write(file, "cid:three\n")
    await settled(access)
    assert names(access) == ["cid"]
    assert [record.message for record in caplog.records] == [
        "users_file_is_bad",
        "users_file_is_good_again",
        "users_changed",
    ]


async def test_change_is_logged_by_name_without_secrets(
    access: Access, file: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    replaced(file, "ann:tweety\ncid:tweety\n")
    await settled(access)
    (event,) = [vars(record) for record in caplog.records if record.message == "users_changed"]
    assert (event["added"], event["removed"], event["changed"]) == (["cid"], ["bob"], ["ann"])
    assert "tweety" not in str(event)


def test_users_of_the_environment_are_not_read_again(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    access = Access((), None, Metrics())
    access.read_again()
    assert access.loops == ()
    assert [record.message for record in caplog.records] == ["no_users_to_read_again"]

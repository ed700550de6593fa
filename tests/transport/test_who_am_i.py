"""WhoAmI returns the user, the role and the permitted methods."""

from pathlib import Path

import grpc
import pytest

from pulse.v1 import pulse_pb2 as pb
from pulse_server.access.service import Authenticator
from pulse_server.access.users import Directory, Role, User
from pulse_server.base.errors import Unauthenticated
from pulse_server.base.metrics import Metrics
from pulse_server.doors.boundary import SERVICE
from pulse_server.doors.callers import AccessRpcs, Callers, may_call
from tests.transport.authorized import METHODS, PASSWORD, USERS, answer, basic, caller
from tests.transport.pulse_server_under_test import ServerUnderTest, server_under_test


async def test_open_server_permits_every_method_without_a_user(server: ServerUnderTest) -> None:
    identity = await server.stub.WhoAmI(pb.WhoAmIRequest())

    assert (identity.user, identity.role) == ("", "admin")
    assert list(identity.methods) == [method.name for method in METHODS]


async def test_each_user_gets_its_role_and_permitted_methods(database_dsn: str) -> None:
    async with server_under_test(database_dsn, users=USERS) as server:
        for role in Role:
            for _ in range(2):  # checked, then remembered
                identity = await caller(server.channel, role.value).WhoAmI(pb.WhoAmIRequest())
                assert (identity.user, identity.role) == (role.value, role.value)
                assert set(identity.methods) == {
                    method.name for method in METHODS if may_call(role, f"/{SERVICE}/{method.name}")
                }


@pytest.mark.parametrize("password", ["wrong", ""])
async def test_wrong_password_is_unauthenticated(database_dsn: str, password: str) -> None:
    async with server_under_test(database_dsn, users=USERS) as server:
        code, _ = await answer(caller(server.channel, "viewer", password), "WhoAmI")
    assert code is grpc.StatusCode.UNAUTHENTICATED


async def test_new_role_is_returned_at_once(database_dsn: str, tmp_path: Path) -> None:
    file = tmp_path / "users"
    file.write_text(f"ann:{PASSWORD}:worker\n")
    async with server_under_test(database_dsn, users_file=file) as server:
        ann = caller(server.channel, "ann")
        assert (await ann.WhoAmI(pb.WhoAmIRequest())).role == "worker"
        file.write_text(f"ann:{PASSWORD}:viewer\n")
        access = server.app.doors.access
        assert access is not None
        assert access.users_file is not None
        access.read_again()
        await access.users_file.loop.wait_for_ticks(1)
        assert (await ann.WhoAmI(pb.WhoAmIRequest())).role == "viewer"


class Context:
    """The context of a call whose user was removed after it was authenticated."""

    def invocation_metadata(self) -> tuple[tuple[str, str], ...]:
        return basic("ann")

    def peer(self) -> str:
        return "ipv4:127.0.0.1:4711"


async def test_user_who_was_removed_meanwhile_is_unauthenticated() -> None:
    directory = Directory([User("ann", PASSWORD)])
    authenticator = Authenticator(directory, Metrics())
    access = AccessRpcs(Callers(authenticator))
    ((_, authorization),) = basic("ann")
    await authenticator.authenticate(authorization, "127.0.0.1")
    assert (await access.who_am_i(pb.WhoAmIRequest(), Context())).user == "ann"  # type: ignore[arg-type]

    directory.replace([User("bob", PASSWORD)])

    with pytest.raises(Unauthenticated):
        await access.who_am_i(pb.WhoAmIRequest(), Context())  # type: ignore[arg-type]
    authenticator.close()

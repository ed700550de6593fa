"""`pulsed grants` prints the rights of applications, and `pulsed check` reports which roles have them."""

from __future__ import annotations

import pytest

from pulse_server.checks import check_database
from pulse_server.main import main
from tests.server.roles import execute, role_in
from tests.transport.pulse_server_under_test import settings_of_test

FUNCTIONS = "pulse.enqueue, pulse.enqueue_json, pulse.enqueue_many, pulse.enqueue_workflow"
ENQUEUE = f"GRANT EXECUTE ON FUNCTION {FUNCTIONS} TO {{role}}"


def test_statements_are_printed_without_a_database(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("DB_HOST", "not a URL")

    assert main(["grants", "--enqueue", "shop", "--enqueue", "web", "--complete", "web"]) == 0

    assert capsys.readouterr().out.splitlines() == [
        'GRANT USAGE ON SCHEMA pulse TO "shop", "web";',
        f'GRANT EXECUTE ON FUNCTION {FUNCTIONS} TO "shop", "web";',
        'GRANT EXECUTE ON FUNCTION pulse.complete_job TO "web";',
    ]


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        ([], "name a role with --enqueue or --complete"),
        (["--enqueue", "public"], "PUBLIC is every role"),
        (["--complete", "PUBLIC"], "PUBLIC is every role"),
        (["--complete", ""], "name one role"),
    ],
)
def test_rights_are_granted_to_named_roles_alone(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["grants", *arguments])

    assert ended.value.code == 2
    assert sentence in capsys.readouterr().err


async def interface_findings(dsn: str) -> list[str]:
    found = await check_database(settings_of_test(), dsn, migrates=False)
    return [
        f"{finding.level} {finding.sentence}"
        for finding in found
        if finding.subject == "privileges" and "jobs" in finding.sentence
    ]


async def test_check_reports_which_roles_have_which_right(
    database_dsn: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await interface_findings(database_dsn) == []
    async with role_in(database_dsn) as (shop, _), role_in(database_dsn) as (worker, _):
        main(["grants", "--enqueue", shop, "--enqueue", worker, "--complete", worker])
        await execute(database_dsn, capsys.readouterr().out)

        both = ", ".join(sorted([shop, worker]))
        assert await interface_findings(database_dsn) == [
            f"info Roles that may enqueue jobs in their own transactions: {both}.",
            f"info Roles that may complete jobs in their own transactions: {worker}.",
        ]


async def test_check_names_the_command_for_a_role_that_lacks_a_part_of_a_right(database_dsn: str) -> None:
    """A function that was added later, or the schema."""
    async with (
        role_in(database_dsn, ENQUEUE) as (without_schema, _),
        role_in(
            database_dsn,
            "GRANT USAGE ON SCHEMA pulse TO {role}",
            "GRANT EXECUTE ON FUNCTION pulse.enqueue TO {role}",
        ) as (without_the_rest, _),
    ):
        roles = sorted([without_schema, without_the_rest])
        for role, sentence in zip(roles, await interface_findings(database_dsn), strict=True):
            assert sentence.startswith(f"warn The role {role} may call only some of the functions")
            assert sentence.endswith(f"pulsed grants --enqueue {role}")


async def test_check_warns_if_every_role_may_call_a_function(database_dsn: str) -> None:
    await execute(database_dsn, "GRANT EXECUTE ON FUNCTION pulse.complete_job TO PUBLIC")

    (sentence,) = await interface_findings(database_dsn)

    assert sentence.startswith("warn Every role of the database may complete jobs.")
    revoke = sentence.rpartition(": ")[2]
    await execute(database_dsn, revoke)
    assert await interface_findings(database_dsn) == []


async def test_check_does_not_list_roles_that_serve(database_dsn: str) -> None:
    async with role_in(
        database_dsn,
        "GRANT USAGE ON SCHEMA pulse TO {role}",
        "GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES IN SCHEMA pulse TO {role}",
        "GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA pulse TO {role}",
    ):
        assert await interface_findings(database_dsn) == []

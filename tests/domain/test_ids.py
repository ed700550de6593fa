"""Ids: made in order, read in any notation, refused with the field's name."""

from __future__ import annotations

from uuid import UUID

import pytest

from pulse_server.base.errors import InvalidArgument
from pulse_server.base.ids import new_id, parse_id
from tests.rows import each_row

CANONICAL = "0190f3a2-7b1c-7def-8123-456789abcdef"


def test_new_ids_are_version_seven_and_in_order() -> None:
    ids = [new_id() for _ in range(1000)]

    assert {UUID(job_id).version for job_id in ids} == {7}
    assert ids == sorted(set(ids))


@each_row(
    "text",
    [
        CANONICAL,
        CANONICAL.upper(),
        CANONICAL.replace("-", ""),
        "{" + CANONICAL + "}",
        "urn:uuid:" + CANONICAL,
    ],
)
def test_id_is_read_in_any_notation(text: str) -> None:
    assert parse_id(text) == CANONICAL


@each_row(
    "text",
    ["", "7", "not-an-id", CANONICAL + "0", CANONICAL[:-1], CANONICAL + "\n", "\0", "x" * 9999],
)
def test_anything_else_is_refused_with_the_name_of_the_field(text: str) -> None:
    with pytest.raises(InvalidArgument) as refusal:
        parse_id(text, "claim.job_id")

    assert refusal.value.field == "claim.job_id"
    assert str(refusal.value).startswith("claim.job_id ")
    assert len(str(refusal.value)) < 200

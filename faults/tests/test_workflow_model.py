"""The conditions of workflows, the shapes that are drawn, and what is wrong with the tables at rest."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from faults.workflows import tables
from faults.workflows.model import Counts, outcome_of, verdict
from faults.workflows.shapes import MOST, Shape, draw_shape
from faults.workflows.tables import Edge, WorkflowJobRow, WorkflowRow, WorkflowTables


@pytest.mark.parametrize(
    ("condition", "parents", "state"),
    [
        ("succeeded", [], "ready"),
        ("succeeded", ["succeeded", None], "waiting"),
        ("succeeded", ["succeeded", "succeeded"], "ready"),
        ("succeeded", ["failed", None], "dropped"),
        ("succeeded", ["canceled", "skipped"], "dropped"),
        ("succeeded", ["skipped", None], "skipped"),
        ("always", ["failed", None], "waiting"),
        ("always", ["failed", "skipped"], "ready"),
        ("failed", [], "ready"),
        ("failed", ["failed", None], "waiting"),
        ("failed", ["failed", "succeeded"], "ready"),
        ("failed", ["canceled"], "ready"),
        ("failed", ["succeeded", "skipped"], "skipped"),
    ],
)
def test_condition_decides_how_a_job_stands(condition: str, parents: list[str | None], state: str) -> None:
    assert verdict(condition, parents) == state


def test_skipped_job_is_canceled_with_an_outcome_of_its_own() -> None:
    assert outcome_of("CANCELED", "skipped") == "skipped"
    assert outcome_of("CANCELED", "waiting") == "canceled"
    assert outcome_of("RETRYING", "ready") is None


def test_shapes_are_acyclic_and_of_every_kind() -> None:
    random = Random(1)
    shapes = [draw_shape(random) for _ in range(300)]
    assert {shape.kind for shape in shapes} == {"any", "layers", "chain", "fan", "lattice"}
    assert {condition for shape in shapes for condition in shape.conditions} == {
        "succeeded",
        "failed",
        "always",
    }
    for shape in shapes:
        assert 2 <= len(shape.conditions) <= MOST
        assert all(1 <= parent < child <= len(shape.conditions) for parent, child in shape.edges)
        assert shape.kind not in ("chain", "fan") or shape.edges


def test_parents_of_a_job_are_in_order() -> None:
    shape = Shape("any", ("always",) * 3, frozenset({(2, 3), (1, 3)}))
    assert shape.parents_of(3) == [1, 2]


def a_workflow(**changes: Any) -> WorkflowTables:
    """A job and its child, both completed, with other values where some are named."""
    workflow = WorkflowRow("w", 2, 0, 2, 0, 0, 0, True, False)
    ended = ("ready", "succeeded", Counts(0, 0, 0), "COMPLETED")
    parent = WorkflowJobRow("a", "w", 1, "first", "succeeded", *ended)
    child = WorkflowJobRow("b", "w", 2, "second", "succeeded", *ended)
    return WorkflowTables(
        [workflow._replace(**changes.get("workflow", {}))],
        [parent._replace(**changes.get("parent", {})), child._replace(**changes.get("child", {}))],
        [Edge("w", 1, 2)],
        changes.get("noticed", frozenset()),
    )


def rules(tables: WorkflowTables) -> set[str]:
    return {wrong.rule for wrong in tables.wrong()}


def test_finished_workflow_has_nothing_wrong() -> None:
    assert rules(a_workflow()) == set()


WAITS = {"state": "waiting", "status": "PENDING", "outcome": None}
ONE_WAITS = {"unfinished": 1, "succeeded": 1, "is_finished": False}
DROPPED = {"state": "dropped", "status": "CANCELED", "outcome": "canceled"}
SKIPPED = {"state": "skipped", "status": "CANCELED", "outcome": "skipped"}
DEAD = {"status": "DEAD_LETTERED", "outcome": "failed"}
ONE_DROPPED = {"succeeded": 1, "canceled": 1}


@pytest.mark.parametrize(
    ("rule", "changes"),
    [
        (tables.COUNTS_AGREE, {"child": {"counts": Counts(1, 0, 0)}}),
        (tables.OUTCOMES_AGREE, {"parent": {"status": "DEAD_LETTERED"}}),
        (tables.TOTALS_AGREE, {"workflow": {"unfinished": 1}}),
        (tables.TOTALS_AGREE, {"workflow": {"is_finished": False}}),
        (tables.IS_WHOLE, {"workflow": {"jobs": 3}}),
        (tables.IS_WHOLE, {"child": {"name": "first"}}),
        (tables.NONE_WAITS_IN_VAIN, {"child": WAITS, "workflow": ONE_WAITS}),
        (tables.DROPPED_RIGHTLY, {"child": DROPPED, "workflow": ONE_DROPPED}),
        (
            tables.DROPPED_RIGHTLY,
            {
                "parent": DEAD,
                "child": SKIPPED | {"counts": Counts(0, 1, 0)},
                "workflow": {"succeeded": 0, "failed": 1, "skipped": 1},
            },
        ),
    ],
)
def test_fault_is_found_unless_a_settler_has_yet_to_look(rule: str, changes: dict[str, Any]) -> None:
    assert rules(a_workflow(**changes)) == {rule}
    assert rules(a_workflow(**changes, noticed=frozenset({"w"}))) == set()


def test_child_of_a_dead_job_is_dropped_rightly() -> None:
    dropped = a_workflow(
        workflow={"succeeded": 0, "failed": 1, "canceled": 1},
        parent=DEAD,
        child=DROPPED | {"counts": Counts(0, 1, 0)},
    )
    assert rules(dropped) == set()


def test_job_that_is_deleted_keeps_its_outcome() -> None:
    assert rules(a_workflow(parent={"status": None})) == set()


def test_canceled_workflow_drops_jobs_whatever_their_parents_did() -> None:
    canceled = a_workflow(workflow=ONE_DROPPED | {"is_canceled": True}, child=DROPPED)
    assert rules(canceled) == set()

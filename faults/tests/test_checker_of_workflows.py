"""I27 to I30: the checker finds jobs that start too early, twice or never, and workflows stored in part."""

from __future__ import annotations

import pytest

from faults.rules import ends, transitions, whole_workflows, workflows
from faults.tests.made_up import verdicts
from faults.tests.made_up.runs import MadeUpRun
from faults.tests.made_up.workflows import MadeUpWorkflow, Parents
from faults.workflows import tables

CHAIN: Parents = {"a": (), "b": ("a",)}
JOIN: Parents = {"a": (), "b": (), "c": ("a", "b")}


def broken(run: MadeUpRun, workflow: MadeUpWorkflow) -> set[str]:
    """The rules that the run violates."""
    workflow.store_tables()
    return {rule for _, rule in verdicts.broken(run)}


def of(run: MadeUpRun, parents: Parents, **conditions: str) -> MadeUpWorkflow:
    return MadeUpWorkflow(run, parents, conditions).submit()


def run_job(workflow: MadeUpWorkflow, name: str, outcome: str = "completed") -> None:
    workflow.jobs[name].run("worker-1", outcome)


# ---------------------------------------------------------------- I27: conditions


def test_chain_that_runs_in_order_is_right(run: MadeUpRun) -> None:
    chain = of(run, CHAIN)
    run_job(chain, "a")
    chain.ready("b")
    run_job(chain, "b")
    assert broken(run, chain) == set()


def test_child_that_is_ready_and_starts_before_its_parent_completed_is_found(run: MadeUpRun) -> None:
    chain = of(run, CHAIN)
    chain.ready("b")
    run_job(chain, "b")
    run_job(chain, "a")
    assert broken(run, chain) == {workflows.STARTS_AFTER, workflows.READY_AFTER}


def test_child_that_starts_after_a_dead_parent_is_found(run: MadeUpRun) -> None:
    chain = of(run, CHAIN)
    run_job(chain, "a", "discarded")
    chain.ready("b")
    run_job(chain, "b")
    assert workflows.STARTS_AFTER in broken(run, chain)


@pytest.mark.parametrize("outcome", ["completed", "discarded"])
def test_always_starts_after_any_end(run: MadeUpRun, outcome: str) -> None:
    chain = of(run, CHAIN, b="always")
    run_job(chain, "a", outcome)
    chain.ready("b")
    run_job(chain, "b")
    assert broken(run, chain) <= {ends.ENDS_AS_EXPECTED}


def test_always_that_starts_before_the_last_parent_ended_is_found(run: MadeUpRun) -> None:
    join = of(run, JOIN, c="always")
    run_job(join, "a")
    join.ready("c")
    run_job(join, "c")
    run_job(join, "b")
    assert {workflows.STARTS_AFTER, workflows.READY_AFTER} == broken(run, join)


def test_handler_of_failures_that_starts_although_all_parents_succeeded_is_found(run: MadeUpRun) -> None:
    chain = of(run, CHAIN, b="failed")
    run_job(chain, "a")
    chain.ready("b")
    run_job(chain, "b")
    assert {workflows.STARTS_AFTER, workflows.READY_AFTER} == broken(run, chain)


def test_skipped_parent_is_no_failure(run: MadeUpRun) -> None:
    chain = of(run, {"a": (), "b": ("a",), "c": ("b",)}, b="failed", c="failed")
    run_job(chain, "a")
    chain.skip("b")
    chain.ready("c")
    run_job(chain, "c")
    assert {workflows.STARTS_AFTER, workflows.READY_AFTER} == broken(run, chain)


def test_child_that_became_ready_stays_ready_when_its_parent_is_brought_back(run: MadeUpRun) -> None:
    chain = of(run, CHAIN, b="always")
    run_job(chain, "a", "discarded")
    chain.ready("b")
    chain.jobs["a"].redrive()
    run_job(chain, "b")
    run_job(chain, "a")
    assert broken(run, chain) == set()


# ---------------------------------------------------------------- I28: ready once


def test_job_that_is_claimed_while_it_waits_is_found(run: MadeUpRun) -> None:
    chain = of(run, CHAIN)
    run_job(chain, "a")
    chain.jobs["b"].become(ready=True)
    run_job(chain, "b")
    assert workflows.HELD_WAITS in broken(run, chain)


def test_job_that_becomes_ready_twice_is_found(run: MadeUpRun) -> None:
    chain = of(run, CHAIN)
    run_job(chain, "a")
    chain.ready("b")
    # The row has the mark again, by no transition that is recorded.
    run.changes.append(run.changes[-1]._replace(seq=run.number()))
    run_job(chain, "b")
    assert workflows.READY_ONCE in broken(run, chain)


def test_job_that_becomes_ready_after_its_workflow_was_canceled_is_found(run: MadeUpRun) -> None:
    chain = of(run, CHAIN)
    run_job(chain, "a")
    chain.cancel()
    run.wait(1_000_000)
    chain.ready("b")
    run_job(chain, "b")
    assert broken(run, chain) == {workflows.NONE_AFTER_CANCEL}


def test_job_of_a_workflow_that_was_brought_back_may_become_ready(run: MadeUpRun) -> None:
    chain = of(run, CHAIN)
    run_job(chain, "a")
    chain.cancel()
    chain.drop("b")
    chain.redrive()
    chain.bring_back("b")
    chain.ready("b")
    run_job(chain, "b")
    assert broken(run, chain) == set()


# ---------------------------------------------------------------- I7: as the workflow demands


def test_child_of_a_dead_job_is_canceled_without_a_request(run: MadeUpRun) -> None:
    chain = of(run, CHAIN)
    run_job(chain, "a", "discarded")
    chain.drop("b")
    assert transitions.ASKED_FOR not in broken(run, chain)


def test_child_that_is_canceled_although_its_parent_has_not_failed_is_found(run: MadeUpRun) -> None:
    chain = of(run, CHAIN)
    chain.drop("b")
    run_job(chain, "a", "discarded")
    assert transitions.ASKED_FOR in broken(run, chain)


def test_child_that_always_runs_is_canceled_on_request_only(run: MadeUpRun) -> None:
    chain = of(run, CHAIN, b="always")
    run_job(chain, "a", "discarded")
    chain.drop("b")
    assert transitions.ASKED_FOR in broken(run, chain)


def test_child_comes_back_with_its_parent(run: MadeUpRun) -> None:
    chain = of(run, CHAIN)
    run_job(chain, "a", "discarded")
    chain.drop("b")
    chain.jobs["a"].redrive()
    chain.bring_back("b")
    run_job(chain, "a")
    chain.ready("b")
    run_job(chain, "b")
    assert broken(run, chain) == set()


def test_child_that_comes_back_without_its_parent_is_found(run: MadeUpRun) -> None:
    chain = of(run, CHAIN)
    run_job(chain, "a", "discarded")
    chain.drop("b")
    chain.bring_back("b")
    chain.drop("b")
    assert transitions.ASKED_FOR in broken(run, chain)


# ---------------------------------------------------------------- I29: at rest


def test_child_that_waits_in_vain_is_found(run: MadeUpRun) -> None:
    chain = of(run, CHAIN)
    run_job(chain, "a")
    assert tables.NONE_WAITS_IN_VAIN in broken(run, chain)


@pytest.mark.parametrize(("seconds", "is_found"), [(1, False), (10, True)])
def test_job_that_counts_as_failed_long_after_it_completed_is_found(
    run: MadeUpRun, seconds: int, is_found: bool
) -> None:
    chain = of(run, CHAIN)
    run_job(chain, "a", "discarded")
    chain.jobs["a"].redrive()
    run_job(chain, "a")
    run.wait(seconds * 1_000_000)
    chain.count("a", "failed")
    chain.ready("b")
    run_job(chain, "b")
    assert (workflows.COUNTED_AS_IT_STANDS in broken(run, chain)) == is_found


def test_look_that_finds_a_workflow_out_of_step_is_reported(run: MadeUpRun) -> None:
    run.write("nemesis", "out_of_step", rule=tables.COUNTS_AGREE, text="…", job_id=None)
    assert verdicts.broken(run) == {("I29", tables.COUNTS_AGREE)}


# ---------------------------------------------------------------- I30: whole or not at all


def test_workflow_that_was_not_stored_is_right(run: MadeUpRun) -> None:
    chain = MadeUpWorkflow(run, CHAIN)
    chain.submit(how=None, without=["a", "b"])
    assert verdicts.broken(run) == set()


def test_workflow_that_is_stored_in_part_is_found(run: MadeUpRun) -> None:
    workflow = MadeUpWorkflow(run, {"a": (), "b": ()})
    workflow.submit(how=None, without=["b"])
    run_job(workflow, "a")
    assert ("I30", whole_workflows.STORED_WHOLE) in verdicts.broken(run)


def test_job_that_is_missing_in_its_workflow_is_found(run: MadeUpRun) -> None:
    workflow = of(run, {"a": (), "b": ()})
    run_job(workflow, "a")
    run_job(workflow, "b")
    assert ("I30", whole_workflows.STORED_WHOLE) in verdicts.broken(run)


def test_handler_that_runs_again_adds_nothing(run: MadeUpRun) -> None:
    workflow = of(run, {"a": ()})
    for _ in range(2):
        workflow.jobs["a"].claim("worker-1").beat().start()
        workflow.add("a", {"a+1": ("a",), "a+2": ("a",)})
        if workflow.jobs["a"].now.run == 1:
            workflow.jobs["a"].end("RuntimeError").fail().promote()
    workflow.jobs["a"].end().complete()
    for name in ("a+1", "a+2"):
        workflow.ready(name)
        run_job(workflow, name)
    assert broken(run, workflow) == set()


def test_job_that_is_added_twice_is_found(run: MadeUpRun) -> None:
    workflow = of(run, {"a": ()})
    workflow.jobs["a"].claim("worker-1").beat().start()
    workflow.add("a", {"a+1": ()})
    first = workflow.jobs.pop("a+1")
    del workflow.parents["a+1"]
    workflow.add("a", {"a+1": ()})
    workflow.jobs["a"].end().complete()
    first.run("worker-1")
    run_job(workflow, "a+1")
    assert whole_workflows.ADDED_ONCE in broken(run, workflow)


def test_additions_that_are_stored_in_part_are_found(run: MadeUpRun) -> None:
    workflow = of(run, {"a": ()})
    workflow.jobs["a"].claim("worker-1").beat().start()
    workflow.add("a", {"a+1": ()})
    workflow.add("a", {"a+1": (), "a+2": ()})
    workflow.jobs["a"].end().complete()
    run_job(workflow, "a+1")
    run_job(workflow, "a+2")
    assert whole_workflows.ADDED_WHOLE in broken(run, workflow)


def test_addition_by_a_run_that_had_ended_is_found(run: MadeUpRun) -> None:
    workflow = of(run, {"a": ()})
    workflow.jobs["a"].claim("worker-1").beat().start().end().complete()
    run.wait(10_000_000)
    workflow.add("a", {"a+1": ()})
    run_job(workflow, "a+1")
    assert broken(run, workflow) == {whole_workflows.ADDED_BY_HOLDER}

"""Workflows, between messages and the domain. Requests are checked here."""

from __future__ import annotations

from pulse.v1 import pulse_pb2 as pb
from pulse_server.domain import bounds
from pulse_server.domain.errors import InvalidArgument
from pulse_server.domain.unique import OnConflict
from pulse_server.domain.workflows import NewNode, Node, When, Workflow
from pulse_server.transport.grpc.convert_jobs import AttemptsOf, new_job
from pulse_server.transport.grpc.convert_times import timestamp


def new_node(wire: pb.WorkflowJob, max_attempts_of: AttemptsOf, *, is_added: bool) -> NewNode:
    """The job as it is stored. Raises InvalidArgument, which names the job."""
    name = bounds.check_name(wire.name)
    if name is None:
        raise InvalidArgument("name", "of a job is empty: jobs of a workflow have names.")
    try:
        if wire.job.job_id or wire.job.idempotency_key:
            raise InvalidArgument("job_id", "and idempotency_key are not for jobs of workflows: the name is.")
        job = new_job(wire.job, max_attempts_of)
        if job.unique is not None and job.unique.on_conflict is not OnConflict.SKIP:
            raise InvalidArgument(
                "unique.on_conflict",
                f"is {job.unique.on_conflict}: a taken key can only refuse the workflow, as `skip` does.",
            )
        if wire.before and not is_added:
            raise InvalidArgument(
                "before", "is for jobs that a running job adds. Use `after` of the other job."
            )
        when = _when(wire.when)
        if when is When.FAILED and not wire.after:
            raise InvalidArgument("when", "is 'failed', but no job in `after` could fail.")
        return NewNode(name, job, tuple(wire.after), when, tuple(wire.before))
    except InvalidArgument as error:
        raise InvalidArgument("jobs", f"has a job {name[:60]!r} that is refused: {error}") from None


def _when(text: str) -> When:
    try:
        return When(text or When.SUCCEEDED)
    except ValueError:
        raise InvalidArgument("when", f"{text[:40]!r} is none of {', '.join(When)}.") from None


def workflow_view(workflow: Workflow) -> pb.WorkflowView:
    return pb.WorkflowView(
        workflow_id=workflow.id,
        name=workflow.name,
        status=workflow.status,
        jobs=workflow.jobs,
        unfinished=workflow.unfinished,
        succeeded=workflow.succeeded,
        failed=workflow.failed,
        canceled=workflow.canceled,
        skipped=workflow.skipped,
        submitted_at=timestamp(workflow.submitted_at),
        finished_at=timestamp(workflow.finished_at),
        canceled_at=timestamp(workflow.canceled_at),
        schedule_id=workflow.schedule_id or "",
    )


def node_view(node: Node) -> pb.WorkflowJobView:
    return pb.WorkflowJobView(
        number=node.number,
        job_id=node.job_id,
        name=node.name,
        topic=node.topic,
        when=node.condition,
        state=node.state,
        status=node.status or "",
        outcome=node.outcome or "",
        parents=node.parents,
        unended=node.unended,
        last_error=node.last_error or "",
        result=node.result,
        started_at=timestamp(node.started_at),
        finished_at=timestamp(node.finished_at),
        next_run_at=timestamp(node.next_run_at),
        attempts=node.attempts or 0,
        waiting=None if node.waits_for is None else pb.Waiting(signal=node.waits_for),
    )

"""Bad requests about workflows. A submit is a stream: the requests of one are in test_rpc_workflows.py."""

from collections.abc import Iterator
from typing import Any

import grpc
from google.protobuf.duration_pb2 import Duration

from pulse.v1 import pulse_pb2 as pb
from tests.transport.bad_requests import LONG, MISSING, UNKNOWN_ID, Case

CLAIM = pb.Claim(job_id=UNKNOWN_ID, attempt=1)


def bad_node(**fields: Any) -> pb.WorkflowJob:
    job = pb.SubmitJobRequest(**({"topic": "mail"} | fields.pop("job", {})))
    return pb.WorkflowJob(**({"name": "a", "job": job} | fields))


# Jobs that a submit and an addition refuse alike: the job, and words of the refusal.
BAD_NODES = {
    "no name": (bad_node(name=""), "name"),
    "long name": (bad_node(name=LONG), "name"),
    "NUL in the name": (bad_node(name="a\0"), "name"),
    "bad topic": (bad_node(job={"topic": "a b"}), "'a'"),
    "id of its own": (bad_node(job={"job_id": UNKNOWN_ID}), "job_id"),
    "key": (bad_node(job={"idempotency_key": "k"}), "idempotency_key"),
    "unknown condition": (bad_node(when="never"), "when"),
    "after no failure": (bad_node(when="failed"), "when"),
    "replaces": (bad_node(job={"unique": pb.Unique(key="k", on_conflict="replace")}), "on_conflict"),
    "attempts": (bad_node(job={"max_attempts": 0}), "max_attempts"),
}


def bad_workflow_requests() -> Iterator[Case]:
    yield from _bad_additions()
    yield Case("empty id", pb.GetWorkflowRequest(), "workflow_id")
    yield Case("malformed id", pb.GetWorkflowRequest(workflow_id="42"), "workflow_id")
    yield Case("unknown id", pb.GetWorkflowRequest(workflow_id=UNKNOWN_ID), UNKNOWN_ID, MISSING)
    for seconds in (-1, 61):
        wait = pb.GetWorkflowRequest(workflow_id=UNKNOWN_ID, wait=Duration(seconds=seconds))
        yield Case("bad wait", wait, "wait")
    yield Case("unknown status", pb.ListWorkflowsRequest(status="DONE"), "status")
    yield Case("negative limit", pb.ListWorkflowsRequest(limit=-1), "limit")
    yield Case("invented token", pb.ListWorkflowsRequest(page_token="x"), "page_token")
    yield Case("long name", pb.ListWorkflowsRequest(name=LONG), "name")
    yield Case("neither id", pb.ListWorkflowJobsRequest(), "workflow_id")
    both = pb.ListWorkflowJobsRequest(workflow_id=UNKNOWN_ID, parents_of=UNKNOWN_ID)
    yield Case("both ids", both, "workflow_id")
    yield Case("unknown id", pb.ListWorkflowJobsRequest(workflow_id=UNKNOWN_ID), UNKNOWN_ID, MISSING)
    yield Case("unknown job", pb.ListWorkflowJobsRequest(parents_of=UNKNOWN_ID), UNKNOWN_ID, MISSING)
    for token in ("x", "-1", "٣", "9" * 30):
        tokens = pb.ListWorkflowJobsRequest(workflow_id=UNKNOWN_ID, page_token=token)
        yield Case("invented token", tokens, "page_token")
    names = pb.ListWorkflowJobsRequest(workflow_id=UNKNOWN_ID, names=["a"] * 1001)
    yield Case("too many names", names, "names")
    for make in (pb.CancelWorkflowRequest, pb.RetryWorkflowRequest):
        yield Case("empty id", make(), "workflow_id")
        yield Case("unknown id", make(workflow_id=UNKNOWN_ID), UNKNOWN_ID, MISSING)
    attempts = pb.RetryWorkflowRequest(workflow_id=UNKNOWN_ID, attempts=0)
    yield Case("no attempts", attempts, "attempts")


def _bad_additions() -> Iterator[Case]:
    def add(**fields: Any) -> pb.AddToWorkflowRequest:
        usual: dict[str, Any] = {"worker_id": "w1", "claim": CLAIM, "jobs": [bad_node()]}
        return pb.AddToWorkflowRequest(**(usual | fields))

    yield Case("no worker", add(worker_id=""), "worker_id")
    yield Case("no claim", add(claim=None), "attempt")
    yield Case("malformed id", add(claim=pb.Claim(job_id="42", attempt=1)), "job_id")
    yield Case("no jobs", add(jobs=[]), "jobs")
    yield Case("too many jobs", add(jobs=[bad_node()] * 1001), "jobs")
    yield Case("unknown job", add(), UNKNOWN_ID, grpc.StatusCode.NOT_FOUND)
    yield Case("same name twice", add(jobs=[bad_node(), bad_node()]), "'a' twice")
    yield Case("waits for itself", add(jobs=[bad_node(after=["a"])]), "after")
    yield Case("waits for a later one", add(jobs=[bad_node(after=["b"]), bad_node(name="b")]), "after")
    for name, (node, words) in BAD_NODES.items():
        yield Case(name, add(jobs=[node]), words)

"""Workflows: jobs that wait for jobs. ADR-0077

It imports `work`, `topics`, `dispatch` and the rooms below them. Start with `rules.py`, then
`WorkflowSettler` in `service.py`; the verdict on a job is a function of the database, `workflow_verdict_v1`.
"""

from __future__ import annotations

from dataclasses import dataclass

from pulse_server.base.loops import Loop
from pulse_server.dispatch import DispatchRoom
from pulse_server.doors.lines import Lines
from pulse_server.topics import TopicsRoom
from pulse_server.wakeups import Foundation
from pulse_server.work.jobs import Jobs
from pulse_server.workflows.rpcs import WorkflowRpcs
from pulse_server.workflows.service import WorkflowPublisher, Workflows, WorkflowSettler
from pulse_server.workflows.store import PostgresWorkflowRepo


@dataclass(frozen=True, slots=True)
class WorkflowsRoom:
    settler: WorkflowSettler
    rpcs: WorkflowRpcs

    @property
    def loops(self) -> tuple[Loop, ...]:
        return (self.settler.loop,)


def workflows_of(
    base: Foundation, dispatch: DispatchRoom, topics: TopicsRoom, jobs: Jobs, lines: Lines
) -> WorkflowsRoom:
    settings = base.settings
    store = PostgresWorkflowRepo(base.database, settings.lease_ttl)
    publisher = WorkflowPublisher(base.metrics, base.watchers, dispatch.roster)
    settler = WorkflowSettler(store, publisher)
    most = settings.max_workflow_jobs
    service = Workflows(store, base.jobs, jobs, dispatch.publisher, publisher, settler, most)
    return WorkflowsRoom(settler, WorkflowRpcs(service, topics.rules.max_attempts, topics.notes, lines))

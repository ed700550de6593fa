"""What the proto does not document about each RPC: its effect, and its errors.

Refusals that any call may meet are not here. tests/docs/test_rpc_refusals.py provokes each of these.
"""

from typing import NamedTuple

from pulse_server.base import bounds

NO_JOB = ("NOT_FOUND", "there is no such job")
NO_SCHEDULE = ("NOT_FOUND", "there is no such schedule")


class Note(NamedTuple):
    """What an RPC does, and the codes that it answers with for reasons of its own."""

    text: str
    refusals: tuple[tuple[str, str], ...] = ()


NOTES = {
    # --- producers
    "SubmitJob": Note(
        "Stores one job. The response follows the commit: an acknowledged job is not lost. Send the same "
        "`job_id` again when a response is lost.",
        (("ALREADY_EXISTS", "the id or the key belongs to a job with another topic or payload"),),
    ),
    "SubmitJobs": Note(
        f"Stores up to {bounds.MAX_JOBS_PER_SUBMIT:,} jobs. Each is checked on its own, and has the result "
        "that `SubmitJob` would have returned."
    ),
    "StreamSubmits": Note("Carries many `SubmitJobs` over one stream."),
    # --- anyone
    "GetJob": Note("Returns everything about a job, including its payload and history.", (NO_JOB,)),
    "ListJobs": Note("Lists the jobs that match, newest first, a page at a time."),
    "CancelJob": Note(
        "Cancels a job. If a worker holds it, the worker is asked to stop, and its report is refused. A job "
        "that is canceled already stays so.",
        (NO_JOB, ("FAILED_PRECONDITION", "the job is COMPLETED or DEAD_LETTERED")),
    ),
    "RetryJob": Note(
        "Retries a job that was dead-lettered or canceled.",
        (NO_JOB, ("FAILED_PRECONDITION", "the job is neither DEAD_LETTERED nor CANCELED")),
    ),
    "PrioritizeJob": Note(
        "Changes the priority of a job.",
        (NO_JOB, ("FAILED_PRECONDITION", "the job is finished")),
    ),
    "DeleteJob": Note(
        "Deletes a job.",
        (NO_JOB, ("FAILED_PRECONDITION", "the job is not finished: cancel it first")),
    ),
    "WhoAmI": Note("Returns the caller's user, its role, and the calls it may make."),
    # --- operators
    "FindJobs": Note("Finds jobs by the beginning of their ids."),
    "SearchJobs": Note(
        "Searches jobs by a part of their id, topic, worker, lane or keys, and by fields of their payloads."
    ),
    "CountJobs": Note("Counts the jobs that match."),
    "CancelJobs": Note(
        "Cancels jobs that match, as `CancelJob` does; those whose status has changed are skipped."
    ),
    "RetryJobs": Note("Retries the jobs that match; skips jobs that were retried in between."),
    "PrioritizeJobs": Note("Changes the priority of the jobs that match."),
    "DeleteJobs": Note("Deletes the jobs that match; skips jobs that were retried in between."),
    "UndoAction": Note(
        "Reverts a cancel, a retry or a change of priority, where a job is still as that action left it."
    ),
    "ExportJobs": Note(
        "Streams finished jobs with their payloads and histories, oldest first. If the stream ends before "
        "its last message, continue with the last token, at any server."
    ),
    "AwaitJobs": Note(
        "Waits for any number of jobs: the caller names them as it goes, and each is sent once, as soon as "
        "it is finished, or is not there. The server looks at all of them again and again, so nothing is "
        "missed. If the stream ends early, name those that are left on another, at any server."
    ),
    "WatchJobs": Note(
        "Streams each change of a job's status as it happens, until the caller ends the stream."
    ),
    "ListTopics": Note(
        "Returns the depth and the rates of each topic. All callers share one sample, which "
        "may be a few seconds old."
    ),
    "ListWorkers": Note(
        "Lists the workers connected to any server, and those that hold jobs without a connection."
    ),
    "ListServers": Note("Lists the servers that share this database."),
    "Explain": Note(
        "Explains why jobs do not run, or why a topic starts no jobs: the first gate of the claim that is "
        "closed, what must happen, and about when. Deleted jobs are left out.",
        (("NOT_FOUND", "a single job is asked for, and there is no such job"),),
    ),
    "ListDeadLetterGroups": Note("Lists dead letters grouped by error, with the size of each group."),
    "GetStatistics": Note("Returns counts and durations, minute by minute."),
    "ListFindings": Note(
        "Returns what needs attention, by harm: one finding per topic. All callers share one sample, which "
        "may be a few seconds old."
    ),
    # --- workers
    "StreamJobs": Note(
        "Sends jobs to a worker while the stream is open, never more at a time than the capacity it "
        "reports. The worker has a lease on each, and keeps it with heartbeats."
    ),
    "ReportResult": Note(
        "Reports how an attempt ended. A repeated report returns OK.",
        (
            NO_JOB,
            (
                "FAILED_PRECONDITION",
                "the claim no longer holds: the job is not RUNNING, or another worker holds it",
            ),
        ),
    ),
    "ReportResults": Note(
        f"Reports how up to {bounds.MAX_RESULTS_PER_REPORT:,} attempts ended. Each is checked alone; those "
        "that `ReportResult` would have refused are listed."
    ),
    "StreamReports": Note("Carries many `ReportResults` over one stream, as `StreamSubmits` does."),
    "Heartbeat": Note("Extends the lease on one job, or returns that it is lost."),
    "Heartbeats": Note(
        f"Extends the leases on up to {bounds.MAX_CLAIMS_PER_HEARTBEAT:,} jobs, and returns the lost ones."
    ),
    "Release": Note(
        "Releases jobs that were not started, without costing an attempt. Claims that no longer hold are "
        "skipped."
    ),
    # --- schedules
    "CreateSchedule": Note(
        "Stores a schedule, which creates a job at each of its occurrences.",
        (
            (
                "ALREADY_EXISTS",
                "the name belongs to a schedule with another definition, and `replace` is not set",
            ),
        ),
    ),
    "DeclareSchedules": Note(
        "Records which schedules the code of an application declares. Schedules that it declared earlier are "
        "marked as vanished from its code, and still fire."
    ),
    "PauseSchedule": Note("Pauses a schedule.", (NO_SCHEDULE,)),
    "ResumeSchedule": Note("Resumes a schedule with its next occurrence.", (NO_SCHEDULE,)),
    "DeleteSchedule": Note("Deletes a schedule. The jobs that it created stay.", (NO_SCHEDULE,)),
    "ListSchedules": Note("Lists schedules, oldest first, a page at a time."),
    "ListScheduleJobs": Note(
        "Lists the jobs that a schedule created, newest first. They outlive the schedule."
    ),
    "ListScheduleFires": Note("Lists when a schedule fired, newest first, with the status of each job."),
    "GetSchedule": Note("Returns a schedule by its id or its name.", (NO_SCHEDULE,)),
    "UpdateSchedule": Note(
        "Changes entries of a schedule. Code that declares the schedule does not change them again, until "
        "they are in `returned`.",
        (NO_SCHEDULE,),
    ),
    "FireSchedule": Note(
        "Creates the schedule's job now; its timetable does not change.",
        (NO_SCHEDULE, ("ALREADY_EXISTS", "the job id belongs to a job that this schedule did not create")),
    ),
    "PreviewSchedule": Note(
        f"Returns the next fires of a schedule, up to {bounds.MAX_PREVIEW}. Stores nothing."
    ),
    "GetSchedulerStatus": Note("Returns how many schedules there are, and whether they fire on time."),
    # --- dispatch
    "PauseDispatch": Note("Pauses dispatch of one topic or of all."),
    "ResumeDispatch": Note("Resumes dispatch."),
    "GetDispatchStatus": Note("Returns the pauses, with their start, user and reason."),
    "SetWorkerState": Note(
        "Orders a connected worker to take no further jobs (`quiet`), to end as after SIGTERM "
        "(`stopping`), or to take jobs again (`running`), at whichever server it is connected. Holds until "
        "an operator orders otherwise, or the process ends. A worker whose client does not know how to "
        "stop becomes quiet, and the response has a note. NOT_FOUND if the worker is not connected; one "
        "that has a state can be resumed nevertheless."
    ),
    # --- settings of topics
    "SetTopic": Note(
        "Sets what limits a topic, how its jobs run, and how long finished ones are kept, where this differs "
        "from the settings of the servers and from what workers declare. The topic need not have jobs. What "
        "is set here wins until it is reset. It counts at all servers within moments."
    ),
    "DeclareTopics": Note(
        "Declares how the jobs of topics run and what limits them, by the code of a worker, when it connects."
        " Of how jobs run the newest declaration holds; of limits the strictest of connected workers does, "
        "and is in force when the call returns. What an operator has set wins over both. Returns the "
        "declarations of other workers that it replaced."
    ),
    "ListTopicSettings": Note(
        "Lists the topics that have settings of their own, with each owner's entries and the values in force,"
        " and the settings of the answering server for all others."
    ),
    # --- limits and lanes
    "ListLimits": Note(
        "Lists the topics that have limits: the limits in force, the running jobs, and when the next job "
        "may start. Set limits with SetTopic."
    ),
    "ListLanes": Note(
        "Lists lanes of a topic, of the 10,000 that were used last: those that have waited the longest, or "
        "those with the most running jobs."
    ),
    "HoldTopic": Note(
        "Starts no job of a topic, and of its pool, for a while, at any server: for an API that asks to be "
        "left alone. Running jobs go on. Of several holds the longest counts; a duration of zero ends it. "
        "INVALID_ARGUMENT if the topic has no limits."
    ),
    "SetLane": Note(
        "Sets the weight and the limit of one lane. INVALID_ARGUMENT if the topic has no lanes, or for a "
        "limit if it has no `per_lane`."
    ),
    # --- steps and signals
    "StoreSteps": Note(
        "Stores what steps of running jobs have returned, before their handlers go on. Each is fenced by its "
        "claim, and answered for alone. A step of that name that is stored stays, and is returned: a repeat "
        "is safe."
    ),
    "TakeSignal": Note(
        "Stores the oldest signal of a name that no step has taken as a step, or that it did not come in "
        "time. Without one, the worker reports a suspension, and the job waits. Fenced and repeatable as "
        "StoreSteps."
    ),
    "ListSteps": Note("Lists the steps of a job. A completed job keeps them without their values."),
    "SignalJob": Note(
        "Sends a signal to a job that is not finished. It is kept until a step takes it; a job that waits "
        "for it becomes ready at once. The same `signal_id` again changes nothing. FAILED_PRECONDITION if "
        "the job is finished."
    ),
    # --- workflows
    "SubmitWorkflow": Note(
        "Stores a workflow with all its jobs in one transaction, or nothing. The same `workflow_id` with the "
        "same content again returns the ids of the first submit. ALREADY_EXISTS if the id belongs to another "
        "workflow, or if other jobs hold unique keys of its jobs. INVALID_ARGUMENT for a cycle, an unknown "
        "name in `after`, a name twice, or too many jobs. RESOURCE_EXHAUSTED while the server reads too many "
        "workflows."
    ),
    "AddToWorkflow": Note(
        "Adds jobs to the workflow of a running job. Fenced by its claim. A repeat is safe: jobs whose names "
        "exist are left out. All jobs are added, or none. FAILED_PRECONDITION if the claim does not hold, "
        "the job has no workflow, the workflow was canceled or would be too large, a name is unknown, a job "
        "in `before` no longer waits, or other jobs hold the unique keys."
    ),
    "GetWorkflow": Note(
        "Returns a workflow, with the number of its jobs by outcome. With `wait` it returns when the "
        "workflow has ended. NOT_FOUND if there is no such workflow."
    ),
    "ListWorkflows": Note("Lists workflows, newest first, a page at a time."),
    "ListWorkflowJobs": Note(
        "Lists the jobs of a workflow, or the parents of a job, a page at a time. NOT_FOUND if there is no "
        "such workflow or job, FAILED_PRECONDITION if the job has no workflow."
    ),
    "CancelWorkflow": Note(
        "Cancels a workflow as a whole. Jobs that have not ended are canceled; workers are asked to stop. "
        "Jobs that wait for other jobs are canceled a moment after the call. A workflow that has ended stays "
        "as it is. NOT_FOUND if there is no such workflow."
    ),
    "RetryWorkflow": Note(
        "Retries the dead-lettered and canceled jobs of a workflow. Jobs that wait for them wait again, a "
        "moment after the call. Completed jobs do not run again. NOT_FOUND if there is no such workflow."
    ),
    "ListAudit": Note(
        "The changes that callers made, and the refused ones, newest first. A bulk action is one entry. "
        "[Who changed what](../operations/watch.md#who-changed-what) has the rules."
    ),
}

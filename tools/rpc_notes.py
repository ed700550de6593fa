"""What the proto does not say about each RPC: what it does, and what it may be refused for.

Refusals that any call may meet are not here. tests/docs/test_rpc_refusals.py provokes each of these.
"""

from typing import NamedTuple

from pulse_server.domain import limits

NO_JOB = ("NOT_FOUND", "there is no such job")
NO_SCHEDULE = ("NOT_FOUND", "there is no such schedule")


class Note(NamedTuple):
    """What an RPC does, and the codes that it answers with for reasons of its own."""

    text: str
    refusals: tuple[tuple[str, str], ...] = ()


NOTES = {
    # --- producers
    "SubmitJob": Note(
        "Stores one job. The answer comes after the commit: a job that was answered is safe. Send the same "
        "`job_id` again when an answer is lost.",
        (("ALREADY_EXISTS", "the id or the key belongs to a job with another topic or payload"),),
    ),
    "SubmitJobs": Note(
        f"Stores up to {limits.MAX_JOBS_PER_SUBMIT:,} jobs. Each is judged on its own, and has the answer "
        "that `SubmitJob` would have given."
    ),
    "StreamSubmits": Note("Carries many `SubmitJobs` over one stream."),
    # --- anyone
    "GetJob": Note("Tells everything about a job, its payload and history included.", (NO_JOB,)),
    "ListJobs": Note("Lists the jobs that match, newest first, a page at a time."),
    "CancelJob": Note(
        "Calls a job off. If a worker holds it, it is told to stop, and what it reports is refused. A job "
        "that is cancelled already stays so.",
        (NO_JOB, ("FAILED_PRECONDITION", "the job is COMPLETED or DEAD_LETTERED")),
    ),
    "RetryJob": Note(
        "Brings a job back that was dead-lettered or cancelled.",
        (NO_JOB, ("FAILED_PRECONDITION", "the job is neither DEAD_LETTERED nor CANCELED")),
    ),
    "PrioritizeJob": Note(
        "Gives a job another priority.",
        (NO_JOB, ("FAILED_PRECONDITION", "the job is finished")),
    ),
    "DeleteJob": Note(
        "Deletes a job for good.",
        (NO_JOB, ("FAILED_PRECONDITION", "the job is not finished: cancel it first")),
    ),
    "WhoAmI": Note("Tells callers who they are taken for."),
    # --- operators
    "FindJobs": Note("Finds jobs by the beginning of their ids."),
    "CountJobs": Note("Counts the jobs that match."),
    "CancelJobs": Note(
        "Cancels jobs that match, as `CancelJob` does; those that have moved on are passed over."
    ),
    "RetryJobs": Note("Brings jobs back that match; those that somebody else has retried are passed over."),
    "PrioritizeJobs": Note("Gives the jobs that match another priority."),
    "DeleteJobs": Note("Deletes the jobs that match; those that somebody has retried are passed over."),
    "WatchJobs": Note("Tells each change of a job's status as it happens, until the caller leaves."),
    "ListTopics": Note(
        "Tells of each topic how deep it is and how fast it goes. The sample is shared by all who ask, and "
        "may be a few seconds old."
    ),
    "ListWorkers": Note("Tells who is connected to any server, and who holds jobs without being connected."),
    "ListServers": Note("Tells which servers share this database."),
    "ListDeadLetterGroups": Note("Tells what the dead letters died of, and how many of each there are."),
    "GetStatistics": Note("Tells what happened, minute by minute."),
    # --- workers
    "StreamJobs": Note(
        "Hands jobs to a worker for as long as the stream is open, never more at a time than the worker says "
        "it can hold. The worker has a lease on each, and has to beat to keep it."
    ),
    "ReportResult": Note(
        "Tells how an attempt ended. A repeat of a report that was taken answers OK.",
        (NO_JOB, ("FAILED_PRECONDITION", "the claim does not hold any more: the job is somebody else's")),
    ),
    "ReportResults": Note(
        f"Tells how up to {limits.MAX_RESULTS_PER_REPORT:,} attempts ended. Each is judged on its own; those "
        "that `ReportResult` would have refused are listed."
    ),
    "StreamReports": Note("Carries many `ReportResults` over one stream, as `StreamSubmits` does."),
    "Heartbeat": Note("Extends the lease on one job, or says that it is lost."),
    "Heartbeats": Note(
        f"Extends the leases on up to {limits.MAX_CLAIMS_PER_HEARTBEAT:,} jobs, and tells which are lost."
    ),
    "Release": Note(
        "Gives jobs back that were not started, with their attempts. Claims that do not hold are passed over."
    ),
    # --- schedules
    "CreateSchedule": Note(
        "Stores a schedule, which makes a job at each of its occurrences.",
        (
            (
                "ALREADY_EXISTS",
                "the name belongs to a schedule with another definition, and `replace` is not set",
            ),
        ),
    ),
    "PauseSchedule": Note("Lets a schedule fire no more.", (NO_SCHEDULE,)),
    "ResumeSchedule": Note("Lets a schedule go on with its next occurrence.", (NO_SCHEDULE,)),
    "DeleteSchedule": Note("Removes a schedule. The jobs that it made stay.", (NO_SCHEDULE,)),
    "ListSchedules": Note("Lists schedules, oldest first, a page at a time."),
    "ListScheduleJobs": Note("Lists the jobs that a schedule made, newest first. They outlive the schedule."),
    "ListScheduleFires": Note("Lists when a schedule fired, newest first, and what became of the jobs."),
    "GetSchedule": Note("Tells everything about a schedule, given its id or its name.", (NO_SCHEDULE,)),
    "UpdateSchedule": Note("Changes a schedule.", (NO_SCHEDULE,)),
    "FireSchedule": Note(
        "Makes the schedule's job now; its timetable goes on as before.",
        (NO_SCHEDULE, ("ALREADY_EXISTS", "the job id belongs to a job that this schedule did not make")),
    ),
    "PreviewSchedule": Note(
        f"Tells when a schedule would fire, up to {limits.MAX_PREVIEW} times ahead. Stores nothing."
    ),
    "GetSchedulerStatus": Note("Tells how many schedules there are, and whether they fire in time."),
    # --- the pause switch
    "PauseDispatch": Note("Hands out no more jobs, of one topic or of all."),
    "ResumeDispatch": Note("Hands out jobs again."),
    "GetDispatchStatus": Note("Tells what is paused, since when and why."),
}

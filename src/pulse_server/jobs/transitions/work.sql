-- The ends of a claim: completed, failed, extended, released, reaped. jobs.sql has the rules for
-- all transitions.

-- name: complete_jobs(ids, workers, worker, attempts, runs, results)
-- From RUNNING to COMPLETED, if the claim still holds: the row moves from pulse.jobs to
-- completed_jobs, with the result of its handler. last_error stays: it shows why earlier attempts
-- failed. Returns the claims that counted by topic, each by its place in the request: two may name
-- the same job. ADR-0057, ADR-0067
-- Limits, steps and workflows are left to functions that are not called for NULL, the array of no
-- job: a CTE costs every statement 12 to 20 us, even if it does nothing. ADR-0064, ADR-0069, ADR-0077
-- In a drain this statement has a thousand claims. The driver encodes one text faster than a
-- thousand ids or numbers, and decodes arrays faster than rows.
-- :worker has the index into :workers of each claim. All parameters but :workers and :results are
-- the text of an array.
WITH claim AS NOT MATERIALIZED (
    {compact_claims}
),
{completed_and_moved}
SELECT
    completed.topic,
    array_agg(date_part('epoch', completed.finished_at - completed.started_at)) AS ran_seconds,
    array_agg(completed.place) AS places,
    pulse.runs_completed_v1(
        completed.topic,
        array_agg(completed.pool) FILTER (WHERE completed.pool IS NOT NULL),
        array_agg(completed.lane_held) FILTER (WHERE completed.pool IS NOT NULL)
    ) AS noticed,
    pulse.forget_steps_v1(array_agg(completed.id) FILTER (WHERE completed.steps IS NOT NULL)) AS forgotten,
    pulse.notice_workflows_v1(
        array_agg(completed.id) FILTER (WHERE completed.workflow_id IS NOT NULL),
        array_agg(completed.workflow_id) FILTER (WHERE completed.workflow_id IS NOT NULL)
    ) AS in_workflows
FROM completed
GROUP BY completed.topic;

-- name: complete_in_place(ids, workers, worker, attempts, runs, results)
-- complete_jobs for jobs that must stay in pulse.jobs: their ids have stamps in the future
-- (jobs/leases.py).
WITH claim AS NOT MATERIALIZED (
    {compact_claims}
),
{completed_in_place}
SELECT ended.topic, array_agg(ended.ran_seconds) AS ran_seconds, array_agg(ended.place) AS places
FROM ended
GROUP BY ended.topic;

-- name: fail_jobs(ids, workers, attempts, runs, errors, retry_after, discards, error_groups, timed_out, is_policy, backoff, progress)
-- From RUNNING to RETRYING, or to DEAD_LETTERED if no attempt is left or the worker discards the
-- job; if the claim still holds. The next attempt is due after the backoff of the topic, unless the
-- worker set another delay. A delay from the worker's policy gives way to a backoff that an
-- operator has set.
-- :is_policy: the delay comes from the worker's policy.
-- :backoff comes from the settings.
-- :progress has progress that is not stored yet; empty: there is none.
WITH ended AS (
    UPDATE pulse.jobs AS job
    SET status = CASE WHEN {failure_is_final} THEN 'DEAD_LETTERED' ELSE 'RETRYING' END,
        ended_as = CASE WHEN {failure_is_final} THEN 'DEAD_LETTERED' END,
        queued = false,
        finished_at = CASE WHEN {failure_is_final} THEN clock_timestamp() END,
        finished_by = CASE WHEN {failure_is_final} THEN job.locked_by END,
        next_run_at = clock_timestamp() + (
            SELECT CASE
                WHEN claim.retry_after IS NULL OR (claim.is_policy AND rules.backoff_by_operator)
                THEN pulse.retry_delay_v1(COALESCE(rules.backoff, :backoff::text::jsonb), job.attempts)
                ELSE claim.retry_after
            END
            FROM (SELECT) AS always
            LEFT JOIN pulse.topic_rules AS rules ON rules.topic = job.topic
        ),
        start_by = NULL,
        waits_for = NULL,
        last_error = claim.error,
        error_group = CASE WHEN {failure_is_final} THEN claim.error_group ELSE '' END,
        history = pulse.with_attempt_v1(
            job.history, job.attempts, job.run, job.locked_by, job.started_at,
            CASE WHEN claim.discard THEN 'discarded' WHEN claim.timed_out THEN 'timed_out' ELSE 'failed' END, claim.error),
        progress = {progress_with_report},
        locked_by = NULL,
        lease_until = NULL
    FROM unnest(
            :ids::uuid[], :workers::text[], :attempts::int[], :runs::int[], :errors::text[], :retry_after::interval[], :discards::bool[], :error_groups::text[], :timed_out::bool[], :is_policy::bool[],
            :progress::text[]
        ) AS claim (id, worker_id, attempt, run, error, retry_after, discard, error_group, timed_out, is_policy, progress)
    WHERE {claim_holds}
    RETURNING claim.id, claim.worker_id, claim.attempt, claim.run, job.topic,
        date_part('epoch', clock_timestamp() - job.started_at) AS ran_seconds, job.status, {freed_by}
),
{notices_of_ended}
SELECT ended.id, ended.worker_id, ended.attempt, ended.run, ended.topic, ended.ran_seconds, ended.status FROM ended;

-- name: snooze_jobs(ids, workers, attempts, runs, delays, reasons, most_snoozes, error, error_group, progress)
-- From RUNNING to RETRYING, due after the delay that its handler asked for; if the claim still
-- holds. This costs no attempt. To DEAD_LETTERED after :most_snoozes snoozes. The history keeps
-- only the last of several snoozes in a row: they must not push out the failures. :error and
-- :error_group are for dead-lettered jobs.
WITH ended AS (
    UPDATE pulse.jobs AS job
    SET status = CASE WHEN {snooze_is_final} THEN 'DEAD_LETTERED' ELSE 'RETRYING' END,
        ended_as = CASE WHEN {snooze_is_final} THEN 'DEAD_LETTERED' END,
        queued = false,
        finished_at = CASE WHEN {snooze_is_final} THEN clock_timestamp() END,
        finished_by = CASE WHEN {snooze_is_final} THEN job.locked_by END,
        attempts = job.attempts - 1,
        snoozes = COALESCE(job.snoozes, 0) + 1,
        next_run_at = clock_timestamp() + claim.delay,
        start_by = NULL,
        waits_for = NULL,
        last_error = CASE WHEN {snooze_is_final} THEN :error::text ELSE job.last_error END,
        error_group = CASE WHEN {snooze_is_final} THEN :error_group::text ELSE '' END,
        history = pulse.with_attempt_v1(
            CASE WHEN job.history -> -1 ->> 'outcome' = 'snoozed' THEN job.history - -1 ELSE job.history END,
            job.attempts, job.run, job.locked_by, job.started_at, 'snoozed', claim.reason),
        progress = {progress_with_report},
        locked_by = NULL,
        lease_until = NULL
    FROM unnest(:ids::uuid[], :workers::text[], :attempts::int[], :runs::int[], :delays::interval[], :reasons::text[], :progress::text[])
        AS claim (id, worker_id, attempt, run, delay, reason, progress)
    WHERE {claim_holds}
    RETURNING claim.id, claim.worker_id, claim.attempt, claim.run, job.topic,
        date_part('epoch', clock_timestamp() - job.started_at) AS ran_seconds, job.status, {freed_by}
),
{notices_of_ended}
SELECT ended.id, ended.worker_id, ended.attempt, ended.run, ended.topic, ended.ran_seconds, ended.status FROM ended;

-- name: extend_leases(ids, workers, attempts, runs, lease, time_limits, progress, confirm_by)
-- RUNNING stays RUNNING, for another lease, if the claim still holds. A claim that is not returned
-- is lost: its worker must stop. Workers extend a job's lease once it has started, so the attempt
-- counts from now on. The lease check of the job stays in place, and is moved once it is due. No
-- lease is extended past the time limit of its attempt plus the grace, so that a hanging worker
-- cannot hold a job for ever. A lease is never shortened: its lease check would come too late.
-- Returns with each claim whether that time has passed: its worker must stop, and the lease ends. A
-- confirmation that runs after its time does not count the attempt: its worker may have died before
-- it ran. The lease is still extended. Returns with each claim whether the attempt counts, and with a
-- confirmation the end of its lease, for take_back_starts. ADR-0043
-- Returns the new progress, if it was given, without the cursor. :time_limits has seconds by topic,
-- see end_of_time_limit; :confirm_by has seconds since 1970. Both, and :progress, may be NULL. So
-- may entries of :confirm_by and :progress.
UPDATE pulse.jobs AS job
SET lease_until = CASE
        WHEN :time_limits::text IS NULL THEN clock_timestamp() + :lease::interval
        ELSE GREATEST(job.lease_until, LEAST(clock_timestamp() + :lease::interval, {end_of_time_limit}))
    END,
    delivered = job.delivered OR claim.confirm_by IS NULL OR clock_timestamp() < to_timestamp(claim.confirm_by),
    progress = CASE WHEN claim.progress IS NULL THEN job.progress ELSE {progress_with_report} END
FROM unnest(:ids::uuid[], :workers::text[], :attempts::int[], :runs::int[], :progress::text[], :confirm_by::float8[])
    AS claim (id, worker_id, attempt, run, progress, confirm_by)
WHERE {claim_holds}
RETURNING claim.id, claim.worker_id, claim.attempt, claim.run, job.delivered,
    :time_limits::text IS NOT NULL AND COALESCE({end_of_time_limit} <= clock_timestamp(), false) AS is_over,
    job.topic, CASE WHEN claim.progress IS NOT NULL THEN job.progress - 'cursor' END AS progress,
    CASE WHEN claim.confirm_by IS NOT NULL THEN job.lease_until END AS confirmed_until;

-- name: take_back_starts(ids, workers, attempts, runs, until)
-- RUNNING stays RUNNING, if the claim still holds and its lease still ends at :until, as the confirmation
-- left it. The attempt no longer counts: the commit of the confirmation took so long that no handler
-- starts on it. A lease that another confirmation or heartbeat has extended since is left as it is.
UPDATE pulse.jobs AS job
SET delivered = false
FROM unnest(:ids::uuid[], :workers::text[], :attempts::int[], :runs::int[], :until::timestamptz[])
    AS claim (id, worker_id, attempt, run, until)
WHERE {claim_holds} AND job.lease_until = claim.until
RETURNING claim.id;

-- name: release_jobs(ids, workers, attempts, runs, unread_for, progress)
-- From RUNNING back to the head of its topic, if the claim still holds: the job was never
-- delivered, or its worker has not started it. The attempt is given back. A job that was never
-- attempted before needs no confirmation at its next claim. A job that was lost with a worker, as
-- its history shows, keeps started_at: without it, the job could kill a worker after each release
-- without using an attempt. RETRYING, because RUNNING leads to no other waiting state. The job was
-- due before its claim and still is: next_run_at is in an index, which a release does not change.
-- Where order is kept, the job holds its lane like a retry: its handler may have begun. With
-- :unread_for, only jobs that were claimed longer ago and whose lease was never extended: their
-- worker has not read them. ADR-0043
-- :progress has the progress of interrupted handlers; empty: there is none.
WITH ended AS (
    UPDATE pulse.jobs AS job
    SET status = 'RETRYING',
        attempts = job.attempts - 1,
        started_at = CASE WHEN job.attempts > 1 OR job.history IS NOT NULL OR job.steps > 0 THEN job.started_at END,
        -- A job in a lane enters it again in the next claim, which opens the lane.
        tier = NULL,
        rank_at = NULL,
        progress = {progress_with_report},
        locked_by = NULL,
        lease_until = NULL
    FROM unnest(:ids::uuid[], :workers::text[], :attempts::int[], :runs::int[], :progress::text[]) AS claim (id, worker_id, attempt, run, progress)
    WHERE {claim_holds} AND claim.worker_id IS NOT NULL AND claim.attempt IS NOT NULL
      AND (:unread_for::interval IS NULL OR (NOT job.delivered AND job.started_at < now() - :unread_for::interval))
    RETURNING job.id, job.topic, job.status, {freed_by}
),
{notices_of_ended}
SELECT ended.id, ended.topic FROM ended;

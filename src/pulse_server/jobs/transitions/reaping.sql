-- Claims whose lease has expired. jobs.sql has the rules for all transitions.

-- name: reap_expired(jobs, reaping_time, error_group, lease_checks, backoff, max_crashes, attempt_timeout, grace, timed_out_group)
-- From RUNNING, once the lease has expired, as after a failure: to RETRYING, or to DEAD_LETTERED if
-- no attempt is left or the settings of the topic allow no more lost leases. An attempt without
-- known delivery is given back and is never the last: the job may have waited in the window of a
-- dead worker, or was lost on its way there. If the time limit of the attempt kept the lease from
-- being extended, the attempt has timed out. A row whose lease is being extended is locked, and
-- skipped. Jobs of a spared worker are skipped too: its heartbeats arrive but cannot be stored, or
-- its server has fallen silent without leaving and the worker may be connecting to another.
-- ADR-0042
-- The jobs are found by the settled lease checks that are due. New checks replace them for the jobs
-- that still run: due at the end of their leases, or from now on if the job is locked or spared.
-- Returns with each job the number of checks, in a row without a job if none was reaped. ADR-0056
-- :jobs and :lease_checks bound the batch.
-- :backoff, :max_crashes and :attempt_timeout come from the settings; :grace is the grace of time limits.
WITH spared AS MATERIALIZED (
    SELECT spared.worker_id
    FROM pulse.spared_workers AS spared
    WHERE spared.spared_until > {reaping_time}
    UNION ALL
    SELECT worker ->> 'worker_id'
    FROM pulse.servers AS server
    CROSS JOIN LATERAL jsonb_array_elements(server.workers) AS worker
    WHERE server.silent_from < now()
      AND server.workers_spared_until > {reaping_time}
),
due AS MATERIALIZED (
    SELECT lease_check.ctid AS tid, lease_check.ids
    FROM pulse.lease_checks AS lease_check
    WHERE lease_check.settled AND lease_check.check_at < {reaping_time}
    ORDER BY lease_check.check_at
    LIMIT :lease_checks
    FOR UPDATE SKIP LOCKED
),
{running_in_due},
candidate AS MATERIALIZED (
    SELECT running.id
    FROM running
    WHERE running.lease_until < {reaping_time} AND {is_not_spared}
    ORDER BY running.lease_until
    LIMIT :jobs
),
expired AS MATERIALIZED (
    SELECT job.id, job.topic, job.locked_by, job.attempts, job.run, job.max_attempts, job.delivered, job.started_at,
        job.lease_until, COALESCE(job.crashes, 0) + 1 AS crashes
    FROM candidate
    JOIN pulse.jobs AS job ON job.id = ANY(ARRAY[candidate.id])
    WHERE job.lease_until < {reaping_time}
    FOR UPDATE OF job SKIP LOCKED
),
judged AS MATERIALIZED (
    SELECT
        expired.id, expired.locked_by, expired.attempts, expired.run, expired.delivered, expired.crashes,
        COALESCE(rules.backoff, :backoff::text::jsonb) AS backoff,
        expired.attempts >= expired.max_attempts AS is_last,
        expired.crashes >= COALESCE(rules.max_crashes, :max_crashes) AS has_crashed_enough,
        expired.delivered AND COALESCE(
            expired.lease_until
            >= expired.started_at + COALESCE(rules.attempt_timeout, :attempt_timeout::interval) + :grace::interval, false
        ) AS is_timed_out
    FROM expired
    LEFT JOIN pulse.topic_rules AS rules ON rules.topic = ANY(ARRAY[expired.topic])
),
outcome AS MATERIALIZED (
    SELECT
        judged.*,
        judged.delivered AND (judged.is_last OR judged.has_crashed_enough) AS is_final,
        CASE WHEN judged.is_timed_out THEN 'time limit exceeded' ELSE 'worker lease expired' END AS error,
        CASE
            WHEN judged.delivered AND judged.has_crashed_enough AND NOT judged.is_last
            THEN format(', %s time%s: max_crashes is reached', judged.crashes, CASE WHEN judged.crashes <> 1 THEN 's' END)
            ELSE ''
        END AS and_why
    FROM judged
),
{due_is_spent},
kept AS MATERIALIZED (
    SELECT
        running.id,
        CASE
            WHEN running.lease_until >= {reaping_time} THEN running.lease_until
            -- Past :jobs: left for the next batch.
            WHEN {is_not_spared} AND running.id NOT IN (SELECT candidate.id FROM candidate) THEN running.lease_until
            ELSE now()
        END AS check_at
    FROM running
    WHERE running.id NOT IN (SELECT expired.id FROM expired)
),
{kept_is_checked_again},
reaped AS (
    UPDATE pulse.jobs AS job
    SET status = CASE WHEN outcome.is_final THEN 'DEAD_LETTERED' ELSE 'RETRYING' END,
        ended_as = CASE WHEN outcome.is_final THEN 'DEAD_LETTERED' END,
        queued = false,
        finished_at = CASE WHEN outcome.is_final THEN clock_timestamp() END,
        finished_by = CASE WHEN outcome.is_final THEN job.locked_by END,
        attempts = CASE WHEN job.delivered THEN job.attempts ELSE job.attempts - 1 END,
        crashes = CASE WHEN job.delivered THEN outcome.crashes ELSE job.crashes END,
        start_by = CASE WHEN NOT job.delivered THEN job.start_by END,
        waits_for = CASE WHEN NOT job.delivered THEN job.waits_for END,
        next_run_at = clock_timestamp() + pulse.retry_delay_v1(outcome.backoff, job.attempts),
        last_error = outcome.error || outcome.and_why,
        error_group = CASE
            WHEN NOT outcome.is_final THEN ''
            WHEN outcome.is_timed_out THEN :timed_out_group::text
            ELSE :error_group::text
        END,
        history = pulse.with_attempt_v1(
            job.history, job.attempts, job.run, job.locked_by, job.started_at,
            CASE WHEN outcome.is_timed_out THEN 'timed_out' ELSE 'lease_expired' END, outcome.error),
        locked_by = NULL,
        lease_until = NULL
    FROM outcome
    WHERE job.id = ANY(ARRAY[outcome.id])
    RETURNING job.id, job.topic, job.status, outcome.locked_by, outcome.attempts, outcome.run, outcome.delivered, outcome.is_timed_out,
        {freed_by}
),
ended AS (
    SELECT * FROM reaped
),
{notices_of_ended}
SELECT reaped.id, reaped.topic, reaped.status, reaped.locked_by, reaped.attempts, reaped.run, reaped.delivered, reaped.is_timed_out,
    (SELECT count(*) FROM due) AS lease_checks
FROM (SELECT) AS always
LEFT JOIN reaped ON true;

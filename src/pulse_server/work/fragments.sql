-- Fragments of leases, ends and promotions. jobs.sql explains fragments.

-- name: claim_holds
-- The fence. Every claim of a job has the next run number, and no number is used again. A claim
-- without a worker, an attempt or a run comes from a caller of the original contract; missing
-- values are not compared. ADR-0001
-- The id in two bounds: for `=` the planner may walk the whole primary key once for each claim, and
-- with statistics of an empty table it does. `= ANY(ARRAY[claim.id])` prevents this too, and costs
-- a batch 3.5 % instead of 0.5 %. ADR-0007
job.id >= claim.id AND job.id <= claim.id
  AND job.locked_by = COALESCE(claim.worker_id, job.locked_by)
  AND job.attempts = COALESCE(claim.attempt, job.attempts)
  AND job.run = COALESCE(claim.run, job.run)

-- name: progress_with_report
-- The job's progress after the report in its claim.
pulse.with_progress_v1(job.progress, claim.progress::jsonb, job.attempts, job.started_at)

-- name: compact_claims
-- The claims of a completing statement, each with its place in the request and the handler's
-- result.
SELECT
        reported.id, (:workers::text[])[reported.worker] AS worker_id, reported.attempt, reported.run, reported.place::int,
        reported.result
    FROM unnest(:ids::text::uuid[], :worker::text::int[], :attempts::text::int[], :runs::text::int[], :results::bytea[]) WITH ORDINALITY
        AS reported (id, worker, attempt, run, result, place)

-- name: completed_and_moved
-- Moves the jobs of the claims in `claim` that hold: `completed`.
completed AS (
    DELETE FROM pulse.jobs AS job
    USING claim
    WHERE {claim_holds}
    RETURNING claim.place, {moved_of_job}, job.locked_by AS finished_by, clock_timestamp() AS finished_at, claim.result,
        job.steps, {freed_by}
),
moved AS (
    INSERT INTO pulse.completed_jobs ({moved_columns}, finished_by, finished_at, result, timeline)
    SELECT {moved_columns}, finished_by, finished_at, result,
        CASE WHEN steps IS NOT NULL THEN pulse.timeline_of_v1(id) END
    FROM completed
)

-- name: completed_in_place
-- Completes the jobs of the claims in `claim` that hold, where they are: `ended`.
ended AS (
    UPDATE pulse.jobs AS job
    SET status = 'COMPLETED',
        queued = false,
        finished_at = clock_timestamp(),
        finished_by = job.locked_by,
        result = claim.result,
        progress = NULL,
        locked_by = NULL,
        lease_until = NULL
    FROM claim
    WHERE {claim_holds}
    RETURNING claim.place, job.topic, date_part('epoch', job.finished_at - job.started_at) AS ran_seconds,
        job.id, job.attempts, job.status, {freed_by}
),
{notices_of_ended}

-- name: step_in_timeline
-- A row of job_steps in the form that a completed job keeps.
jsonb_strip_nulls(jsonb_build_object(
            'name', step.name, 'kind', step.kind, 'attempt', step.attempt,
            'started_at', step.started_at, 'stored_at', step.stored_at, 'until', step.until,
            'signal', step.signal_id, 'bytes', octet_length(step.value)))

-- name: step
-- A row of job_steps in the form that is read.
step.name, step.kind, step.attempt, step.started_at, step.stored_at, step.until, step.signal_id, step.value,
    octet_length(step.value) AS bytes, COALESCE(step.until <= clock_timestamp(), false) AS is_due,
    (SELECT signal.name FROM pulse.job_signals AS signal WHERE signal.id = step.signal_id) AS signal

-- name: without_end
-- The due time of a job that waits for a signal without a time limit.
timestamptz '9999-01-01 00:00:00+00'

-- name: failure_is_final
-- A reported failure leads to DEAD_LETTERED.
(claim.discard OR job.attempts >= job.max_attempts)

-- name: snooze_is_final
-- The job has been snoozed as often as is allowed. Suspensions are not bounded.
(COALESCE(job.snoozes, 0) >= :most_snoozes::int)

-- name: end_of_time_limit
-- The end of an attempt's time limit plus the grace, which is one lease. NULL: there is no limit.
-- The subselects parse the JSON once per statement, not per row.
-- :time_limits has the seconds by topic, and under '' the seconds for all other topics.
job.started_at + COALESCE((SELECT :time_limits::text::jsonb) ->> job.topic, (SELECT :time_limits::text::jsonb) ->> '')::float8
            * interval '1 second' + :lease::interval

-- name: reaping_time
-- Bounds a statement that a frozen database runs late: leases that were alive when it was sent must
-- not be reaped. ADR-0010
LEAST(now(), :reaping_time::timestamptz)

-- name: running_in_due
-- The running jobs in the lease checks `due`. A job that was released and claimed again is in
-- several checks. The index scan sorts an array of ids and reads each id once, several from one
-- page.
running AS MATERIALIZED (
    SELECT job.id, job.lease_until, job.locked_by
    FROM pulse.jobs AS job
    WHERE job.id = ANY (ARRAY(SELECT unnest(due.ids) FROM due)) AND job.locked_by IS NOT NULL
)

-- name: is_not_spared
running.locked_by NOT IN (SELECT spared.worker_id FROM spared)

-- name: due_is_spent
spent AS (
    DELETE FROM pulse.lease_checks AS lease_check USING due WHERE lease_check.ctid = due.tid
)

-- name: kept_is_checked_again
-- Jobs that are due in the same second share a lease check, up to a thousand. So the end of one
-- lease does not check other jobs long before their own ends.
checked AS (
    INSERT INTO pulse.lease_checks (check_at, settled, ids)
    SELECT min(placed.check_at), true, array_agg(placed.id)
    FROM (
        SELECT kept.id, kept.check_at, row_number() OVER (ORDER BY kept.check_at) - 1 AS place FROM kept
    ) AS placed
    GROUP BY date_trunc('second', placed.check_at), placed.place / 1000
)

-- name: running_jobs
-- The running jobs, by the settled lease checks and the fresh checks of the last few seconds. The
-- time bound skips dead entries that an open transaction keeps. Only the primary key can serve the
-- condition.
running AS MATERIALIZED (
    SELECT job.id, job.topic, job.locked_by, job.attempts, job.started_at, job.lease_until,
        job.progress - 'cursor' AS progress
    FROM pulse.jobs AS job
    WHERE job.locked_by IS NOT NULL AND job.id = ANY (ARRAY(
        SELECT unnest(lease_check.ids) FROM pulse.lease_checks AS lease_check WHERE lease_check.settled
        UNION ALL
        SELECT unnest(lease_check.ids)
        FROM pulse.lease_checks AS lease_check
        WHERE NOT lease_check.settled AND lease_check.check_at > now() - interval '1 minute'
    ))
)

-- name: ready_by_topic_now
-- The number of queued jobs per topic that are not in `running`, and the earliest due time. Reads
-- only the two indexes, each in its order. Jobs in lanes are counted separately.
(
        SELECT job.topic, count(*) AS jobs, min(job.next_run_at) AS oldest
        FROM pulse.jobs AS job
        WHERE job.queued AND job.tier IS NULL AND {is_not_running}
        GROUP BY job.topic
        UNION ALL
        SELECT job.topic, count(*), min(job.next_run_at)
        FROM pulse.jobs AS job
        WHERE job.queued AND job.tier IS NOT NULL AND {is_not_running}
        GROUP BY job.topic
    ) AS ready

-- name: is_not_running
-- The subselect becomes a hash table whatever the statistics say: the planner expects ten rows of
-- it.
job.id NOT IN (SELECT unnest(held.ids) FROM (SELECT array_agg(running.id) AS ids FROM running) AS held)

-- name: waits
-- PENDING or RETRYING and not ready, but for jobs that wait for other jobs; in the form of the index
-- jobs_due.
NOT job.queued AND job.finished_at IS NULL AND job.held IS NULL

-- name: waits_in_turn
-- `waits` in the form of the index jobs_due_in_turn. With jobs_due, the planner would walk the jobs
-- of all topics.
NOT job.queued AND COALESCE(job.finished_at, 'infinity') = 'infinity' AND job.topic >= '' AND job.held IS NULL

-- name: promoted
-- Makes the jobs in `due` ready.
promoted AS (
    UPDATE pulse.jobs AS job
    SET queued = true,
        -- Its next claim puts it into its lane again.
        tier = NULL,
        rank_at = NULL
    FROM due
    WHERE job.id = ANY(ARRAY[due.id])
    RETURNING job.topic, job.priority, job.submitted_at
)

-- name: promoted_levels
-- The number of promoted jobs by topic and priority, and the age of the oldest since its submit.
-- ADR-0055
promoted.topic, promoted.priority, count(*) AS promoted,
    date_part('epoch', now() - min(promoted.submitted_at)) AS age_seconds

-- name: freed_by
-- The columns that a statement which ends runs returns for {notices_of_ended}.
job.pool, job.lane_held

-- name: notices_of_ended
-- Notifies the next claim of the runs in `ended` that were counted in a pool, and puts their
-- places in lanes into the line. ADR-0064
noticed AS (
    INSERT INTO pulse.limit_notices (pool, topic, ended)
    SELECT ended.pool, ended.topic, count(*)
    FROM ended
    WHERE ended.pool IS NOT NULL
    GROUP BY ended.pool, ended.topic
),
lined AS (
    INSERT INTO pulse.lane_line (topic, lanes, places, job_id)
    SELECT freed.topic, array_agg(freed.lane), freed.places, freed.job_id
    FROM (
        SELECT
            ended.topic, ended.lane_held AS lane, count(*) AS places, row_number() OVER () AS number,
            CASE WHEN ended.status = 'RETRYING' THEN ended.id END AS job_id
        FROM ended
        WHERE ended.lane_held IS NOT NULL
        GROUP BY ended.topic, ended.lane_held, CASE WHEN ended.status = 'RETRYING' THEN ended.id END
    ) AS freed
    GROUP BY freed.topic, freed.places, freed.job_id, freed.number / 64
)

-- name: session_in_words
-- A session of pg_stat_activity. The time is visible only to a member of pg_read_all_stats. Without a
-- session, a prepared transaction has the lock.
CASE
        WHEN session.pid IS NULL THEN 'a prepared transaction of pg_prepared_xacts, which ROLLBACK PREPARED ends'
        ELSE format(
            'process %s%s%s%s%s', session.pid, ' of role ' || quote_ident(session.usename::text),
            ', application ' || NULLIF(session.application_name, ''), ', database ' || quote_ident(session.datname::text),
            ', in a transaction since ' || to_char(session.xact_start AT TIME ZONE 'UTC', 'YYYY-MM-DD HH24:MI:SS" UTC"'))
    END

-- name: locker_is_open
-- That `locker.xid`, the xmax of a row as text, is the number of a transaction or a savepoint that has not ended.
-- pg_locks has none of a savepoint that was released. Its epoch: no number is newer than that of this transaction.
EXISTS (
        SELECT
        FROM (SELECT pg_current_xact_id()::text::bigint AS number OFFSET 0) AS own
        CROSS JOIN LATERAL (SELECT own.number - ((own.number - locker.xid::bigint) & 4294967295) AS number OFFSET 0) AS known
        WHERE CASE WHEN known.number > 0 AND known.number <> own.number
            THEN pg_xact_status(known.number::text::xid8) = 'in progress' ELSE false END
    )

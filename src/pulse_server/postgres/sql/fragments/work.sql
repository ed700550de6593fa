-- Fragments of claims, leases and promotions. jobs.sql explains fragments.

-- name: dispatch_is_on
NOT (SELECT control.paused FROM pulse.dispatch_control AS control WHERE control.id = 1)

-- name: asked_topic_is_open
{dispatch_is_on}
      AND NOT EXISTS (SELECT FROM pulse.barred_topics AS barred WHERE barred.topic = asked.topic)

-- name: places
-- The places of a claim whose topics are open, by the current pause switches.
place AS MATERIALIZED (
    SELECT asked.topic, asked.priority, asked.age_seconds, asked.number
    FROM unnest(:topics::text[], :priorities::int[], :ages::float8[]) WITH ORDINALITY AS asked (topic, priority, age_seconds, number)
    WHERE {asked_topic_is_open}
)

-- name: claim_order
-- The order of claims, which is also the order of the index jobs_claim.
job.priority DESC, job.submitted_at, job.id

-- name: is_in_whole_topic
place.priority IS NULL AND job.topic = place.topic AND {is_claimable}

-- name: is_in_level
-- A range of the index jobs_claim. It begins after the entries of running and ended jobs. ADR-0055
job.topic = place.topic AND {is_claimable}
          AND job.priority = place.priority
          AND job.submitted_at >= now() - place.age_seconds * interval '1 second'

-- name: ready_in_place
-- Some ready jobs of a place, best first, without a lock. Only one of the two arms runs: their
-- filters are evaluated once.
SELECT * FROM (
            SELECT job.priority, job.submitted_at, job.id, job.ctid AS tid
            FROM pulse.jobs AS job
            WHERE {is_in_whole_topic}
            ORDER BY {claim_order}
            OFFSET place.skipped LIMIT place.taken
        ) AS whole
        UNION ALL
        SELECT * FROM (
            SELECT job.priority, job.submitted_at, job.id, job.ctid AS tid
            FROM pulse.jobs AS job
            WHERE place.priority IS NOT NULL AND {is_in_level}
            ORDER BY job.submitted_at, job.id
            OFFSET place.skipped LIMIT place.taken
        ) AS level

-- name: claimable
-- The columns that a claim reads before it takes a job. A last attempt, or a job that may have been
-- lost with its worker before, is confirmed before it starts. ADR-0043
job.ctid AS tid, job.id, job.started_at IS NOT NULL OR job.max_attempts - job.attempts = 1 AS must_confirm,
    octet_length(job.payload) AS bytes

-- name: claimed_job
-- The columns that a claim returns for the worker.
job.id, job.topic, job.payload, job.attempts, job.run, job.priority, job.max_attempts, job.metadata, job.idempotency_key

-- name: those_that_fit
-- The candidates of a claim that fit into :most_bytes. Candidates are locked and come best first.
-- The window has no ORDER BY: it would sort them again.
ranked AS (
    SELECT
        candidate.tid,
        candidate.id,
        candidate.must_confirm,
        row_number() OVER line::int AS slot,
        sum(candidate.bytes) OVER line - candidate.bytes AS bytes_before
    FROM candidate
    WINDOW line AS (ROWS UNBOUNDED PRECEDING)
),
picked AS MATERIALIZED (
    SELECT ranked.tid, ranked.id, ranked.slot, ranked.must_confirm, ranked.bytes_before
    FROM ranked
    WHERE ranked.slot = 1 OR ranked.bytes_before < :most_bytes::bigint
),
-- The packed order, if there is one, for a claim that fills all slots: more jobs wait. Spread
-- thinly, they would cost a message for every few jobs. ADR-0054
dealt AS MATERIALIZED (
    SELECT CASE
        WHEN count(*) = cardinality(:packed::int[]) AND max(picked.bytes_before) < :packed_bytes::bigint THEN :packed::int[]
        ELSE :order::int[]
    END AS slots,
    count(*) AS jobs
    FROM picked
)

-- name: longest_unsettled
-- When a claim is checked for the first time: nearly all its jobs have ended by then.
interval '2 seconds'

-- name: check_of_handed_over
now() + LEAST(:lease::interval, {longest_unsettled}), false

-- name: check_picked
-- This row finds the leases again. ADR-0056
checked AS (
    INSERT INTO pulse.lease_checks (check_at, settled, ids)
    SELECT now() + LEAST(:lease::interval, {longest_unsettled}), false, array_agg(picked.id)
    FROM picked
    HAVING count(*) > 0
)

-- name: lease_picked
-- Leases each picked job to the worker of its slot. The row is locked, so its address points to the
-- newest version. A job that prioritize_jobs changed after this statement began is not visible, and
-- stays for the next claim.
UPDATE pulse.jobs AS job
SET status = 'RUNNING',
    attempts = job.attempts + 1,
    run = job.run + 1,
    locked_by = (:workers::text[])[picked.worker],
    lease_until = clock_timestamp() + :lease::interval,
    started_at = clock_timestamp(),
    -- The attempt counts once its worker has extended the lease, which it does only for started
    -- handlers. For a worker that does not confirm, it counts from here. hand_over_jobs does the
    -- same. ADR-0043
    delivered = NOT (:confirms::bool[])[picked.worker],
    turnstile = NULL,
    lane_held = NULL
FROM (SELECT picked.*, (SELECT dealt.slots FROM dealt)[picked.slot] AS worker FROM picked) AS picked
WHERE job.ctid = picked.tid
RETURNING
    picked.slot, picked.worker, {claimed_job},
    picked.must_confirm AND NOT job.delivered AS confirm,
    date_part('epoch', job.started_at - job.next_run_at) AS waited_seconds,
    -- Only for the last job: all jobs before it were taken. ADR-0055
    CASE WHEN picked.slot = (SELECT dealt.jobs FROM dealt) THEN date_part('epoch', now() - job.submitted_at) END
        AS age_seconds,
    job.steps IS NOT NULL AS has_steps, job.progress

-- name: claim_holds
-- The fence. Every claim of a job has the next run number, and no number is used again. A claim
-- without a worker, an attempt or a run comes from a caller of the original contract; missing
-- values are not compared. ADR-0001
job.id = claim.id
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

-- name: end_of_limit
-- The end of an attempt's time limit plus the grace, which is one lease. NULL: there is no limit.
-- The subselects parse the JSON once per statement, not per row.
-- :limits has the seconds by topic, and under '' the seconds for all other topics.
job.started_at + COALESCE((SELECT :limits::text::jsonb) ->> job.topic, (SELECT :limits::text::jsonb) ->> '')::float8
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
-- PENDING or RETRYING and not ready, in the form of the index jobs_due.
NOT job.queued AND job.finished_at IS NULL

-- name: waits_in_turn
-- `waits` in the form of the index jobs_due_in_turn. With jobs_due, the planner would walk the jobs
-- of all topics.
NOT job.queued AND COALESCE(job.finished_at, 'infinity') = 'infinity' AND job.topic >= ''

-- name: promoted
-- Makes the jobs in `due` ready.
promoted AS (
    UPDATE pulse.jobs AS job
    SET queued = true,
        -- Its next claim puts it into its lane again.
        tier = NULL,
        rank_at = NULL
    FROM due
    WHERE job.id = due.id
    RETURNING job.topic, job.priority, job.submitted_at
)

-- name: promoted_levels
-- The number of promoted jobs by topic and priority, and the age of the oldest since its submit.
-- ADR-0055
promoted.topic, promoted.priority, count(*) AS promoted,
    date_part('epoch', now() - min(promoted.submitted_at)) AS age_seconds

-- name: freed_by
-- The columns that a statement which ends runs returns for {notices_of_ended}.
job.turnstile, job.lane_held

-- name: notices_of_ended
-- Notifies the next claim of the runs in `ended` that were counted at a turnstile, and puts their
-- places in lanes into the line. ADR-0064
noticed AS (
    INSERT INTO pulse.flow_notices (turnstile, topic, ended)
    SELECT ended.turnstile, ended.topic, count(*)
    FROM ended
    WHERE ended.turnstile IS NOT NULL
    GROUP BY ended.turnstile, ended.topic
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

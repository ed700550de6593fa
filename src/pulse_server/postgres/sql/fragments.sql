-- What several statements share, or one statement needs several times, written once: {name} in a statement or in
-- another fragment is replaced by the fragment of that name.

-- name: job
-- A job without what may be large: its payload and its history.
job.id, job.topic, job.status, job.priority, job.attempts, job.max_attempts, job.submitted_at, job.next_run_at,
    {is_claimable} AS ready, job.delivered, job.locked_by, job.lease_until, job.started_at, job.finished_at, job.finished_by,
    job.last_error, job.idempotency_key, job.schedule_id, job.metadata, job.error_group

-- name: is_claimable
-- A job is queued from when it is due until it ends or waits again, also while it runs. ADR-0056
job.queued AND job.locked_by IS NULL

-- name: completed_job
-- {job} of a row of completed_jobs.
job.id, job.topic, 'COMPLETED' AS status, job.priority, job.attempts, job.max_attempts, job.submitted_at,
    job.next_run_at, false AS ready, job.delivered, NULL AS locked_by, NULL AS lease_until, job.started_at,
    job.finished_at, job.finished_by, job.last_error, job.idempotency_key, job.schedule_id, job.metadata,
    '' AS error_group

-- name: rest_of_one
-- One job, named in $1, is returned in full. Hundreds at once are returned without payload and history.
CASE WHEN cardinality($1::uuid[]) = 1 THEN job.payload END AS payload,
    CASE WHEN cardinality($1::uuid[]) = 1 THEN job.history END AS history

-- name: schedule
-- A schedule without its payload, which may be large: a list of a thousand would take a gigabyte.
id, name, kind, run_at, interval_ms, cron_expr, time_zone, catch_up, topic, ''::bytea AS payload, priority, max_attempts,
    metadata, paused, next_run_at, last_run_at, created_at, updated_at, declared_by

-- name: new_job_columns
-- What an insert of jobs writes: {new_job}, then queued and status.
id, topic, payload, priority, max_attempts, idempotency_key, metadata, schedule_id,
    submitted_at, next_run_at, queued, status

-- name: new_job
new.id, new.topic, new.payload, new.priority, new.max_attempts, new.idempotency_key, new.metadata::jsonb,
    new.schedule_id,
    clock_timestamp(),
    COALESCE(new.run_at, clock_timestamp() + COALESCE(new.delay, interval '0'))

-- name: new_job_is_due
COALESCE(new.run_at <= clock_timestamp(), new.delay IS NULL)

-- name: insert_of_new_jobs
-- What all jobs of a batch have in common comes as an array of one: the others have a null there, and take the first.
INSERT INTO pulse.jobs ({new_job_columns})
    SELECT
        {new_job},
        {new_job_is_due},
        'PENDING'
    FROM (
        SELECT
            given.id, COALESCE(given.topic, ($2::text[])[1]) AS topic, given.payload,
            COALESCE(given.priority, ($4::int[])[1]) AS priority,
            COALESCE(given.max_attempts, ($5::int[])[1]) AS max_attempts,
            given.idempotency_key, given.metadata, given.schedule_id, given.run_at, given.delay
        FROM unnest(
            $1::uuid[], $2::text[], $3::bytea[], $4::int[], $5::int[],
            $6::text[], $7::text[], $8::uuid[], $9::timestamptz[], $10::interval[]
        ) AS given (id, topic, payload, priority, max_attempts, idempotency_key, metadata, schedule_id, run_at, delay)
    ) AS new

-- name: inserted_at_last
-- How many rows an insert stored, their ids unless it stored all, and those of them that completed_among took back.
count(*) AS stored,
    CASE WHEN count(*) < cardinality($1::uuid[]) THEN COALESCE(array_agg(inserted.id), '{}') END AS ids,
    CASE WHEN count(*) > 0 THEN pulse.completed_among(
        array_agg(inserted.id),
        array_agg(inserted.id) FILTER (WHERE inserted.idempotency_key IS NOT NULL),
        $11::timestamptz
    ) END AS taken_back

-- name: asked_topic_is_free
-- Dispatch is on, and no other job is ready in the topic: anywhere in it, or at the levels in $15-$17.
{asked_topic_is_open}
      -- A CASE, because an EXISTS would become a join, which walks the index whether there are levels or not.
      AND CASE WHEN $15::text[] IS NULL
          THEN (SELECT true FROM pulse.jobs AS job WHERE job.topic = asked.topic AND {is_claimable} LIMIT 1) IS NULL
          ELSE true
      END
      AND NOT EXISTS (
          SELECT
          FROM unnest($15::text[], $16::int[], $17::float8[]) AS level (topic, priority, age_seconds)
          CROSS JOIN LATERAL (SELECT FROM pulse.jobs AS job WHERE {is_in_level} LIMIT 1) AS found
          WHERE level.topic = asked.topic
      )

-- name: is_handed_over
-- The job has a worker and starts at once, and its topic is free.
(free.topic IS NOT NULL)

-- name: insert_of_handed_over
-- From new, the jobs with the worker of each, or null, and whether it confirms; and from free, the topics that are so.
INSERT INTO pulse.jobs ({new_job_columns}, attempts, locked_by, lease_until, started_at, delivered)
    SELECT
        {new_job},
        {new_job_is_due},
        CASE WHEN {is_handed_over} THEN 'RUNNING' ELSE 'PENDING' END,
        CASE WHEN {is_handed_over} THEN 1 ELSE 0 END,
        CASE WHEN {is_handed_over} THEN new.worker_id END,
        CASE WHEN {is_handed_over} THEN clock_timestamp() + $14::interval END,
        CASE WHEN {is_handed_over} THEN clock_timestamp() END,
        {is_handed_over} AND NOT new.confirms
    FROM new
    LEFT JOIN free
        ON free.topic = new.topic
       AND new.worker_id IS NOT NULL AND new.run_at IS NULL AND new.delay IS NULL
    ON CONFLICT DO NOTHING
    RETURNING id, idempotency_key, locked_by

-- name: fire_columns
-- What a fire writes besides the id of the job: {fire}.
topic, payload, priority, max_attempts, metadata, schedule_id, submitted_at, next_run_at, queued, status

-- name: fire
-- A job as its schedule defines it, ready at once.
topic, payload, priority, max_attempts, metadata, id, clock_timestamp(), clock_timestamp(), true, 'PENDING'

-- name: dispatch_is_on
NOT (SELECT control.paused FROM pulse.dispatch_control AS control WHERE control.id = 1)

-- name: asked_topic_is_open
{dispatch_is_on}
      AND NOT EXISTS (SELECT FROM pulse.paused_topics AS paused WHERE paused.topic = asked.topic)

-- name: open_topics
-- Those of the topics in $1 that may be claimed from, by the pause switches as they are now.
wanted AS MATERIALIZED (
    SELECT asked.topic
    FROM unnest($1::text[]) AS asked (topic)
    WHERE {asked_topic_is_open}
)

-- name: claim_order
-- The order in which jobs are claimed, and that of the index jobs_claim.
job.priority DESC, job.submitted_at, job.id

-- name: ready_in_wanted_topic
SELECT job.priority, job.submitted_at, job.id
        FROM pulse.jobs AS job
        WHERE job.topic = wanted.topic AND {is_claimable}
        ORDER BY {claim_order}

-- name: is_in_level
-- A range of the index jobs_claim. It begins behind entries of jobs that run or have ended. ADR-0055
job.topic = level.topic AND {is_claimable}
          AND job.priority = level.priority
          AND job.submitted_at >= now() - level.age_seconds * interval '1 second'

-- name: lock_best
-- Locks as many of the best jobs as there are slots.
candidate AS MATERIALIZED (
    SELECT locked.*
    FROM best
    CROSS JOIN LATERAL (
        SELECT {claimable}
        FROM pulse.jobs AS job
        -- Still claimable, in a form that keeps the planner from walking the claim index for it.
        WHERE job.id = best.id AND job.queued::int = 1 AND job.locked_by IS NULL
        FOR UPDATE SKIP LOCKED
    ) AS locked
    LIMIT $2
)

-- name: lease_best
{lock_best},
{those_that_fit},
{check_picked},
leased AS (
    {lease_picked}
)
SELECT leased.*, (SELECT count(*) FROM best) AS candidates
FROM (SELECT) AS always
LEFT JOIN leased ON true

-- name: claimable
-- What a claim reads of a job before it takes it. A last attempt, or a job that may have been lost with its worker
-- before, is confirmed before it starts. ADR-0043
job.ctid AS tid, job.id, job.started_at IS NOT NULL OR job.max_attempts - job.attempts = 1 AS must_confirm,
    octet_length(job.payload) AS bytes

-- name: those_that_fit
-- Of a claim's candidates, which are locked and come best first, those that fit into $7 bytes. The window has no ORDER
-- BY: it would sort them again.
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
    WHERE ranked.slot = 1 OR ranked.bytes_before < $7::bigint
),
-- The packed order, if there is one, for a claim that fills all slots: more jobs wait, and spread thinly they would cost
-- a message for each few. ADR-0054
dealt AS MATERIALIZED (
    SELECT CASE
        WHEN count(*) = cardinality($8::int[]) AND max(picked.bytes_before) < $9::bigint THEN $8::int[]
        ELSE $3::int[]
    END AS slots,
    count(*) AS jobs
    FROM picked
)

-- name: longest_unsettled
-- When a claim is looked at for the first time: nearly all jobs have ended by then.
interval '2 seconds'

-- name: check_of_handed_over
now() + LEAST($14::interval, {longest_unsettled}), false

-- name: check_picked
-- Their leases are found by this row. ADR-0056
checked AS (
    INSERT INTO pulse.lease_checks (check_at, settled, ids)
    SELECT now() + LEAST($6::interval, {longest_unsettled}), false, array_agg(picked.id)
    FROM picked
    HAVING count(*) > 0
)

-- name: lease_picked
-- Leases each picked job to the worker of its slot. It is locked, so its address is that of the newest version. One that
-- was changed after this statement began, by prioritize_jobs, is not visible to it and stays for the next claim.
UPDATE pulse.jobs AS job
SET status = 'RUNNING',
    attempts = job.attempts + 1,
    locked_by = ($4::text[])[picked.worker],
    lease_until = clock_timestamp() + $6::interval,
    started_at = clock_timestamp(),
    -- The attempt counts once its worker has extended the lease, which it does only for handlers that have started.
    -- For a worker that does not confirm it counts from here. hand_over_jobs does the same. ADR-0043
    delivered = NOT ($5::bool[])[picked.worker]
FROM (SELECT picked.*, (SELECT dealt.slots FROM dealt)[picked.slot] AS worker FROM picked) AS picked
WHERE job.ctid = picked.tid
RETURNING
    picked.slot, picked.worker, job.id, job.topic, job.payload, job.attempts, job.priority, job.max_attempts,
    job.metadata, job.idempotency_key,
    picked.must_confirm AND NOT job.delivered AS confirm,
    date_part('epoch', job.started_at - job.next_run_at) AS waited_seconds,
    -- Of the last one alone: up to there all jobs were taken. ADR-0055
    CASE WHEN picked.slot = (SELECT dealt.jobs FROM dealt) THEN date_part('epoch', now() - job.submitted_at) END
        AS age_seconds

-- name: claim_holds
-- The fence. A claim without a worker or an attempt comes from a caller of the original contract; what it leaves out is
-- not compared. ADR-0001
job.id = claim.id
  AND job.locked_by = COALESCE(claim.worker_id, job.locked_by)
  AND job.attempts = COALESCE(claim.attempt, job.attempts)

-- name: compact_claims
-- The claims of complete_jobs, each with its place in the request.
(
        SELECT reported.id, ($2::text[])[reported.worker] AS worker_id, reported.attempt, reported.place::int
        FROM unnest($1::text::uuid[], $3::int[], $4::int[]) WITH ORDINALITY
            AS reported (id, worker, attempt, place)
    ) AS claim

-- name: moved_columns
-- What a completed job keeps of its row as it is.
job.id, job.submitted_at, job.next_run_at, job.started_at, job.priority, job.attempts, job.max_attempts,
        job.delivered, job.topic, job.payload, job.idempotency_key, job.schedule_id, job.last_error, job.metadata,
        job.history

-- name: completed_columns
-- The columns of completed_jobs.
id, submitted_at, next_run_at, started_at, priority, attempts, max_attempts,
        delivered, topic, payload, idempotency_key, schedule_id, last_error, metadata,
        history, finished_by, finished_at

-- name: failure_is_final
-- A reported failure leads to DEAD_LETTERED.
(claim.discard OR job.attempts >= job.max_attempts)

-- name: expiry_is_final
-- An expired lease leads to DEAD_LETTERED. An attempt that was not delivered costs nothing, so it is never the last.
(job.delivered AND job.attempts >= job.max_attempts)

-- name: backoff
-- attempts² seconds. A retry continues the count, so the square is bounded, at three years: beyond the range of a
-- number, one such row would fail every report that shares its statement, and every reap.
LEAST(job.attempts, 10000) ^ 2 * interval '1 second'

-- name: reaping_time
-- $2 bounds the reach of a statement that a frozen database runs late: leases that were alive when it was sent are not
-- its concern. ADR-0010
LEAST(now(), $2::timestamptz)

-- name: running_in_due
-- The jobs in the lease checks `due` that still run. One may stand in several: it was released and claimed again. The
-- index takes an array of ids sorted and each of them once, several from one page.
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
-- Jobs that are due in the same second share a lease check, up to a thousand: a lease that ends has the others looked
-- at no earlier than their own ends.
checked AS (
    INSERT INTO pulse.lease_checks (check_at, settled, ids)
    SELECT min(placed.check_at), true, array_agg(placed.id)
    FROM (
        SELECT kept.id, kept.check_at, row_number() OVER (ORDER BY kept.check_at) - 1 AS place FROM kept
    ) AS placed
    GROUP BY date_trunc('second', placed.check_at), placed.place / 1000
)

-- name: running_jobs
-- The jobs that run, by the lease checks: the settled ones, and those of the claims of the last moment. No fresh check
-- is older than a few seconds; the bound skips the dead entries that a transaction keeps by staying open. Only the primary
-- key can serve the condition.
running AS MATERIALIZED (
    SELECT job.id, job.topic, job.locked_by, job.attempts, job.started_at, job.lease_until
    FROM pulse.jobs AS job
    WHERE job.locked_by IS NOT NULL AND job.id = ANY (ARRAY(
        SELECT unnest(lease_check.ids) FROM pulse.lease_checks AS lease_check WHERE lease_check.settled
        UNION ALL
        SELECT unnest(lease_check.ids)
        FROM pulse.lease_checks AS lease_check
        WHERE NOT lease_check.settled AND lease_check.check_at > now() - interval '1 minute'
    ))
)

-- name: is_ready_now
-- Queued, and not among the `running`: by the claim index alone, which does not know. The subselect is made a hash
-- table whatever the statistics say: the planner expects ten rows of it.
job.queued AND job.id NOT IN (SELECT unnest(held.ids) FROM (SELECT array_agg(running.id) AS ids FROM running) AS held)

-- name: waits
-- PENDING or RETRYING and not ready, in the form of the index jobs_due.
NOT job.queued AND job.finished_at IS NULL

-- name: waits_in_turn
-- The same in the form of the index jobs_due_in_turn. In the form of jobs_due, the planner would walk the jobs of all
-- topics.
NOT job.queued AND COALESCE(job.finished_at, 'infinity') = 'infinity' AND job.topic >= ''

-- name: promoted
-- Makes the jobs in `due` ready.
promoted AS (
    UPDATE pulse.jobs AS job
    SET queued = true
    FROM due
    WHERE job.id = due.id
    RETURNING job.topic, job.priority, job.submitted_at
)

-- name: promoted_levels
-- What became ready, by topic and priority, and how long ago the oldest of it was submitted. ADR-0055
promoted.topic, promoted.priority, count(*) AS promoted,
    date_part('epoch', now() - min(promoted.submitted_at)) AS age_seconds

-- name: unfinished_targets
-- The jobs in $1 that an operator's statement changes: not finished, and of a status in $3. In a form that no partial
-- index can serve: for hundreds of ids the planner might walk one.
target AS MATERIALIZED (
    SELECT job.id, job.locked_by, job.attempts
    FROM pulse.jobs AS job
    WHERE job.id = ANY($1::uuid[])
      AND job.status = ANY($3::text[])
      AND job.status NOT IN ('COMPLETED', 'DEAD_LETTERED', 'CANCELED')
    ORDER BY job.id
    FOR NO KEY UPDATE
)

-- name: tables_of_jobs
-- The tables that have jobs: pulse.jobs and the partitions of completed_jobs.
SELECT 'pulse.jobs'::regclass AS relid
    UNION ALL
    SELECT tree.relid FROM pg_partition_tree('pulse.completed_jobs') AS tree WHERE tree.isleaf

-- name: dead_rows
(SELECT sum(pg_stat_get_dead_tuples(part.relid))::bigint FROM ({tables_of_jobs}) AS part)

-- name: was_canceled_in_worker
job.status = 'CANCELED' AND job.history -> -1 ->> 'outcome' = 'canceled'

-- name: end_of_rest
-- From here on a job that was canceled in a worker may be claimed again: longer than a worker takes to start a job it
-- holds, so that none starts it after another has completed it. ADR-0041
job.finished_at + interval '2 seconds'

-- name: finished_after
-- Of export_jobs: the finished jobs after ($1, $2) in the order of submission, $3 at the most. One that was submitted
-- after $6 cannot have finished before it. Days are read whole: whether a job of them finished in time is judged later, or
-- a statement would step over those that did not, without a bound.
SELECT * FROM (
        (
            SELECT {job}, job.payload, job.history
            FROM pulse.jobs AS job
            WHERE {is_next_to_export} AND job.finished_at IS NOT NULL
            ORDER BY job.submitted_at, job.id
            LIMIT $3
        )
        UNION ALL
        (
            SELECT {completed_job}, job.payload, job.history
            FROM pulse.completed_jobs_by_day AS job
            WHERE {is_next_to_export} AND job.topic >= ''
              AND job.finished_at >= COALESCE(date_trunc('day', $5::timestamptz), '-infinity')
              AND job.finished_at < date_trunc('day', $6::timestamptz) + interval '1 day'
            ORDER BY job.submitted_at, job.id
            LIMIT $3
        )
        UNION ALL
        (
            SELECT {completed_job}, job.payload, job.history
            FROM pulse.completed_jobs_kept AS job
            WHERE {is_next_to_export} AND job.topic >= ''
            ORDER BY job.submitted_at, job.id
            LIMIT $3
        )
    ) AS job
    ORDER BY job.submitted_at, job.id
    LIMIT $3

-- name: is_next_to_export
(job.submitted_at, job.id) > ($1::timestamptz, $2::uuid) AND job.submitted_at < $6::timestamptz

-- name: export_bytes
-- About what the job takes in memory and in a message.
octet_length(looked_at.payload) + COALESCE(octet_length(looked_at.last_error), 0)
        + COALESCE(pg_column_size(looked_at.history), 0) + COALESCE(pg_column_size(looked_at.metadata), 0) + 300

-- name: walk_of_a_day
(SELECT count(*) FROM looked_at) AS looked_at, reached.submitted_at, reached.id

-- name: reached_in_a_day
LEFT JOIN LATERAL (
    SELECT looked_at.submitted_at, looked_at.id
    FROM looked_at
    ORDER BY looked_at.submitted_at DESC, looked_at.id DESC
    LIMIT 1
) AS reached ON true

-- name: topic_has_a_policy
-- Before the join with the policies, which takes longer for each row than to look at it.
looked_at.topic = ANY(ARRAY(SELECT known.topic FROM pulse.topic_policies AS known WHERE known.completed_kept IS NOT NULL))

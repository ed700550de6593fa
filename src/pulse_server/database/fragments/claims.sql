-- Fragments of claims. jobs.sql explains fragments.

-- name: dispatch_is_on
NOT (SELECT control.paused FROM pulse.dispatch_control AS control WHERE control.id = 1)

-- name: asked_topic_is_open
-- OFFSET 0: an EXISTS would become a join, which may walk all barred topics. ADR-0007
{dispatch_is_on}
      AND NOT EXISTS (SELECT FROM pulse.barred_topics AS barred WHERE barred.topic = asked.topic OFFSET 0)

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
job.topic = place.topic AND {is_claimable}

-- name: is_in_level
-- A range of the index jobs_claim. It begins after the entries of running and ended jobs. ADR-0055
job.topic = place.topic AND {is_claimable}
          AND job.priority = place.priority
          AND job.submitted_at >= now() - place.age_seconds * interval '1 second'

-- name: ready_in_places
-- Some ready jobs of each place in `reading`, best first in each, without a lock. Only one of the two
-- arms runs: a claim looks at whole topics or at levels, and this is decided once for all places.
SELECT place.number, job.*
    FROM reading AS place
    CROSS JOIN LATERAL (
        SELECT job.priority, job.submitted_at, job.id, job.ctid AS tid
        FROM pulse.jobs AS job
        WHERE {is_in_whole_topic}
        ORDER BY {claim_order}
        OFFSET place.skipped LIMIT place.taken
    ) AS job
    WHERE :priorities::int[] IS NULL
    UNION ALL
    SELECT place.number, job.*
    FROM reading AS place
    CROSS JOIN LATERAL (
        SELECT job.priority, job.submitted_at, job.id, job.ctid AS tid
        FROM pulse.jobs AS job
        WHERE {is_in_level}
        ORDER BY job.submitted_at, job.id
        OFFSET place.skipped LIMIT place.taken
    ) AS job
    WHERE :priorities::int[] IS NOT NULL

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
-- thinly, they would cost a message for every few jobs. docs/figures.md#dealing-jobs-to-workers
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
    pool = NULL,
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

-- Fragments: SQL that several statements share, or that one statement needs several times. {name}
-- in a statement or in another fragment is replaced by the fragment of that name. This file has the
-- fragments that read, store, change and keep jobs. work.sql has the fragments of claims, leases
-- and promotions, schedules.sql the fragments of fires. Lists of columns, such as {job}, are made
-- in columns.py.

-- name: is_ready
-- A job is queued from the time it is due until it ends or waits again, also while it runs.
-- ADR-0056
job.queued AND job.locked_by IS NULL AND {may_start}

-- name: is_claimable
-- Ready, and in no lane. ADR-0064
{is_ready} AND job.tier IS NULL

-- name: may_start
-- A job with a start_by must start for the first time before it. By clock_timestamp(): a claim may
-- have waited.
(job.start_by IS NULL OR job.attempts > 0 OR job.start_by > clock_timestamp())

-- name: rest_of_one
-- A single job is returned in full. Several are returned without payload, history and cursor.
CASE WHEN cardinality(:ids::uuid[]) = 1 THEN job.payload END AS payload,
    CASE WHEN cardinality(:ids::uuid[]) = 1 THEN job.history END AS history,
    CASE WHEN cardinality(:ids::uuid[]) = 1 THEN job.progress ->> 'cursor' END AS cursor

-- name: new_job_columns
-- The columns that an insert of jobs writes, except the status: {new_job}.
{stored_columns}, submitted_at, next_run_at, start_by, queued

-- name: new_job
{stored_of_new}, clock_timestamp(), {new_job_is_due_at}, {new_job_is_due_at} + new.start_within, {new_job_is_due}

-- name: new_job_is_due_at
COALESCE(new.run_at, clock_timestamp() + COALESCE(new.delay, interval '0'))

-- name: new_job_is_due
COALESCE(new.run_at <= clock_timestamp(), new.delay IS NULL)

-- name: insert_of_new
-- The beginning of an insert. A subselect named `new` follows.
INSERT INTO pulse.jobs ({new_job_columns}, status)
    SELECT {new_job}, 'PENDING'

-- name: given_jobs
-- The jobs of a batch. A value that all jobs share comes in an array of one.
SELECT {given_job} FROM unnest({given_arrays}) AS given ({given_columns})

-- name: insert_of_new_in_lanes
-- From new. A due job enters its lane: it gets a tier and a rank. ADR-0064
INSERT INTO pulse.jobs ({new_job_columns}, status, tier, rank_at)
    SELECT
        {new_job},
        'PENDING',
        CASE WHEN {enters_lane} THEN (
            SELECT CASE WHEN known.aging IS NULL THEN new.priority ELSE 0 END FROM {laned_policy}
        ) END,
        CASE WHEN {enters_lane} THEN (
            SELECT pulse.rank_of_v1(clock_timestamp(), new.priority, known.aging) FROM {laned_policy}
        ) END
    FROM new

-- name: enters_lane
-- In a topic with lanes. The policy is read only for such jobs.
new.lane IS NOT NULL AND {new_job_is_due}

-- name: laned_policy
pulse.flow_policies AS known WHERE known.topic = new.topic AND known.laned LIMIT 1

-- name: claim_after_insert
-- For hand_over_governed. The arguments depend on the stored rows, so all jobs are stored before
-- the claim begins.
pulse.claim_governed_v1(
    CASE WHEN stored.stored > COALESCE(cardinality(stored.taken_back), 0) THEN ARRAY[:claimed_topic::text] END,
    :slots::int, :order::int[], :workers::text[], :confirms::bool[], :lease::interval, :most_bytes::bigint, stored.lanes
)

-- name: inserted_at_last
-- The number of stored rows, their ids unless all were stored, and the ids that completed_among
-- took back.
count(*) AS stored,
    CASE WHEN count(*) < cardinality(:payload::bytea[]) THEN COALESCE(array_agg(inserted.id), '{}') END AS ids,
    CASE WHEN count(*) > 0 THEN pulse.completed_among_v1(
        array_agg(inserted.id),
        array_agg(inserted.id) FILTER (WHERE inserted.idempotency_key IS NOT NULL),
        to_timestamp(:finished_since::float8)
    ) END AS taken_back

-- name: lone_inserted_at_last
-- {inserted_at_last} for one job. No row: the job was left out.
1 AS stored,
    NULL::uuid[] AS ids,
    pulse.completed_among_v1(
        ARRAY[inserted.id],
        CASE WHEN inserted.idempotency_key IS NOT NULL THEN ARRAY[inserted.id] END,
        to_timestamp(:finished_since::float8)
    ) AS taken_back

-- name: asked_topic_is_free
-- Dispatch is on, and no other job is ready in the topic, or at the given levels.
{asked_topic_is_open}
      -- A CASE: an EXISTS would become a join, which walks the index even if there are levels.
      AND CASE WHEN :level_topics::text[] IS NULL
          THEN (SELECT true FROM pulse.jobs AS job WHERE job.topic = asked.topic AND {is_claimable} LIMIT 1) IS NULL
          ELSE true
      END
      AND NOT EXISTS (
          SELECT
          FROM unnest(:level_topics::text[], :level_priorities::int[], :level_ages::float8[]) AS place (topic, priority, age_seconds)
          CROSS JOIN LATERAL (SELECT FROM pulse.jobs AS job WHERE {is_in_level} LIMIT 1) AS found
          WHERE place.topic = asked.topic
      )

-- name: is_handed_over
-- The job has a worker and starts at once, and its topic is free.
(free.topic IS NOT NULL)

-- name: insert_of_handed_over
-- From `new`, the jobs, each with its worker, or null, and whether the worker confirms. From
-- `free`, the free topics.
INSERT INTO pulse.jobs ({new_job_columns}, status, attempts, run, locked_by, lease_until, started_at, delivered)
    SELECT
        {new_job},
        CASE WHEN {is_handed_over} THEN 'RUNNING' ELSE 'PENDING' END,
        CASE WHEN {is_handed_over} THEN 1 ELSE 0 END,
        CASE WHEN {is_handed_over} THEN 1 ELSE 0 END,
        CASE WHEN {is_handed_over} THEN new.worker_id END,
        CASE WHEN {is_handed_over} THEN clock_timestamp() + :lease::interval END,
        CASE WHEN {is_handed_over} THEN clock_timestamp() END,
        {is_handed_over} AND NOT new.confirms
    FROM new
    LEFT JOIN free
        ON free.topic = new.topic
       AND new.worker_id IS NOT NULL AND new.run_at IS NULL AND new.delay IS NULL
    ON CONFLICT DO NOTHING
    RETURNING id, idempotency_key, locked_by

-- name: holds_unique_key
-- The job holds the unique key of `new`, in its scope. In the form of the index jobs_unique.
job.topic = new.topic AND job.unique_key = new.unique_key AND job.unique_scope = new.unique_scope
      AND job.finished_at IS NULL

-- name: replaced_job_is_due_at
-- When the waiting `job` is due after `new` has replaced it.
CASE
            WHEN new.longest IS NULL THEN LEAST(job.next_run_at, {new_job_is_due_at})
            WHEN job.queued OR job.next_run_at <= clock_timestamp() THEN job.next_run_at
            ELSE LEAST(clock_timestamp() + new.delay, job.submitted_at + new.longest)
        END

-- name: replaced_by_new
-- The row of a waiting job that `new` replaces.
{replaced_columns},
        -- An operator may have retried it: it gets all attempts of the new job.
        max_attempts = job.attempts + new.max_attempts,
        next_run_at = {replaced_job_is_due_at},
        queued = job.queued OR (new.longest IS NULL AND {new_job_is_due}),
        start_by = {replaced_job_is_due_at} + new.start_within,
        -- It leaves its lane, and enters the new one in the next claim. ADR-0064
        tier = NULL,
        rank_at = NULL

-- name: attempts_by_policy
-- The attempts of a job of the interface that asks for none, as RunPolicies.max_attempts. Only an
-- operator's number wins over the default of the caller's code.
SELECT COALESCE(
            (own.overrides ->> 'max_attempts')::int, default_attempts, (own.declared ->> 'max_attempts')::int, control.max_attempts)
        INTO max_attempts
        FROM (SELECT topic AS topic) AS asked
        JOIN pulse.dispatch_control AS control ON control.id = 1
        LEFT JOIN pulse.run_policies AS own ON own.topic = asked.topic;

-- name: stamp_of_id
-- The moment that is stamped into the id of version 7 in the variable `id`.
to_timestamp(('x' || lpad(replace(left(id::text, 13), '-', ''), 16, '0'))::bit(64)::bigint / 1000.0)

-- name: known_by_id
-- The jobs with the id of `new`. No completed job with such an id finished before :finished_since;
-- NULL: unknown.
SELECT job.id, job.topic, job.payload, job.unique_key FROM pulse.jobs AS job WHERE job.id = new.id
    UNION ALL
    SELECT done.id, done.topic, done.payload, done.unique_key
    FROM pulse.completed_jobs AS done
    WHERE done.id = new.id AND done.finished_at >= COALESCE(to_timestamp(:finished_since::float8), '-infinity')

-- name: repeats_submit
-- The submit of `new` made the job `known`. A replaced job no longer has the payload of its submit:
-- a repeat of that submit is recognized by the unique key.
known.topic = new.topic AND (known.payload = new.payload OR COALESCE(known.unique_key = new.unique_key, false))

-- name: unfinished_targets
-- The unfinished jobs with one of the statuses, which an operator's statement changes. In a form
-- that no partial index can serve: for hundreds of ids the planner might walk one.
target AS MATERIALIZED (
    SELECT job.id, job.locked_by, job.attempts, job.run
    FROM pulse.jobs AS job
    WHERE job.id = ANY(:ids::uuid[])
      AND job.status = ANY(:statuses::text[])
      AND job.status NOT IN ('COMPLETED', 'DEAD_LETTERED', 'CANCELED')
    ORDER BY job.id
    FOR NO KEY UPDATE
)

-- name: steps_of_deleted
-- Deletes the steps and signals of the jobs in `deleted`: another job may get the id.
forgotten AS (
    DELETE FROM pulse.job_steps AS step
    USING deleted
    WHERE step.job_id = deleted.id AND deleted.steps IS NOT NULL
),
forgotten_signals AS (
    DELETE FROM pulse.job_signals AS signal
    USING deleted
    WHERE signal.job_id = deleted.id AND deleted.steps IS NOT NULL
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
-- When a job that was canceled in a worker may be claimed again. The rest is longer than a worker
-- takes to start a job that it holds, so no worker starts it after another has completed it.
-- ADR-0041
job.finished_at + :rest::interval

-- name: finished_after
-- For export_jobs: finished jobs after (:after_time, :after_id) in the order of submission, at most
-- :look_at. A job that was submitted after :before cannot have finished before it. Whether a job of
-- a day finished in time is checked later: a check here would step over an unbounded number of
-- jobs.
SELECT * FROM (
        (
            SELECT {job}, job.payload, job.history, job.result, job.progress ->> 'cursor' AS cursor,
                NULL::jsonb AS timeline
            FROM pulse.jobs AS job
            WHERE {is_next_to_export} AND job.finished_at IS NOT NULL
            ORDER BY job.submitted_at, job.id
            LIMIT :look_at
        )
        UNION ALL
        (
            SELECT {completed_job}, job.payload, job.history, job.result, NULL AS cursor, job.timeline
            FROM pulse.completed_jobs_by_day AS job
            WHERE {is_next_to_export} AND job.topic >= ''
              AND job.finished_at >= COALESCE(date_trunc('day', :since::timestamptz), '-infinity')
              AND job.finished_at < date_trunc('day', :before::timestamptz) + interval '1 day'
            ORDER BY job.submitted_at, job.id
            LIMIT :look_at
        )
        UNION ALL
        (
            SELECT {completed_job}, job.payload, job.history, job.result, NULL AS cursor, job.timeline
            FROM pulse.completed_jobs_kept AS job
            WHERE {is_next_to_export} AND job.topic >= ''
            ORDER BY job.submitted_at, job.id
            LIMIT :look_at
        )
    ) AS job
    ORDER BY job.submitted_at, job.id
    LIMIT :look_at

-- name: is_next_to_export
(job.submitted_at, job.id) > (:after_time::timestamptz, :after_id::uuid) AND job.submitted_at < :before::timestamptz

-- name: export_bytes
-- About the size of the job in memory and in a message.
octet_length(looked_at.payload) + COALESCE(octet_length(looked_at.last_error), 0)
        + COALESCE(octet_length(looked_at.result), 0)
        + COALESCE(pg_column_size(looked_at.history), 0) + COALESCE(pg_column_size(looked_at.metadata), 0)
        + COALESCE(looked_at.steps, 0) * 150 + 300

-- name: jobs_of_a_day
-- The next :jobs jobs of a partition after (:after_time, :after_id), in the order of submission.
-- One server at a time.
turn AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(482973020532) AS is_ours
),
looked_at AS MATERIALIZED (
    SELECT job.id, job.submitted_at, job.topic
    FROM pulse.completed_jobs_day AS job
    WHERE (SELECT turn.is_ours FROM turn)
      AND (job.submitted_at, job.id) > (:after_time::timestamptz, :after_id::uuid) AND job.topic >= ''
    ORDER BY job.submitted_at, job.id
    LIMIT :jobs
)

-- name: bytes_of_completed
-- About the size of a completed job.
(octet_length(job.payload) + COALESCE(octet_length(job.result), 0))

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
-- Checked before the join with the policies, which takes longer for each row than reading it.
looked_at.topic = ANY(ARRAY(SELECT known.topic FROM pulse.topic_policies AS known WHERE known.completed_kept IS NOT NULL))

-- What several statements share, or one statement needs several times, written once: {name} in a statement or in
-- another fragment is replaced by the fragment of that name. Here those of jobs: how they are read, stored, operated and
-- kept. work.sql has those of claims, leases and promotions, schedules.sql those of fires.

-- name: job
-- A job without what may be large: its payload, its history, its result and the cursor of its progress.
job.id, job.topic, job.status, job.priority, job.attempts, job.max_attempts, job.submitted_at, job.next_run_at,
    {is_ready} AS ready, job.delivered, job.locked_by, job.lease_until, job.started_at, job.finished_at, job.finished_by,
    job.last_error, job.idempotency_key, job.schedule_id, job.metadata, job.error_group, job.snoozes, job.crashes,
    job.start_by, job.unique_key, job.unique_scope, job.lane, job.progress - 'cursor' AS progress, job.steps, job.suspensions,
    job.waits_for

-- name: is_ready
-- A job is queued from when it is due until it ends or waits again, also while it runs. ADR-0056
job.queued AND job.locked_by IS NULL AND {may_start}

-- name: is_claimable
-- Ready, and in no lane. ADR-0064
{is_ready} AND job.tier IS NULL

-- name: may_start
-- A job with a start_by starts for the first time before that, or never. The clock's time: a claim may have waited.
(job.start_by IS NULL OR job.attempts > 0 OR job.start_by > clock_timestamp())

-- name: completed_job
-- {job} of a row of completed_jobs.
job.id, job.topic, 'COMPLETED' AS status, job.priority, job.attempts, job.max_attempts, job.submitted_at,
    job.next_run_at, false AS ready, job.delivered, NULL AS locked_by, NULL AS lease_until, job.started_at,
    job.finished_at, job.finished_by, job.last_error, job.idempotency_key, job.schedule_id, job.metadata,
    '' AS error_group, job.snoozes, job.crashes, NULL AS start_by, job.unique_key, NULL AS unique_scope, job.lane,
    NULL::jsonb AS progress, jsonb_array_length(job.timeline) AS steps, job.suspensions, NULL AS waits_for

-- name: rest_of_one
-- One job, named in $1, is returned in full. Hundreds at once are returned without payload, history and cursor.
CASE WHEN cardinality($1::uuid[]) = 1 THEN job.payload END AS payload,
    CASE WHEN cardinality($1::uuid[]) = 1 THEN job.history END AS history,
    CASE WHEN cardinality($1::uuid[]) = 1 THEN job.progress ->> 'cursor' END AS cursor

-- name: new_job_columns
-- What an insert of jobs writes: {new_job}, then queued and status.
id, topic, payload, priority, max_attempts, idempotency_key, metadata, schedule_id,
    submitted_at, next_run_at, queued, status

-- name: new_job
new.id, new.topic, new.payload, new.priority, new.max_attempts, new.idempotency_key, new.metadata::jsonb,
    new.schedule_id,
    clock_timestamp(),
    {new_job_is_due_at}

-- name: new_job_is_due_at
COALESCE(new.run_at, clock_timestamp() + COALESCE(new.delay, interval '0'))

-- name: new_job_is_due
COALESCE(new.run_at <= clock_timestamp(), new.delay IS NULL)

-- name: insert_of_new
-- The beginning of an insert. A subselect that makes `new` follows.
INSERT INTO pulse.jobs ({new_job_columns}, start_by)
    SELECT
        {new_job},
        {new_job_is_due},
        'PENDING',
        {new_job_is_due_at} + new.start_within

-- name: given_job
-- A job of a batch. What all of them have in common comes as an array of one: the others have a null there, and take
-- the first. Without an array the priority is 0, and the rest has no value.
given.id, COALESCE(given.topic, ($2::text[])[1]) AS topic, given.payload,
    COALESCE(given.priority, ($4::int[])[1], 0) AS priority,
    COALESCE(given.max_attempts, ($5::int[])[1]) AS max_attempts,
    given.idempotency_key, given.metadata, given.schedule_id, given.run_at, given.delay

-- name: insert_of_new_jobs
{insert_of_new}
    FROM (
        SELECT
            {given_job},
            given.start_within
        FROM unnest(
            $1::text::uuid[], $2::text[], $3::bytea[], $4::int[], $5::int[],
            $6::text[], $7::text[], $8::uuid[], $9::timestamptz[], $10::interval[], $12::interval[]
        ) AS given (id, topic, payload, priority, max_attempts, idempotency_key, metadata, schedule_id, run_at, delay,
                    start_within)
    ) AS new

-- name: jobs_with_lanes
-- The jobs of a batch in which some have a lane ($13).
new AS MATERIALIZED (
    SELECT
        {given_job},
        given.start_within, given.lane
    FROM unnest(
        $1::text::uuid[], $2::text[], $3::bytea[], $4::int[], $5::int[],
        $6::text[], $7::text[], $8::uuid[], $9::timestamptz[], $10::interval[], $12::interval[], $13::text[]
    ) AS given (id, topic, payload, priority, max_attempts, idempotency_key, metadata, schedule_id, run_at, delay,
                start_within, lane)
)

-- name: insert_of_new_in_lanes
-- From new, the jobs with the lane of each, or null. Those that get a tier have entered their lanes.
INSERT INTO pulse.jobs ({new_job_columns}, start_by, lane, tier, rank_at)
    SELECT
        {new_job},
        {new_job_is_due},
        'PENDING',
        {new_job_is_due_at} + new.start_within,
        new.lane,
        CASE WHEN policy.topic IS NULL THEN NULL WHEN policy.aging IS NULL THEN new.priority ELSE 0 END,
        CASE WHEN policy.topic IS NOT NULL THEN pulse.rank_of(clock_timestamp(), new.priority, policy.aging) END
    FROM new
    LEFT JOIN LATERAL (
        SELECT known.topic, known.aging
        FROM pulse.flow_policies AS known
        WHERE known.topic = new.topic AND known.laned AND new.lane IS NOT NULL AND {new_job_is_due}
        LIMIT 1
    ) AS policy ON true
    ON CONFLICT DO NOTHING
    RETURNING id, idempotency_key, topic, lane, tier

-- name: claim_after_insert
-- Of hand_over_governed. What is asked depends on what is stored: so all jobs are there when the claim begins.
pulse.claim_governed(
    CASE WHEN stored.stored > COALESCE(cardinality(stored.taken_back), 0) THEN ARRAY[$14::text] END,
    $15::int, $16::int[], $17::text[], $18::bool[], $19::interval, $20::bigint, stored.lanes
)

-- name: lone_job
-- One job, with a value in place of each array in $1-$10.
$1::uuid AS id, $2::text AS topic, $3::bytea AS payload, $4::int AS priority, $5::int AS max_attempts,
        $6::text AS idempotency_key, $7::text AS metadata, $8::uuid AS schedule_id, $9::timestamptz AS run_at,
        $10::interval AS delay

-- name: inserted_at_last
-- How many rows an insert stored, their ids unless it stored all, and those of them that completed_among took back.
count(*) AS stored,
    CASE WHEN count(*) < cardinality($3::bytea[]) THEN COALESCE(array_agg(inserted.id), '{}') END AS ids,
    CASE WHEN count(*) > 0 THEN pulse.completed_among(
        array_agg(inserted.id),
        array_agg(inserted.id) FILTER (WHERE inserted.idempotency_key IS NOT NULL),
        to_timestamp($11::float8)
    ) END AS taken_back

-- name: lone_inserted_at_last
-- {inserted_at_last} for one job. No row: the job was left out.
1 AS stored,
    NULL::uuid[] AS ids,
    pulse.completed_among(
        ARRAY[inserted.id],
        CASE WHEN inserted.idempotency_key IS NOT NULL THEN ARRAY[inserted.id] END,
        to_timestamp($11::float8)
    ) AS taken_back

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
          FROM unnest($15::text[], $16::int[], $17::float8[]) AS place (topic, priority, age_seconds)
          CROSS JOIN LATERAL (SELECT FROM pulse.jobs AS job WHERE {is_in_level} LIMIT 1) AS found
          WHERE place.topic = asked.topic
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

-- name: known_by_id
-- The jobs with the id of `new`. $5: no completed job with one of the ids finished before this second; NULL: unknown.
SELECT job.id, job.topic, job.payload, job.unique_key FROM pulse.jobs AS job WHERE job.id = new.id
    UNION ALL
    SELECT done.id, done.topic, done.payload, done.unique_key
    FROM pulse.completed_jobs AS done
    WHERE done.id = new.id AND done.finished_at >= COALESCE(to_timestamp($5::float8), '-infinity')

-- name: repeats_submit
-- The submit of `new` made the job `known`. A job that was replaced has another payload than it was submitted with: to a
-- repeat of that submit it is the same if the unique key is.
known.topic = new.topic AND (known.payload = new.payload OR COALESCE(known.unique_key = new.unique_key, false))

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
-- From here on a job that was canceled in a worker may be claimed again: longer than a worker takes to start a job it
-- holds, so that none starts it after another has completed it. ADR-0041
job.finished_at + $5::interval

-- name: finished_after
-- Of export_jobs: the finished jobs after ($1, $2) in the order of submission, $3 at the most. One that was submitted
-- after $6 cannot have finished before it. Days are read whole: whether a job of them finished in time is judged later, or
-- a statement would step over those that did not, without a bound.
SELECT * FROM (
        (
            SELECT {job}, job.payload, job.history, job.result, job.progress ->> 'cursor' AS cursor,
                NULL::jsonb AS timeline
            FROM pulse.jobs AS job
            WHERE {is_next_to_export} AND job.finished_at IS NOT NULL
            ORDER BY job.submitted_at, job.id
            LIMIT $3
        )
        UNION ALL
        (
            SELECT {completed_job}, job.payload, job.history, job.result, NULL AS cursor, job.timeline
            FROM pulse.completed_jobs_by_day AS job
            WHERE {is_next_to_export} AND job.topic >= ''
              AND job.finished_at >= COALESCE(date_trunc('day', $5::timestamptz), '-infinity')
              AND job.finished_at < date_trunc('day', $6::timestamptz) + interval '1 day'
            ORDER BY job.submitted_at, job.id
            LIMIT $3
        )
        UNION ALL
        (
            SELECT {completed_job}, job.payload, job.history, job.result, NULL AS cursor, job.timeline
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
        + COALESCE(octet_length(looked_at.result), 0)
        + COALESCE(pg_column_size(looked_at.history), 0) + COALESCE(pg_column_size(looked_at.metadata), 0)
        + COALESCE(looked_at.steps, 0) * 150 + 300

-- name: jobs_of_a_day
-- The next $4 jobs of a partition after ($2, $3), in the order of submission. One server at a time.
turn AS MATERIALIZED (
    SELECT pg_try_advisory_xact_lock(482973020532) AS is_ours
),
looked_at AS MATERIALIZED (
    SELECT job.id, job.submitted_at, job.topic
    FROM pulse.completed_jobs_day AS job
    WHERE (SELECT turn.is_ours FROM turn)
      AND (job.submitted_at, job.id) > ($2::timestamptz, $3::uuid) AND job.topic >= ''
    ORDER BY job.submitted_at, job.id
    LIMIT $4
)

-- name: bytes_of_completed
-- About what a completed job takes.
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
-- Before the join with the policies, which takes longer for each row than to look at it.
looked_at.topic = ANY(ARRAY(SELECT known.topic FROM pulse.topic_policies AS known WHERE known.completed_kept IS NOT NULL))

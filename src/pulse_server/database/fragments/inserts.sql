-- Fragments of new jobs: inserts, hand-overs, keys, and the interface. jobs.sql explains
-- fragments.

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
    SELECT {new_job}, 'PENDING', {place_in_lane}
    FROM new

-- name: place_in_lane
-- The tier and the rank of `new`; null: it enters no lane.
CASE WHEN {enters_lane} THEN (
            SELECT CASE WHEN known.aging IS NULL THEN new.priority ELSE 0 END FROM {laned_policy}
        ) END,
        CASE WHEN {enters_lane} THEN (
            SELECT pulse.rank_of_v1(clock_timestamp(), new.priority, known.aging) FROM {laned_policy}
        ) END

-- name: notices_of_entered
-- Lets the next claim find the jobs in `inserted` that entered lanes.
noticed AS (
    INSERT INTO pulse.limit_notices (pool, topic, lanes, ended)
    SELECT
        (SELECT known.pool FROM pulse.limit_policies AS known WHERE known.topic = entered.topic),
        entered.topic, array_agg(entered.lane), 0
    FROM (
        SELECT inserted.topic, inserted.lane, row_number() OVER () AS number
        FROM inserted
        WHERE inserted.tier IS NOT NULL
        GROUP BY inserted.topic, inserted.lane
    ) AS entered
    GROUP BY entered.topic, entered.number / 64
)

-- name: enters_lane
-- In a topic with lanes. The policy is read only for such jobs.
new.lane IS NOT NULL AND {new_job_is_due}

-- name: laned_policy
pulse.limit_policies AS known WHERE known.topic = new.topic AND known.laned LIMIT 1

-- name: claim_after_insert
-- For hand_over_limited. The arguments depend on the stored rows, so all jobs are stored before
-- the claim begins.
pulse.claim_limited_v1(
    CASE WHEN stored.stored > COALESCE(cardinality(stored.taken_back), 0) THEN ARRAY[:claimed_topic::text] END,
    :slots::int, :order::int[], :workers::text[], :confirms::bool[], :lease::interval, :most_bytes::bigint, stored.lanes
)

-- name: inserted_at_last
-- The number of stored rows, their ids unless all were stored, the ids that completed_among took
-- back, and when the first row was stored.
count(*) AS stored,
    CASE WHEN count(*) < cardinality(:payload::bytea[]) THEN COALESCE(array_agg(inserted.id), '{}') END AS ids,
    CASE WHEN count(*) > 0 THEN pulse.completed_among_v1(
        array_agg(inserted.id),
        array_agg(inserted.id) FILTER (WHERE inserted.idempotency_key IS NOT NULL),
        to_timestamp(:finished_since::float8)
    ) END AS taken_back,
    min(inserted.submitted_at) AS stored_at

-- name: lone_inserted_at_last
-- {inserted_at_last} for one job. No row: the job was left out.
1 AS stored,
    NULL::uuid[] AS ids,
    pulse.completed_among_v1(
        ARRAY[inserted.id],
        CASE WHEN inserted.idempotency_key IS NOT NULL THEN ARRAY[inserted.id] END,
        to_timestamp(:finished_since::float8)
    ) AS taken_back,
    inserted.submitted_at AS stored_at

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
    RETURNING id, idempotency_key, submitted_at, locked_by

-- name: holds_unique_key
-- The job holds the unique key of `new`, in its scope. In the form of the index jobs_unique.
job.topic = new.topic AND job.unique_key = new.unique_key AND job.unique_scope = new.unique_scope
      AND job.finished_at IS NULL

-- name: finished_without_their_keys
-- Of `finished`, those whose key cannot be taken again, each with the job that holds it: another job
-- holds the key now, or an earlier job of `finished` would take it.
SELECT new.id, COALESCE(holder.id, new.first_id) AS holder_id, new.unique_key
FROM (
    SELECT finished.*,
        first_value(finished.id) OVER (PARTITION BY finished.topic, finished.unique_key, finished.unique_scope ORDER BY finished.id)
            AS first_id
    FROM finished
) AS new
LEFT JOIN LATERAL (SELECT job.id FROM pulse.jobs AS job WHERE {holds_unique_key} LIMIT 1) AS holder ON true
WHERE holder.id IS NOT NULL OR new.first_id <> new.id

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
        -- A job that waits for other jobs of its workflow goes on waiting. ADR-0077
        next_run_at = CASE WHEN job.held THEN job.next_run_at ELSE {replaced_job_is_due_at} END,
        queued = job.queued OR (new.longest IS NULL AND {new_job_is_due} AND job.held IS NULL),
        start_by = CASE WHEN job.held IS NULL THEN {replaced_job_is_due_at} + new.start_within END,
        -- It leaves its lane, and enters the new one in the next claim. ADR-0064
        tier = NULL,
        rank_at = NULL,
        -- It is no longer the job that an operator retried.
        undo = NULL

-- name: attempts_by_policy
-- The attempts of a job of the interface that asks for none, as TopicRules.max_attempts. Only an
-- operator's number wins over the default of the caller's code.
SELECT COALESCE(
            CASE WHEN rules.attempts_by_operator THEN rules.max_attempts END, default_attempts, rules.max_attempts, control.max_attempts)
        INTO max_attempts
        FROM (SELECT topic AS topic) AS asked
        JOIN pulse.dispatch_control AS control ON control.id = 1
        LEFT JOIN pulse.topic_rules AS rules ON rules.topic = asked.topic;

-- name: stamp_of_id
-- The moment that is stamped into the id of version 7 in the variable `id`.
to_timestamp(('x' || lpad(replace(left(id::text, 13), '-', ''), 16, '0'))::bit(64)::bigint / 1000.0)

-- name: known_by_id
-- The jobs with the id of `new`. No completed job with such an id finished before :finished_since;
-- NULL: unknown.
SELECT job.id, job.topic, job.payload, job.unique_key, job.submitted_at FROM pulse.jobs AS job WHERE job.id = ANY(ARRAY[new.id])
    UNION ALL
    SELECT done.id, done.topic, done.payload, done.unique_key, done.submitted_at
    FROM pulse.completed_jobs AS done
    WHERE done.id = ANY(ARRAY[new.id]) AND done.finished_at >= COALESCE(to_timestamp(:finished_since::float8), '-infinity')

-- name: repeats_submit
-- The submit of `new` made the job `known`. A replaced job no longer has the payload of its submit:
-- a repeat of that submit is recognized by the unique key.
known.topic = new.topic AND (known.payload = new.payload OR COALESCE(known.unique_key = new.unique_key, false))

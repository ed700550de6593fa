-- Unique jobs: submits that meet a job with the same key. jobs.sql has the rules for all transitions. ADR-0066
--
-- The index jobs_unique decides races between inserts; no statement trusts a look. A claim does not touch it: a job that has
-- started still stands there for `waiting`, and a submit that meets it clears its unique_scope and inserts again.

-- name: insert_unique_jobs
-- insert_jobs for jobs with a unique key. A row whose key another job holds is left out, too, and so is a throttled one
-- whose period is not over. Rows are inserted in the order of their keys: two statements cannot wait for each other.
-- Returns the ids of the rows that were inserted, and those of them that were taken back, by completed_among or because
-- a submit in the same moment took the period.
--   $1-$12 as insert_jobs   $13 unique keys   $14 scopes   $15 periods of throttled jobs   $16 lanes: they enter them in a claim
WITH new AS MATERIALIZED (
    SELECT
        {given_job},
        given.start_within, given.unique_key, given.unique_scope, given.period, given.lane, given.place
    FROM unnest(
        $1::text::uuid[], $2::text[], $3::bytea[], $4::int[], $5::int[],
        $6::text[], $7::text[], $8::uuid[], $9::timestamptz[], $10::interval[], $12::interval[],
        $13::text[], $14::text[], $15::interval[], $16::text[]
    ) WITH ORDINALITY AS given (id, topic, payload, priority, max_attempts, idempotency_key, metadata, schedule_id, run_at,
                                delay, start_within, unique_key, unique_scope, period, lane, place)
),
inserted AS (
    INSERT INTO pulse.jobs ({new_job_columns}, start_by, unique_key, unique_scope, lane)
    SELECT
        {new_job},
        {new_job_is_due},
        'PENDING',
        {new_job_is_due_at} + new.start_within,
        new.unique_key,
        new.unique_scope,
        new.lane
    FROM new
    WHERE new.period IS NULL OR NOT EXISTS (
        SELECT
        FROM pulse.unique_periods AS known
        WHERE known.topic = new.topic AND known.key = new.unique_key AND known.until > clock_timestamp()
    )
    ORDER BY new.topic, new.unique_key, new.place
    ON CONFLICT DO NOTHING
    RETURNING id, idempotency_key, topic, unique_key
),
first_look AS MATERIALIZED (
    SELECT
        array_agg(inserted.id) AS ids,
        CASE WHEN count(*) > 0 THEN pulse.completed_among(
            array_agg(inserted.id),
            array_agg(inserted.id) FILTER (WHERE inserted.idempotency_key IS NOT NULL),
            to_timestamp($11::float8)
        ) END AS taken_back
    FROM inserted
),
throttled AS MATERIALIZED (
    SELECT
        array_agg(inserted.id) AS ids, array_agg(inserted.topic) AS topics, array_agg(inserted.unique_key) AS keys,
        array_agg(new.period) AS periods
    FROM inserted
    JOIN new ON new.id = inserted.id AND new.unique_key = inserted.unique_key
    WHERE new.period IS NOT NULL
      AND inserted.id <> ALL(COALESCE((SELECT first_look.taken_back FROM first_look), '{}'))
)
SELECT
    first_look.ids,
    first_look.taken_back,
    CASE WHEN throttled.ids IS NOT NULL
        THEN pulse.throttled_among(throttled.ids, throttled.topics, throttled.keys, throttled.periods)
    END AS throttled
FROM first_look
CROSS JOIN throttled;

-- name: meet_rivals
-- What a submit does to the job that holds its key, if that still does. PENDING stays PENDING with the payload and the
-- options of the new job. It starts no later than either of them asked for; with a debounce so long after this submit, but
-- no later than $12 after the first one, unless it is due already. A job that has started no longer waits: its key is free. A row
-- that another session has locked is skipped, and the caller tries again. Returns the rivals that were met, and whether
-- they were replaced.
--   $1 rivals   $2-$4 topics, unique keys, scopes   $5 whether to replace   $6-$11, $13, $14 payload and options
--   $12 the longest that a debounce may take; NULL: no debounce
WITH asked AS MATERIALIZED (
    SELECT *
    FROM unnest(
        $1::uuid[], $2::text[], $3::text[], $4::text[], $5::bool[],
        $6::bytea[], $7::int[], $8::int[], $9::text[], $10::timestamptz[], $11::interval[], $12::interval[],
        $13::interval[], $14::text[]
    ) AS new (rival_id, topic, unique_key, unique_scope, replaces,
              payload, priority, max_attempts, metadata, run_at, delay, longest, start_within, lane)
),
rival AS MATERIALIZED (
    SELECT job.id, job.status = 'PENDING' AS waits
    FROM asked AS new
    JOIN pulse.jobs AS job ON job.id = new.rival_id
    WHERE {holds_unique_key}
    FOR NO KEY UPDATE OF job SKIP LOCKED
),
freed AS (
    UPDATE pulse.jobs AS job
    SET unique_scope = NULL
    FROM rival
    WHERE job.id = rival.id AND NOT rival.waits AND job.unique_scope = 'waiting'
    RETURNING job.id
),
replaced AS (
    UPDATE pulse.jobs AS job
    SET payload = new.payload,
        priority = new.priority,
        max_attempts = new.max_attempts,
        metadata = new.metadata::jsonb,
        next_run_at = {replaced_job_is_due_at},
        queued = job.queued OR (new.longest IS NULL AND {new_job_is_due}),
        start_by = {replaced_job_is_due_at} + new.start_within,
        -- It leaves the lane that it stands in, and enters the new one with the next claim. ADR-0064
        lane = new.lane,
        tier = NULL,
        rank_at = NULL
    FROM rival
    JOIN asked AS new ON new.rival_id = rival.id AND new.replaces
    WHERE job.id = rival.id AND rival.waits
    RETURNING job.id
)
SELECT freed.id, false AS is_replaced FROM freed
UNION ALL
SELECT replaced.id, true FROM replaced;

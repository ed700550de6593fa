-- Unique jobs: submits that meet a job with the same key. jobs.sql has the rules for all transitions. ADR-0066
--
-- The index jobs_unique decides races between inserts; no statement trusts an earlier read. A claim
-- does not touch it: a started job keeps its entry for `waiting`, and a submit that meets it clears
-- its unique_scope and inserts again.

-- name: insert_rich_jobs(*new_job, finished_since, period)
-- insert_jobs for batches with lanes or unique keys. A row is also left out if another job holds
-- its unique key, or if it is throttled and its :period is not over. The caller sorts the jobs by
-- their keys, so two statements cannot deadlock. In topics with lanes, due jobs enter their lanes:
-- the next claim finds them by the notices. Other jobs enter in a claim. ADR-0064
-- Also returns the rows that were taken back because a concurrent submit took the period.
WITH new AS NOT MATERIALIZED (
    SELECT {given_job}, given.period
    FROM unnest({given_arrays}, :period::interval[]) AS given ({given_columns}, period)
),
inserted AS (
    {insert_of_new_in_lanes}
    WHERE new.period IS NULL OR NOT EXISTS (
        SELECT
        FROM pulse.unique_periods AS known
        WHERE known.topic = new.topic AND known.key = new.unique_key AND known.until > clock_timestamp()
    )
    ON CONFLICT DO NOTHING
    RETURNING id, idempotency_key, submitted_at, topic, unique_key, lane, tier
),
{notices_of_entered},
stored AS MATERIALIZED (
    SELECT {inserted_at_last} FROM inserted
),
-- A hashed subplan. Hash joins are off, and a nested loop compares each job with each.
throttled AS MATERIALIZED (
    SELECT
        array_agg(new.id) AS ids, array_agg(new.topic) AS topics, array_agg(new.unique_key) AS keys,
        array_agg(new.period) AS periods
    FROM new
    WHERE :period::interval[] IS NOT NULL AND new.period IS NOT NULL
      AND ((new.id, new.unique_key) IN (SELECT inserted.id, inserted.unique_key FROM inserted)) IS TRUE
      AND new.id <> ALL(COALESCE((SELECT stored.taken_back FROM stored), '{}'))
)
SELECT
    stored.stored,
    stored.ids,
    stored.taken_back,
    stored.stored_at,
    CASE WHEN throttled.ids IS NOT NULL
        THEN pulse.throttled_among_v1(throttled.ids, throttled.topics, throttled.keys, throttled.periods)
    END AS throttled
FROM stored
CROSS JOIN throttled;

-- name: meet_rivals(*new_job, rivals, replaces, longest)
-- Changes the job that holds the key of a submit, if it still holds it. PENDING stays PENDING, with
-- the payload and the options of the new job. It starts at the earlier of the two requested times.
-- With a debounce it starts the delay after this submit, but no later than :longest after the first
-- submit, unless it is due already. A started job no longer waits: its key is freed. A row that
-- another session has locked is skipped, and the caller tries again. Returns the rivals that were
-- met, and whether they were replaced.
-- :longest is the longest duration of a debounce; NULL: no debounce.
WITH asked AS NOT MATERIALIZED (
    SELECT {given_job}, given.rival_id, given.replaces, given.longest
    FROM unnest({given_arrays}, :rivals::uuid[], :replaces::bool[], :longest::interval[])
        AS given ({given_columns}, rival_id, replaces, longest)
),
rival AS MATERIALIZED (
    SELECT new.*, job.status = 'PENDING' AS waits
    FROM asked AS new
    CROSS JOIN LATERAL (
        SELECT job.status
        FROM pulse.jobs AS job
        WHERE job.id = new.rival_id AND {holds_unique_key}
        FOR NO KEY UPDATE SKIP LOCKED
    ) AS job
),
freed AS (
    UPDATE pulse.jobs AS job
    SET unique_scope = NULL
    FROM rival
    WHERE job.id = ANY(ARRAY[rival.rival_id]) AND NOT rival.waits AND job.unique_scope = 'waiting'
    RETURNING job.id
),
replaced AS (
    UPDATE pulse.jobs AS job
    SET {replaced_by_new}
    FROM rival AS new
    WHERE job.id = ANY(ARRAY[new.rival_id]) AND new.waits AND new.replaces
    RETURNING job.id
)
SELECT freed.id, false AS is_replaced FROM freed
UNION ALL
SELECT replaced.id, true FROM replaced;

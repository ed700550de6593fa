-- Completed jobs by the day: partitions are made ahead, and dropped once their whole day has been
-- kept long enough. Jobs of topics with durations of their own are deleted row by row. completed_jobs_day stands
-- for the current partition. docs/figures.md#retention

-- name: add_completed_days(days)
-- Today and the days after it, by the database's clock, in UTC.
SELECT pulse.add_completed_days_v1((now() AT TIME ZONE 'UTC')::date, :days) AS made;

-- name: completed_days
-- The days that have a partition, and the durations of topics.
SELECT
    now() AS now,
    ARRAY(
        SELECT to_date(right(class.relname, 8), 'YYYYMMDD')
        FROM pg_catalog.pg_inherits AS part
        JOIN pg_catalog.pg_class AS class ON class.oid = part.inhrelid
        WHERE part.inhparent = 'pulse.completed_jobs_by_day'::regclass
          AND class.relname ~ '^completed_jobs_[0-9]+$'
        ORDER BY class.relname
    ) AS days,
    ARRAY(
        SELECT own.completed_kept
        FROM pulse.retention_in_force AS own
        WHERE own.completed_kept IS NOT NULL
        ORDER BY own.completed_kept
    ) AS kept,
    (SELECT max(rules.kept_changed_at) FROM pulse.topic_rules AS rules) AS changed_at;

-- name: delete_expired_completed(kept, after_time, after_id, jobs, without_own)
-- Deletes jobs of the partition past the duration of their topic, or otherwise past
-- :kept. Reads at most one batch, in the order of submission, from an index that has the topic: a
-- job of another topic costs only its index entry.
-- :without_own: also deletes jobs of topics without their own.
WITH {jobs_of_a_day},
expired AS MATERIALIZED (
    SELECT job.id
    FROM looked_at
    LEFT JOIN pulse.retention_in_force AS own ON own.topic = ANY(ARRAY[looked_at.topic])
    JOIN pulse.completed_jobs_day AS job ON job.id = ANY(ARRAY[looked_at.id])
    WHERE (:without_own::bool OR {topic_has_its_own})
    -- Nothing finishes before it is submitted: most rows need not be read.
      AND looked_at.submitted_at < now() - COALESCE(own.completed_kept, :kept::interval)
      AND job.finished_at < now() - COALESCE(own.completed_kept, :kept::interval)
      AND NOT {unfinished_workflow}
    FOR UPDATE OF job SKIP LOCKED
),
deleted AS (
    DELETE FROM pulse.completed_jobs_day AS job USING expired WHERE job.id = ANY(ARRAY[expired.id]) RETURNING job.id
)
SELECT turn.is_ours, {walk_of_a_day}, (SELECT count(*) FROM deleted) AS changed, 0 AS left_over
FROM turn
{reached_in_a_day};

-- name: keep_longer(kept, after_time, after_id, jobs, day, next_day, most_bytes, without_own)
-- Moves jobs out of the day's partition into completed_jobs_kept, if the settings of their topic
-- keep them for longer than :kept. Moves up to :most_bytes bytes, at least one job. `left_over`
-- counts jobs that did not fit.
-- :kept: NULL is forever.
-- :without_own: also moves jobs of topics without their own, if they are still kept.
WITH {jobs_of_a_day},
longer AS MATERIALIZED (
    SELECT job.id, sum({bytes_of_completed}) OVER line - {bytes_of_completed} AS bytes_before
    FROM looked_at
    LEFT JOIN pulse.retention_in_force AS own ON own.topic = ANY(ARRAY[looked_at.topic])
    JOIN pulse.completed_jobs_day AS job ON job.id = ANY(ARRAY[looked_at.id])
    WHERE (:without_own::bool OR ({topic_has_its_own} AND own.completed_kept > :kept::interval))
      AND COALESCE(job.finished_at >= now() - COALESCE(own.completed_kept, :kept::interval), true)
    WINDOW line AS (ROWS UNBOUNDED PRECEDING)
),
moved AS (
    UPDATE pulse.completed_jobs AS job
    SET kept = true
    FROM longer
    WHERE job.id = ANY(ARRAY[longer.id])
      AND longer.bytes_before < :most_bytes::bigint
      AND NOT job.kept
      AND job.finished_at >= :day::timestamptz AND job.finished_at < :next_day::timestamptz
    RETURNING job.id
)
SELECT turn.is_ours, {walk_of_a_day}, (SELECT count(*) FROM moved) AS changed,
       (SELECT count(*) FROM longer WHERE longer.bytes_before >= :most_bytes::bigint) AS left_over
FROM turn
{reached_in_a_day};

-- name: drop_completed_day(day, unless_changed_since)
SELECT pulse.drop_completed_day_v1(:day::date, :unless_changed_since::timestamptz) AS jobs;

-- What an observer asks. Sampled in the background, never while somebody waits for an answer.

-- name: ready_by_topic
-- How many jobs could be claimed, and how long the one that is longest due has been due, per topic; those past
-- the $1 deepest topics together, with no name. Read from the claim index alone (migration 0003).
WITH waiting AS MATERIALIZED (
    SELECT job.topic, count(*) AS ready, min(job.next_run_at) AS due_since
    FROM pulse.jobs AS job
    WHERE job.ready
    GROUP BY job.topic
),
ranked AS (
    SELECT waiting.*, row_number() OVER (ORDER BY waiting.ready DESC, waiting.topic) AS rank FROM waiting
)
SELECT
    CASE WHEN ranked.rank <= $1::int THEN ranked.topic END AS topic,
    sum(ranked.ready)::bigint AS ready,
    GREATEST(0, EXTRACT(epoch FROM clock_timestamp() - min(ranked.due_since)))::float8 AS oldest_seconds
FROM ranked
GROUP BY 1;

-- name: count_jobs
-- Those that are small in a healthy queue, each from its own partial index. Completed ones are not counted:
-- nothing short of reading them all could tell.
SELECT
    (SELECT count(*) FROM pulse.jobs WHERE status = 'RUNNING') AS running,
    (SELECT count(*) FROM pulse.jobs WHERE status = 'DEAD_LETTERED') AS dead_letters;

-- name: measure_database
-- The state of the database itself. A transaction holds dead rows back from the moment it has a snapshot or an
-- id; one that was prepared does so until somebody ends it. Sessions of other roles are seen only by a member
-- of pg_read_all_stats.
SELECT
    GREATEST(
        0,
        (SELECT EXTRACT(epoch FROM clock_timestamp() - min(session.xact_start))
         FROM pg_stat_activity AS session
         WHERE (session.backend_xmin IS NOT NULL OR session.backend_xid IS NOT NULL)
           AND (session.datname = current_database() OR session.backend_type = 'walsender')
           AND session.backend_type IN ('client backend', 'walsender')
           AND session.pid <> pg_backend_pid()),
        (SELECT EXTRACT(epoch FROM clock_timestamp() - min(prepared.prepared))
         FROM pg_prepared_xacts AS prepared
         WHERE prepared.database = current_database())
    )::float8 AS oldest_transaction_seconds,
    GREATEST(
        0,
        (SELECT EXTRACT(epoch FROM clock_timestamp() - min(schedule.next_run_at))
         FROM pulse.schedules AS schedule
         WHERE NOT schedule.paused)
    )::float8 AS schedule_lag_seconds,
    pg_stat_get_dead_tuples('pulse.jobs'::regclass) AS dead_rows,
    pg_total_relation_size('pulse.jobs'::regclass) AS jobs_bytes;

-- name: ping
SELECT 1;

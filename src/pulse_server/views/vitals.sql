-- The vitals. Sampled in the background, never while a caller waits.

-- name: jobs_by_topic(most)
-- How many jobs could be claimed per topic, for how long the oldest has been due, and how many dead
-- letters there are. Topics past the first :most, by these jobs, are summed in one nameless row. Read
-- from the claim index, without running jobs, and from the partial index of unsuccessful jobs.
WITH {running_jobs},
counted AS MATERIALIZED (
    SELECT job.topic, sum(job.ready) AS ready, min(job.oldest) AS due_since, sum(job.dead_letters) AS dead_letters
    FROM (
        SELECT ready.topic, ready.jobs AS ready, ready.oldest, 0 AS dead_letters
        FROM {ready_by_topic_now}
        UNION ALL
        SELECT job.topic, 0, NULL, count(*)
        FROM pulse.jobs AS job
        WHERE job.ended_as = 'DEAD_LETTERED'
        GROUP BY job.topic
    ) AS job
    GROUP BY job.topic
),
ranked AS (
    SELECT counted.*, row_number() OVER (ORDER BY counted.ready + counted.dead_letters DESC, counted.topic) AS rank
    FROM counted
)
SELECT
    CASE WHEN ranked.rank <= :most::int THEN ranked.topic END AS topic,
    sum(ranked.ready)::bigint AS ready,
    COALESCE(GREATEST(0, EXTRACT(epoch FROM clock_timestamp() - min(ranked.due_since))), 0)::float8 AS oldest_seconds,
    sum(ranked.dead_letters)::bigint AS dead_letters
FROM ranked
GROUP BY 1;

-- name: count_running
WITH {running_jobs}
SELECT count(*) AS running FROM running;

-- name: measure_database
-- The state of the database itself.
SELECT
    GREATEST(
        0,
        (SELECT EXTRACT(epoch FROM clock_timestamp() - min(schedule.next_run_at))
         FROM pulse.schedules AS schedule
         WHERE NOT schedule.paused)
    )::float8 AS schedule_lag_seconds,
    {dead_rows} AS dead_rows,
    (SELECT sum(pg_total_relation_size(part.relid))::bigint FROM ({tables_of_jobs}) AS part) AS jobs_bytes;

-- name: oldest_holder
-- The oldest holder of the horizon behind which vacuum can remove dead rows of this database: a
-- session with a snapshot or a transaction id, a prepared transaction, a standby that reports the
-- needs of its queries, or the slot that keeps them. Only the oldest, by transactions, counts. In
-- other databases only transaction ids count: every snapshot taken since reaches back to them, ours
-- included. So if several holders reach equally far, the owner of the id comes first. Sessions that
-- vacuum hold nothing. The pid and snapshot of other roles' sessions are visible to all. Their
-- start and state are visible only to a member of pg_read_all_stats.
WITH session AS MATERIALIZED (
    SELECT
        activity.*,
        CASE
            WHEN activity.datid IS NULL OR activity.datname = current_database() THEN activity.backend_xmin
        END AS snapshot
    FROM pg_stat_activity AS activity
),
holder AS (
    SELECT
        CASE WHEN session.datid IS NULL THEN 'standby' ELSE 'session' END AS kind,
        CASE
            WHEN session.snapshot IS NULL OR age(session.backend_xid) > age(session.snapshot)
            THEN session.backend_xid ELSE session.snapshot
        END AS xid,
        age(session.backend_xid) >= COALESCE(age(session.snapshot), 0) AS is_its_own,
        session.pid, '' AS name, session.datname AS database, session.application_name, session.usename,
        session.state, session.xact_start AS since
    FROM session
    WHERE (session.snapshot IS NOT NULL OR session.backend_xid IS NOT NULL)
      AND (
          session.datid IS NOT NULL
          OR EXISTS (SELECT FROM pg_stat_replication AS standby WHERE standby.pid = session.pid)
      )
      AND session.pid <> pg_backend_pid()
      AND session.leader_pid IS NULL
      AND NOT EXISTS (SELECT FROM pg_stat_progress_vacuum AS vacuum WHERE vacuum.pid = session.pid)
    UNION ALL
    SELECT 'prepared transaction', prepared.transaction, true, NULL, prepared.gid, prepared.database, '',
        prepared.owner, 'prepared', prepared.prepared
    FROM pg_prepared_xacts AS prepared
    UNION ALL
    SELECT 'replication slot', slot.xmin, false, slot.active_pid, slot.slot_name, '', session.application_name,
        session.usename, CASE WHEN slot.active THEN 'active' ELSE 'inactive' END, NULL
    FROM pg_replication_slots AS slot
    LEFT JOIN session ON session.pid = slot.active_pid
    WHERE slot.xmin IS NOT NULL
)
SELECT
    holder.kind,
    holder.xid::text::bigint AS xid,
    GREATEST(0, age(holder.xid)) AS transactions,
    {dead_rows} AS dead_rows,
    holder.pid,
    holder.name,
    COALESCE(holder.database, '')::text AS database,
    COALESCE(holder.application_name, '') AS application,
    COALESCE(holder.usename, '')::text AS "user",
    holder.state,
    CASE
        WHEN holder.since IS NOT NULL THEN GREATEST(0, date_part('epoch', clock_timestamp() - holder.since))
    END AS seconds
FROM holder
ORDER BY age(holder.xid) DESC, holder.is_its_own DESC NULLS LAST, holder.since NULLS LAST, holder.pid
LIMIT 1;

-- name: ping
SELECT 1;

-- name: write_temporary_file
-- With a work_mem of 64 kB, the rows do not fit into memory. They are written to a temporary file on
-- the disk of the tables, unless temp_tablespaces names another one.
SELECT count(*) FROM generate_series(1, 10000);

-- name: long_runs(longer_than, most)
-- The topics with jobs that have run for longer than :longer_than, at most :most topics: the seconds of each such
-- run, and how long the runs of the last day took, by bucket. One look-up by key for each minute.
WITH {running_jobs},
slow AS MATERIALIZED (
    SELECT
        running.topic,
        array_agg(EXTRACT(epoch FROM clock_timestamp() - running.started_at)::float8) AS seconds
    FROM running
    WHERE running.started_at < clock_timestamp() - :longer_than::interval
    GROUP BY running.topic
    ORDER BY min(running.started_at)
    LIMIT :most
)
SELECT
    slow.topic,
    slow.seconds,
    (
        SELECT COALESCE(jsonb_object_agg(total.bucket, total.jobs), '{}')
        FROM (
            SELECT entry.key AS bucket, sum(entry.value::bigint) AS jobs
            FROM generate_series(
                date_trunc('minute', now()) - interval '1 day', date_trunc('minute', now()), interval '1 minute'
            ) AS span (minute)
            JOIN pulse.topic_minutes AS stats ON stats.minute = span.minute AND stats.topic = slow.topic
            CROSS JOIN LATERAL jsonb_each(stats.run_buckets) AS entry
            GROUP BY entry.key
        ) AS total
    ) AS usual
FROM slow;

-- What operators see at a glance. Nothing here walks finished jobs.

-- name: topic_depths
-- How many jobs each topic has in each state that waits, runs or needs an operator. Four
-- index-only scans over the partial indexes of such states, and the running jobs. Sorted here,
-- because sorting 100,000 topics would block the event loop.
WITH {running_jobs}
SELECT counted.topic, counted.state, counted.jobs, counted.oldest
FROM (
    SELECT ready.topic, 'ready' AS state, sum(ready.jobs)::bigint AS jobs, min(ready.oldest) AS oldest
    FROM {ready_by_topic_now}
    GROUP BY ready.topic
    UNION ALL
    SELECT job.topic, 'waiting', count(*), NULL
    FROM pulse.jobs AS job
    WHERE {waits}
    GROUP BY job.topic
    UNION ALL
    SELECT job.topic, 'waiting_for_jobs', count(*), NULL
    FROM pulse.jobs AS job
    WHERE job.held AND job.finished_at IS NULL
    GROUP BY job.topic
    UNION ALL
    SELECT running.topic, 'running', count(*), NULL
    FROM running
    GROUP BY running.topic
    UNION ALL
    SELECT job.topic, lower(job.ended_as), count(*), NULL
    FROM pulse.jobs AS job
    WHERE job.ended_as IS NOT NULL
    GROUP BY job.topic, job.ended_as
) AS counted
ORDER BY counted.topic COLLATE "C";

-- name: topic_rates
-- Counts of the last whole minute and of the last sixty minutes.
SELECT
    stats.topic,
    stats.minute >= date_trunc('minute', now()) - interval '1 minute' AS is_last_minute,
    sum(stats.submitted)::bigint AS submitted,
    sum(stats.completed)::bigint AS completed,
    sum(stats.failed)::bigint AS failed,
    sum(stats.dead_lettered)::bigint AS dead_lettered
FROM pulse.topic_minutes AS stats
WHERE stats.minute >= date_trunc('minute', now()) - interval '60 minutes'
  AND stats.minute < date_trunc('minute', now())
  AND stats.topic <> ''
GROUP BY 1, 2;

-- name: topic_buckets
-- How long the jobs of each topic waited and ran in the last sixty whole minutes.
SELECT stats.topic, spread.is_wait, entry.key::integer AS bucket, sum(entry.value::bigint)::bigint AS jobs
FROM pulse.topic_minutes AS stats
CROSS JOIN LATERAL (VALUES (true, stats.wait_buckets), (false, stats.run_buckets)) AS spread (is_wait, buckets)
CROSS JOIN LATERAL jsonb_each(spread.buckets) AS entry
WHERE stats.minute >= date_trunc('minute', now()) - interval '60 minutes'
  AND stats.minute < date_trunc('minute', now())
  AND stats.topic <> ''
GROUP BY 1, 2, 3;

-- name: topic_minutes
-- The last $2 minutes of a topic, or of all topics under the empty name. One look-up by key for
-- each minute, with or without activity.
SELECT
    span.minute, stats.topic IS NOT NULL AS has_news,
    stats.submitted, stats.completed, stats.failed, stats.retried, stats.dead_lettered, stats.canceled,
    stats.wait_buckets, stats.run_buckets
FROM generate_series(
    date_trunc('minute', now()) - ($2::integer - 1) * interval '1 minute',
    date_trunc('minute', now()),
    interval '1 minute'
) AS span (minute)
LEFT JOIN pulse.topic_minutes AS stats ON stats.minute = span.minute AND stats.topic = $1
ORDER BY span.minute;

-- name: add_topic_minutes
-- Adds the counts of one server since its last report. Never repeated: after a lost response it
-- would count twice.
INSERT INTO pulse.topic_minutes AS stats
    (minute, topic, submitted, completed, failed, retried, dead_lettered, canceled, wait_buckets, run_buckets)
SELECT
    date_trunc('minute', clock_timestamp()),
    new.topic, new.submitted, new.completed, new.failed, new.retried, new.dead_lettered, new.canceled,
    new.wait_buckets::jsonb, new.run_buckets::jsonb
FROM unnest(
    $1::text[], $2::bigint[], $3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[], $8::text[],
    $9::text[]
) AS new (topic, submitted, completed, failed, retried, dead_lettered, canceled, wait_buckets, run_buckets)
ORDER BY new.topic
ON CONFLICT (minute, topic) DO UPDATE
SET submitted = stats.submitted + excluded.submitted,
    completed = stats.completed + excluded.completed,
    failed = stats.failed + excluded.failed,
    retried = stats.retried + excluded.retried,
    dead_lettered = stats.dead_lettered + excluded.dead_lettered,
    canceled = stats.canceled + excluded.canceled,
    wait_buckets = (
        SELECT COALESCE(jsonb_object_agg(total.bucket, total.jobs), '{}')
        FROM (
            SELECT entry.key AS bucket, sum(entry.value::bigint) AS jobs
            FROM (
                SELECT * FROM jsonb_each(stats.wait_buckets)
                UNION ALL
                SELECT * FROM jsonb_each(excluded.wait_buckets)
            ) AS entry
            GROUP BY entry.key
        ) AS total
    ),
    run_buckets = (
        SELECT COALESCE(jsonb_object_agg(total.bucket, total.jobs), '{}')
        FROM (
            SELECT entry.key AS bucket, sum(entry.value::bigint) AS jobs
            FROM (
                SELECT * FROM jsonb_each(stats.run_buckets)
                UNION ALL
                SELECT * FROM jsonb_each(excluded.run_buckets)
            ) AS entry
            GROUP BY entry.key
        ) AS total
    );

-- name: forget_topic_minutes
DELETE FROM pulse.topic_minutes AS stats WHERE stats.minute < now() - $1::interval;

-- name: held_jobs
-- The jobs that workers hold: the first $1 of each, longest held first, with the total of the
-- worker in each row.
WITH {running_jobs}
SELECT ranked.*
FROM (
    SELECT
        running.*,
        count(*) OVER (PARTITION BY running.locked_by) AS held_count,
        row_number() OVER (PARTITION BY running.locked_by ORDER BY running.started_at, running.id) AS place
    FROM running
) AS ranked
WHERE ranked.place <= $1
ORDER BY ranked.locked_by, ranked.place;

-- name: record_server
-- Records that this server is alive, with these workers. If it falls silent, reap_expired counts it
-- as cut off after $4, and spares its workers until $5. If it counted as cut off until now, because
-- it was frozen, its workers are spared for another lease ($6), as after a start: their heartbeats
-- and results have waited for this server, and arrive now. ADR-0042
WITH back AS MATERIALIZED (
    SELECT DISTINCT worker ->> 'worker_id' AS worker_id
    FROM pulse.servers AS server
    CROSS JOIN LATERAL jsonb_array_elements(server.workers || $3::text::jsonb) AS worker
    WHERE server.id = $1::uuid AND server.silent_from < clock_timestamp()
),
spared AS (
    INSERT INTO pulse.spared_workers AS spared (worker_id, spared_until)
    SELECT back.worker_id, clock_timestamp() + $6::interval
    FROM back
    ORDER BY back.worker_id
    ON CONFLICT (worker_id) DO UPDATE SET spared_until = GREATEST(spared.spared_until, excluded.spared_until)
)
INSERT INTO pulse.servers AS server (id, name, workers, silent_from, workers_spared_until, steady_since)
VALUES ($1::uuid, $2, $3::text::jsonb, clock_timestamp() + $4::interval, clock_timestamp() + $5::interval,
        clock_timestamp())
ON CONFLICT (id) DO UPDATE
SET seen_at = clock_timestamp(),
    steady_since = CASE
        WHEN server.silent_from >= clock_timestamp() THEN server.steady_since ELSE excluded.steady_since
    END,
    workers = excluded.workers,
    silent_from = excluded.silent_from,
    workers_spared_until = excluded.workers_spared_until;

-- name: forget_servers
-- Removes this server, and servers that were silent for $2. Rows that another session has locked
-- stay: the next server that starts or stops removes them.
DELETE FROM pulse.servers AS server
WHERE server.id IN (
    SELECT gone.id
    FROM pulse.servers AS gone
    WHERE gone.id = $1::uuid OR gone.seen_at < now() - $2::interval
    FOR UPDATE SKIP LOCKED
);

-- name: list_servers
-- The servers that were seen within $1.
SELECT server.id, server.name, server.workers, server.started_at
FROM pulse.servers AS server
WHERE server.seen_at >= now() - $1::interval
ORDER BY server.name;

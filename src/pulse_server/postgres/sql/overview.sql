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
-- Counts of the current minute and of the last sixty whole ones, by how recent they are. 0: the
-- current minute. 1: the last whole one. 2: others of the last five. 3: older.
SELECT
    stats.topic,
    CASE
        WHEN stats.minute >= date_trunc('minute', now()) THEN 0
        WHEN stats.minute >= date_trunc('minute', now()) - interval '1 minute' THEN 1
        WHEN stats.minute >= date_trunc('minute', now()) - interval '5 minutes' THEN 2
        ELSE 3
    END AS recency,
    sum(stats.submitted)::bigint AS submitted,
    sum(stats.completed)::bigint AS completed,
    sum(stats.failed)::bigint AS failed,
    sum(stats.dead_lettered)::bigint AS dead_lettered
FROM pulse.topic_minutes AS stats
WHERE stats.minute >= date_trunc('minute', now()) - interval '60 minutes'
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

-- name: topic_minutes(topic, minutes)
-- The last :minutes minutes of a topic, or of all topics under the empty name. Two look-ups by key for
-- each minute, with or without activity: the row of all topics shows whether the depth was sampled.
SELECT
    span.minute, stats.topic IS NOT NULL AS has_news,
    stats.submitted, stats.completed, stats.failed, stats.retried, stats.dead_lettered, stats.canceled,
    stats.wait_buckets, stats.run_buckets,
    total.ready IS NOT NULL AS is_sampled, stats.ready, stats.running, stats.oldest_seconds
FROM generate_series(
    date_trunc('minute', now()) - (:minutes::integer - 1) * interval '1 minute',
    date_trunc('minute', now()),
    interval '1 minute'
) AS span (minute)
LEFT JOIN pulse.topic_minutes AS stats ON stats.minute = span.minute AND stats.topic = :topic
LEFT JOIN pulse.topic_minutes AS total ON total.minute = span.minute AND total.topic = ''
ORDER BY span.minute;

-- name: add_topic_minutes(topics, submitted, completed, failed, retried, dead_lettered, canceled, waits, runs)
-- Adds the counts of one server since its last report. Never repeated: after a lost response it
-- would count twice.
INSERT INTO pulse.topic_minutes AS stats
    (minute, topic, submitted, completed, failed, retried, dead_lettered, canceled, wait_buckets, run_buckets)
SELECT
    date_trunc('minute', clock_timestamp()),
    new.topic, new.submitted, new.completed, new.failed, new.retried, new.dead_lettered, new.canceled,
    new.wait_buckets::jsonb, new.run_buckets::jsonb
FROM unnest(
    :topics::text[], :submitted::bigint[], :completed::bigint[], :failed::bigint[], :retried::bigint[], :dead_lettered::bigint[], :canceled::bigint[], :waits::text[],
    :runs::text[]
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

-- name: record_depths(most_topics)
-- Samples the depth of the :most_topics deepest topics and of all topics together, unless another server has
-- done so in this minute. Then the one-time filter ends the statement before it counts. Two servers
-- at once both count, and the later sample stays. The rows are in the order of add_topic_minutes, so
-- that the two cannot deadlock.
WITH {running_jobs},
counted AS (
    SELECT
        COALESCE(job.topic, '') AS topic,
        COALESCE(sum(job.ready), 0) AS ready,
        COALESCE(sum(job.running), 0) AS running,
        COALESCE(GREATEST(0, EXTRACT(epoch FROM clock_timestamp() - min(job.oldest))), 0) AS oldest_seconds
    FROM (
        SELECT ready.topic, ready.jobs AS ready, 0 AS running, ready.oldest FROM {ready_by_topic_now}
        UNION ALL
        SELECT running.topic, 0, 1, NULL FROM running
    ) AS job
    GROUP BY GROUPING SETS ((job.topic), ())
),
deepest AS (
    SELECT counted.* FROM counted ORDER BY counted.topic <> '', counted.ready + counted.running DESC LIMIT :most_topics::int + 1
)
INSERT INTO pulse.topic_minutes AS stats (minute, topic, ready, running, oldest_seconds)
SELECT date_trunc('minute', now()), deepest.topic, deepest.ready, deepest.running, deepest.oldest_seconds
FROM deepest
WHERE NOT EXISTS (
    SELECT FROM pulse.topic_minutes AS sampled
    WHERE sampled.minute = date_trunc('minute', now()) AND sampled.topic = '' AND sampled.ready IS NOT NULL
)
ORDER BY deepest.topic
ON CONFLICT (minute, topic) DO UPDATE
SET ready = excluded.ready, running = excluded.running, oldest_seconds = excluded.oldest_seconds;

-- name: forget_topic_minutes(kept)
DELETE FROM pulse.topic_minutes AS stats WHERE stats.minute < now() - :kept::interval;

-- name: held_jobs(most_of_each)
-- The jobs that workers hold: the first :most_of_each of each, longest held first, with the total of the
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
WHERE ranked.place <= :most_of_each
ORDER BY ranked.locked_by, ranked.place;

-- name: record_server(id, name, workers, after, until, once_back, address, version)
-- Records that this server is alive, with these workers. If it falls silent, reap_expired counts it
-- as cut off after :after, and spares its workers until :until. If it counted as cut off until now, because
-- it was frozen, its workers are spared for another lease (:once_back), as after a start: their heartbeats
-- and results have waited for this server, and arrive now. ADR-0042
WITH back AS MATERIALIZED (
    SELECT DISTINCT worker ->> 'worker_id' AS worker_id
    FROM pulse.servers AS server
    CROSS JOIN LATERAL jsonb_array_elements(server.workers || :workers::text::jsonb) AS worker
    WHERE server.id = :id::uuid AND server.silent_from < clock_timestamp()
),
spared AS (
    INSERT INTO pulse.spared_workers AS spared (worker_id, spared_until)
    SELECT back.worker_id, clock_timestamp() + :once_back::interval
    FROM back
    ORDER BY back.worker_id
    ON CONFLICT (worker_id) DO UPDATE SET spared_until = GREATEST(spared.spared_until, excluded.spared_until)
)
INSERT INTO pulse.servers AS server
    (id, name, workers, silent_from, workers_spared_until, steady_since, address, version)
VALUES (:id::uuid, :name, :workers::text::jsonb, clock_timestamp() + :after::interval, clock_timestamp() + :until::interval,
        clock_timestamp(), :address, :version)
ON CONFLICT (id) DO UPDATE
SET seen_at = clock_timestamp(),
    steady_since = CASE
        WHEN server.silent_from >= clock_timestamp() THEN server.steady_since ELSE excluded.steady_since
    END,
    workers = excluded.workers,
    silent_from = excluded.silent_from,
    workers_spared_until = excluded.workers_spared_until
RETURNING clock_timestamp() AS now;

-- name: forget_servers(id, silent_for)
-- Removes this server, and servers that were silent for :silent_for. Rows that another session has locked
-- stay: the next server that starts or stops removes them.
DELETE FROM pulse.servers AS server
WHERE server.id IN (
    SELECT gone.id
    FROM pulse.servers AS gone
    WHERE gone.id = :id::uuid OR gone.seen_at < now() - :silent_for::interval
    FOR UPDATE SKIP LOCKED
);

-- name: list_servers(seen_within)
-- The servers that were seen within :seen_within.
SELECT server.id, server.name, server.workers, server.started_at, server.address, server.version, server.seen_at,
       now() - server.seen_at AS unseen_for
FROM pulse.servers AS server
WHERE server.seen_at >= now() - :seen_within::interval
ORDER BY server.name;

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

-- name: fullest_lanes(topics, most)
-- Of each topic in :topics, the lane with the most waiting jobs, and the waiting jobs of all its lanes. Counts
-- the first :most waiting jobs of a topic, in the order of its lanes: from the index alone, but for the
-- running jobs, which are in it too.
WITH {running_jobs}
SELECT DISTINCT ON (counted.topic) counted.topic, counted.lane, counted.jobs, counted.total
FROM (
    SELECT
        waiting.topic, waiting.lane, count(*) AS jobs,
        (sum(count(*)) OVER (PARTITION BY waiting.topic))::bigint AS total
    FROM unnest(:topics::text[]) AS asked (topic)
    CROSS JOIN LATERAL (
        SELECT job.topic, job.lane
        FROM pulse.jobs AS job
        WHERE job.topic = asked.topic AND job.lane > '' AND job.queued AND job.tier IS NOT NULL AND {is_not_running}
        ORDER BY job.lane
        LIMIT :most
    ) AS waiting
    GROUP BY waiting.topic, waiting.lane
) AS counted
ORDER BY counted.topic, counted.jobs DESC, counted.lane;

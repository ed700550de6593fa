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

-- Dead letters as groups. Nothing here changes a row.

-- name: list_dead_letter_groups(topic, most)
-- Counts the dead letters of a topic, or of all topics, by their error. Returns the :most groups with
-- the latest dead letters. Two index-only scans of jobs_dead_letters: the count reads it whole.
-- Then each group is walked from its newest submission to the latest dead letter, which is usually
-- near. Only these jobs are fetched. `error_group >= ''` is true of every row: it opens the index.
WITH counted AS MATERIALIZED (
    SELECT
        job.error_group, job.topic, count(*) AS jobs,
        min(job.finished_at) AS first_at, max(job.finished_at) AS last_at
    FROM pulse.jobs AS job
    WHERE job.ended_as = 'DEAD_LETTERED' AND job.error_group >= '' AND job.topic = COALESCE(:topic::text, job.topic)
    GROUP BY job.error_group, job.topic
),
shown AS MATERIALIZED (
    SELECT counted.*, count(*) OVER () AS total
    FROM counted
    ORDER BY counted.last_at DESC, counted.topic, counted.error_group
    LIMIT :most
)
SELECT
    shown.total, shown.jobs, shown.first_at, shown.last_at,
    {job}
FROM shown
CROSS JOIN LATERAL (
    SELECT newest.id
    FROM pulse.jobs AS newest
    WHERE newest.ended_as = 'DEAD_LETTERED' AND newest.error_group >= ''
      AND newest.error_group = shown.error_group
      AND newest.topic = shown.topic
      AND newest.finished_at = shown.last_at
    ORDER BY newest.submitted_at DESC, newest.id DESC
    LIMIT 1
) AS sample
JOIN pulse.jobs AS job ON job.id = ANY(ARRAY[sample.id])
ORDER BY shown.last_at DESC, shown.topic, shown.error_group;

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

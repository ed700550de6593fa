-- Dead letters as groups. Nothing here changes a row.

-- name: list_dead_letter_groups
-- Counts the dead letters of a topic, or of all, by what they died of, and tells of the $2 groups that were joined
-- last. Two index-only scans of jobs_dead_letters: the count reads all of it; then each group is walked from its newest
-- submission to the one that died last, which is usually near. Those alone are fetched. `error_group >= ''` is true of
-- every row: it opens the index (0005_dead_letter_groups.sql).
WITH counted AS MATERIALIZED (
    SELECT
        job.error_group, job.topic, count(*) AS jobs,
        min(job.finished_at) AS first_at, max(job.finished_at) AS last_at
    FROM pulse.jobs AS job
    WHERE job.status = 'DEAD_LETTERED' AND job.error_group >= '' AND job.topic = COALESCE($1::text, job.topic)
    GROUP BY job.error_group, job.topic
),
told AS MATERIALIZED (
    SELECT counted.*, count(*) OVER () AS total
    FROM counted
    ORDER BY counted.last_at DESC, counted.topic, counted.error_group
    LIMIT $2
)
SELECT
    told.total, told.jobs, told.first_at, told.last_at,
    {job}
FROM told
CROSS JOIN LATERAL (
    SELECT newest.id
    FROM pulse.jobs AS newest
    WHERE newest.status = 'DEAD_LETTERED' AND newest.error_group >= ''
      AND newest.error_group = told.error_group
      AND newest.topic = told.topic
      AND newest.finished_at = told.last_at
    ORDER BY newest.submitted_at DESC, newest.id DESC
    LIMIT 1
) AS sample
JOIN pulse.jobs AS job ON job.id = sample.id
ORDER BY told.last_at DESC, told.topic, told.error_group;

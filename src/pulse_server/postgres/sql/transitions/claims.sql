-- Claims: from ready to RUNNING. jobs.sql has the rules for all transitions.

-- name: claim_batch
-- From PENDING or RETRYING, once ready, to RUNNING: the best jobs of one topic, each leased to the worker of its slot.
-- Rows locked by another claim are skipped, so concurrent claims are disjoint. Nothing is claimed while dispatch, or the
-- topic, is paused: the switches are read in this statement, not only from a server's memory. A batch ends early once
-- its payloads have $7 bytes; octet_length reads the length from the row, not the payload. ADR-0038
--   $1 topic   $2 limit   $3 slot -> index into $4   $4 worker ids   $5 which of them confirm   $6 lease   $7 bytes
--   $8 in place of $3 if all slots are filled, or empty   $9 with fewer bytes than these
WITH candidate AS MATERIALIZED (
    SELECT {claimable}
    FROM pulse.jobs AS job
    WHERE job.topic = $1::text AND {is_claimable}
      AND {dispatch_is_on}
      AND NOT EXISTS (SELECT FROM pulse.paused_topics AS paused WHERE paused.topic = $1::text)
    ORDER BY {claim_order}
    LIMIT $2
    FOR UPDATE OF job SKIP LOCKED
),
{those_that_fit},
{check_picked}
{lease_picked};

-- name: claim_across_topics
-- claim_batch for workers of several topics, at the cost of one batch and not of one per topic. Finds the best $10 jobs
-- over all topics without a lock, then locks as many of them as there are slots. $10 is more than the slots, so that a
-- claim that finds the best ones locked takes the next. Also returns how many there were, in a row without a job if
-- none was left. ADR-0045
--   The first few of each topic ($11) are nearly always enough. A topic that has all of these among the best may have
--   more that belong there: it is read further, and if that is not enough, for all that it could contribute.
--   $1 topics   $2-$9 as claim_batch   $10 jobs to choose from   $11 of each topic at first
WITH {open_topics},
first AS MATERIALIZED (
    SELECT wanted.topic, job.*
    FROM wanted
    CROSS JOIN LATERAL (
        {ready_in_wanted_topic}
        LIMIT $11
    ) AS job
    -- Sorted once: the sorts below find it in order, which costs them next to nothing.
    ORDER BY {claim_order}
    LIMIT $10
),
deep AS MATERIALIZED (
    SELECT best.topic
    FROM first AS best
    GROUP BY best.topic
    HAVING count(*) >= $11
),
share AS MATERIALIZED (
    SELECT GREATEST(1, LEAST(64, 2 * $10 / NULLIF(count(*), 0))) AS of_each FROM deep
),
further AS MATERIALIZED (
    SELECT wanted.topic, job.*
    FROM deep AS wanted
    CROSS JOIN LATERAL (
        {ready_in_wanted_topic}
        OFFSET $11
        LIMIT (SELECT share.of_each FROM share)
    ) AS job
),
deepest AS MATERIALIZED (
    SELECT best.topic
    FROM (
        SELECT * FROM (SELECT * FROM first UNION ALL SELECT * FROM further) AS job
        WHERE EXISTS (SELECT FROM deep)
        ORDER BY {claim_order}
        LIMIT $10
    ) AS best
    GROUP BY best.topic
    HAVING count(*) >= $11 + (SELECT share.of_each FROM share)
),
furthest AS MATERIALIZED (
    SELECT wanted.topic, job.*
    FROM deepest AS wanted
    CROSS JOIN LATERAL (
        {ready_in_wanted_topic}
        OFFSET $11 + (SELECT share.of_each FROM share)
        LIMIT $10
    ) AS job
),
best AS MATERIALIZED (
    SELECT job.id
    FROM (SELECT * FROM first UNION ALL SELECT * FROM further UNION ALL SELECT * FROM furthest) AS job
    ORDER BY {claim_order}
    LIMIT $10
),
{lease_best};

-- name: claim_levels
-- claim_batch for some levels of the topic: from each priority, the highest first, the jobs that were submitted no longer
-- ago than this server has been without knowledge of the level. It does not walk the entries of jobs that run, nor of
-- those that have ended and that vacuum cannot remove. ADR-0055
--   $1-$9 as claim_batch   $10 priorities, the highest first   $11 ages in seconds
WITH candidate AS MATERIALIZED (
    SELECT found.*
    FROM unnest($10::int[], $11::float8[]) AS asked (priority, age_seconds)
    CROSS JOIN LATERAL (SELECT $1::text AS topic, asked.priority, asked.age_seconds) AS level
    CROSS JOIN LATERAL (
        SELECT {claimable}
        FROM pulse.jobs AS job
        WHERE {is_in_level}
        ORDER BY job.submitted_at, job.id
        LIMIT $2
        FOR UPDATE OF job SKIP LOCKED
    ) AS found
    WHERE {dispatch_is_on}
      AND NOT EXISTS (SELECT FROM pulse.paused_topics AS paused WHERE paused.topic = $1::text)
    LIMIT $2
),
{those_that_fit},
{check_picked}
{lease_picked};

-- name: claim_levels_across_topics
-- claim_across_topics for some levels of the topics. There are few of them, so that each is read for all that it could
-- contribute. ADR-0055
--   $1 topics   $2-$9 as claim_batch   $10 priorities   $11 ages in seconds   $12 jobs to choose from
WITH level AS MATERIALIZED (
    SELECT asked.topic, asked.priority, asked.age_seconds
    FROM unnest($1::text[], $10::int[], $11::float8[]) AS asked (topic, priority, age_seconds)
    WHERE {asked_topic_is_open}
),
best AS MATERIALIZED (
    SELECT job.id
    FROM level
    CROSS JOIN LATERAL (
        SELECT job.priority, job.submitted_at, job.id
        FROM pulse.jobs AS job
        WHERE {is_in_level}
        ORDER BY job.submitted_at, job.id
        LIMIT $12
    ) AS job
    ORDER BY {claim_order}
    LIMIT $12
),
{lease_best};

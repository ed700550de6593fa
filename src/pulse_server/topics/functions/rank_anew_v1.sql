-- Updates the ranks of jobs in the lanes of a topic after a change of its aging: the next thousand,
-- lane by lane. Jobs of priority 0 have the same rank under any aging. It stops before a locked
-- job. Returns whether to continue at once.
CREATE OR REPLACE FUNCTION pulse.rank_anew_v1(policy pulse.limit_policies) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    step record;
BEGIN
    -- Three ranges of the index: with a single condition, a large lane would be read from its
    -- beginning each time.
    WITH next AS MATERIALIZED (
        SELECT job.*, row_number() OVER () AS number
        FROM (
            (SELECT job.id, job.lane, job.tier, job.rank_at, job.priority, job.submitted_at
             FROM pulse.jobs AS job
             WHERE job.topic = policy.topic AND job.lane = policy.ranked_lane AND job.tier = policy.ranked_tier
               AND (job.rank_at, job.id) > (policy.ranked_at, policy.ranked_id) AND job.queued AND job.locked_by IS NULL
             ORDER BY job.rank_at, job.id
             LIMIT 1000)
            UNION ALL
            (SELECT job.id, job.lane, job.tier, job.rank_at, job.priority, job.submitted_at
             FROM pulse.jobs AS job
             WHERE job.topic = policy.topic AND job.lane = policy.ranked_lane AND job.tier < policy.ranked_tier
               AND job.queued AND job.locked_by IS NULL
             ORDER BY {lane_order}
             LIMIT 1000)
            UNION ALL
            (SELECT job.id, job.lane, job.tier, job.rank_at, job.priority, job.submitted_at
             FROM pulse.jobs AS job
             WHERE job.topic = policy.topic AND job.lane > policy.ranked_lane AND {stands_in_lane}
             ORDER BY job.lane, {lane_order}
             LIMIT 1000)
        ) AS job
        LIMIT 1000
    ),
    stale AS MATERIALIZED (
        SELECT job.id, job.number
        FROM next AS job
        WHERE job.priority <> 0 AND (job.tier, job.rank_at) IS DISTINCT FROM ({tier_by_policy}, {rank_by_policy})
    ),
    found AS MATERIALIZED (
        SELECT job.ctid AS tid
        FROM pulse.jobs AS job
        WHERE job.id = ANY(ARRAY(SELECT stale.id FROM stale)) AND {stands_in_lane}
        FOR UPDATE OF job SKIP LOCKED
    ),
    ranked AS (
        UPDATE pulse.jobs AS job
        SET tier = {tier_by_policy},
            rank_at = {rank_by_policy}
        WHERE job.ctid = ANY(ARRAY(SELECT found.tid FROM found))
        RETURNING job.id
    ),
    reached AS (
        SELECT COALESCE(min(stale.number) - 1, (SELECT count(*) FROM next)) AS number, count(*) = 0 AS has_all
        FROM stale
        WHERE stale.id NOT IN (SELECT ranked.id FROM ranked)
    )
    -- The old place of the last job: it may have moved, but no job behind it has.
    SELECT reached.number, reached.has_all AND reached.number < 1000 AS is_over, last.lane, last.tier, last.rank_at, last.id
    INTO step
    FROM reached
    LEFT JOIN next AS last ON last.number = reached.number;
    IF step.number > 0 OR step.is_over THEN
        UPDATE pulse.limit_policies AS known
        SET ranked_lane = CASE WHEN NOT step.is_over THEN step.lane END,
            ranked_tier = CASE WHEN NOT step.is_over THEN step.tier END,
            ranked_at = CASE WHEN NOT step.is_over THEN step.rank_at END,
            ranked_id = CASE WHEN NOT step.is_over THEN step.id END
        WHERE known.topic = policy.topic;
    END IF;
    RETURN step.number > 0 AND NOT step.is_over;
END
$$;

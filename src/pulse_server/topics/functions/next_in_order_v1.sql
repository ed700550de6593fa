-- The only job of a lane that may start now, where order is kept. A retried job that holds the lane
-- comes first. If several hold it, because they ran at once before order was kept, the first in
-- order is returned. Otherwise the first job in the lane is returned, even if another session has
-- it locked. It may not start if an earlier job is not in the lane yet. That happens when the
-- earlier job's row is locked, or when a large backlog waits to enter; the first 100 jobs of the
-- backlog are checked. It may not start either if the lane has not been ranked since the aging
-- changed.
CREATE OR REPLACE FUNCTION pulse.next_in_order_v1(
    policy pulse.limit_policies, of_lane text, tried uuid[], OUT id uuid, OUT holds boolean, OUT may_start boolean
) LANGUAGE plpgsql STABLE
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    head record;
BEGIN
    SELECT job.id, true, job.queued AND job.tier IS NOT NULL INTO id, holds, may_start
    FROM pulse.jobs AS job
    WHERE job.id = ANY(tried) AND job.finished_at IS NULL
    ORDER BY {claim_order}
    LIMIT 1;
    IF FOUND THEN
        RETURN;
    END IF;
    SELECT job.id, job.tier, job.rank_at INTO head
    FROM pulse.jobs AS job
    WHERE job.topic = policy.topic AND job.lane = of_lane AND {stands_in_lane} AND {may_start}
    ORDER BY {lane_order}
    LIMIT 1;
    IF FOUND THEN
        SELECT head.id, false, COALESCE(of_lane < policy.ranked_lane, true) AND NOT EXISTS (
            SELECT
            FROM (
                SELECT job.id, job.lane, row_number() OVER () AS place,
                    {tier_by_policy} AS tier, {rank_by_policy} AS rank_at
                FROM pulse.jobs AS job
                WHERE job.topic = policy.topic AND {stands_in_no_lane}
                ORDER BY {claim_order}
                LIMIT 100
            ) AS outside
            WHERE (outside.lane = of_lane OR outside.place = 100)
              AND (outside.tier > head.tier
                   OR outside.tier = head.tier AND (outside.rank_at, outside.id) < (head.rank_at, head.id))
        ) INTO id, holds, may_start;
    END IF;
END
$$;

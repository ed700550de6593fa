-- Puts jobs of a topic with lanes into their lanes, if they are in none: the backlog from before
-- the policy, jobs of schedules, jobs that are due after a delay or a retry, and jobs with a
-- changed priority. Returns whether there may be more.
CREATE OR REPLACE FUNCTION pulse.enter_lanes_v1(policy pulse.limit_policies) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    names text[];
    jobs  integer;
BEGIN
    WITH found AS MATERIALIZED (
        SELECT job.ctid AS tid
        FROM pulse.jobs AS job
        WHERE job.topic = policy.topic AND {stands_in_no_lane}
        ORDER BY {claim_order}
        LIMIT 1000
        FOR UPDATE OF job SKIP LOCKED
    ),
    entered AS (
        UPDATE pulse.jobs AS job
        SET lane = COALESCE(job.lane, ''),
            tier = {tier_by_policy},
            rank_at = {rank_by_policy}
        FROM found
        WHERE job.ctid = found.tid
        RETURNING job.lane
    )
    SELECT array_agg(DISTINCT entered.lane), count(*) INTO names, jobs FROM entered;
    IF names IS NOT NULL THEN
        PERFORM pulse.open_lanes_v1(policy, names);
    END IF;
    RETURN jobs = 1000;
END
$$;

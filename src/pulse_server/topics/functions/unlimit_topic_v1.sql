-- Ends what a change of limits has left. Jobs of transactions that were under way then, with the lanes
-- and ranks of the old policy, get those of the new one. A topic with a retired policy becomes plain
-- again. It must have no job in a lane, no start or hold that would still count under a new policy,
-- and no running job that another transaction has locked. Returns whether it is plain.
-- docs/figures.md#limits-without-a-table-lock
CREATE OR REPLACE FUNCTION pulse.unlimit_topic_v1(of_topic text) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    policy  pulse.limit_policies;
    of_pool text;
BEGIN
    SELECT known.pool INTO of_pool FROM pulse.limit_policies AS known WHERE known.topic = of_topic;
    PERFORM FROM pulse.pools AS known WHERE known.name = of_pool FOR NO KEY UPDATE;
    SELECT * INTO policy FROM pulse.limit_policies AS known WHERE known.topic = of_topic AND known.pool = of_pool;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    IF policy.older IS NOT NULL THEN
        policy.older := NULLIF(pulse.still_open_v1(policy.older), '{}');
        -- Notices of a previous pool: no claim of this one would take them.
        UPDATE pulse.limit_notices AS notice
        SET pool = policy.pool
        WHERE notice.topic = of_topic AND notice.pool <> policy.pool AND notice.lanes IS NOT NULL;
        UPDATE pulse.limit_policies AS known
        SET older = policy.older
        WHERE known.topic = of_topic AND known.older IS DISTINCT FROM policy.older;
        IF policy.older IS NULL AND policy.laned THEN
            UPDATE pulse.limit_policies AS known
            SET {ranked_anew}
            WHERE known.topic = of_topic;
        END IF;
    END IF;
    IF NOT policy.retired THEN
        RETURN false;
    END IF;
    PERFORM pulse.leave_lanes_v1(of_topic);
    PERFORM FROM pulse.jobs AS job
    WHERE job.topic = of_topic AND {stands_in_lane}
    LIMIT 1;
    IF FOUND OR policy.older IS NOT NULL THEN
        RETURN false;
    END IF;
    PERFORM FROM pulse.pools AS known
    WHERE known.name = policy.pool
      AND NOT EXISTS (SELECT FROM pulse.limit_policies AS other WHERE other.pool = known.name AND other.topic <> of_topic)
      AND (GREATEST(known.closed_until, policy.closed_until) > clock_timestamp() OR pulse.slices_sum_v1(pulse.slices_at_v1(
          known.slices, known.slice, pulse.slice_of_v1(clock_timestamp(), known.period, known.slice))) > 0);
    IF FOUND OR EXISTS (
        SELECT FROM pulse.lanes AS lane
        WHERE lane.topic = of_topic AND lane.slices <> '{}' AND lane.used_at > clock_timestamp() - policy.lane_period * 1.2)
    THEN
        RETURN false;
    END IF;
    UPDATE pulse.jobs AS job
    SET pool = NULL, lane_held = NULL
    WHERE job.topic = of_topic AND {is_checked_run};
    DELETE FROM pulse.limit_policies AS known WHERE known.topic = of_topic;
    DELETE FROM pulse.lanes AS lane WHERE lane.topic = of_topic;
    -- The topic may be paused or resumed at this moment.
    PERFORM FROM pulse.barred_topics AS barred WHERE barred.topic = of_topic FOR UPDATE;
    DELETE FROM pulse.barred_topics AS barred WHERE barred.topic = of_topic AND NOT barred.paused;
    UPDATE pulse.barred_topics AS barred SET limited = false WHERE barred.topic = of_topic;
    -- Another pool still counts the ends of runs that it has started.
    DELETE FROM pulse.limit_notices AS notice WHERE notice.topic = of_topic AND (notice.pool = policy.pool OR notice.lanes IS NOT NULL);
    PERFORM pulse.count_runs_v1(policy.pool);
    PERFORM pulse.forget_pool_v1(policy.pool);
    RETURN true;
END
$$;

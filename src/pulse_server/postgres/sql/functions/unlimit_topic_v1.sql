-- Makes a topic with a retired policy plain again. It must have no job in a lane, and no start or
-- hold that would still count under a new policy. Returns whether it did.
CREATE OR REPLACE FUNCTION pulse.unlimit_topic_v1(of_topic text) RETURNS boolean LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    policy pulse.limit_policies;
BEGIN
    PERFORM FROM pulse.pools AS known
    WHERE known.name = (SELECT own.pool FROM pulse.limit_policies AS own WHERE own.topic = of_topic)
    FOR NO KEY UPDATE;
    SELECT * INTO policy FROM pulse.limit_policies AS known WHERE known.topic = of_topic AND known.retired;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    PERFORM pulse.leave_lanes_v1(of_topic);
    PERFORM FROM pulse.jobs AS job
    WHERE job.topic = of_topic AND {stands_in_lane}
    LIMIT 1;
    IF FOUND THEN
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
    -- Once the table is locked, no running statement uses the lanes.
    LOCK TABLE pulse.jobs IN SHARE ROW EXCLUSIVE MODE;
    PERFORM FROM pulse.jobs AS job
    WHERE job.topic = of_topic AND {stands_in_lane}
    LIMIT 1;
    IF FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM pulse.limit_policies AS known WHERE known.topic = of_topic;
    DELETE FROM pulse.lanes AS lane WHERE lane.topic = of_topic;
    -- The topic may be paused or resumed at this moment.
    PERFORM FROM pulse.barred_topics AS barred WHERE barred.topic = of_topic FOR UPDATE;
    DELETE FROM pulse.barred_topics AS barred WHERE barred.topic = of_topic AND NOT barred.paused;
    UPDATE pulse.barred_topics AS barred SET limited = false WHERE barred.topic = of_topic;
    UPDATE pulse.jobs AS job
    SET pool = NULL, lane_held = NULL
    WHERE job.topic = of_topic AND job.locked_by IS NOT NULL
      AND job.id = ANY(ARRAY(SELECT unnest(lease_check.ids) FROM pulse.lease_checks AS lease_check));
    DELETE FROM pulse.limit_notices AS notice WHERE notice.topic = of_topic;
    PERFORM pulse.count_runs_v1(policy.pool);
    PERFORM pulse.forget_pool_v1(policy.pool);
    RETURN true;
END
$$;

-- Sets the weight and limit of one lane. NULL: the limit of the policy. Returns whether the topic
-- has lanes.
CREATE OR REPLACE FUNCTION pulse.set_lane_v1(of_topic text, of_lane text, new_weight integer, new_limit integer) RETURNS boolean
LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
DECLARE
    policy pulse.limit_policies;
BEGIN
    PERFORM FROM pulse.pools AS known
    WHERE known.name = (SELECT own.pool FROM pulse.limit_policies AS own WHERE own.topic = of_topic)
    FOR NO KEY UPDATE;
    SELECT * INTO policy FROM pulse.limit_policies AS known WHERE known.topic = of_topic AND known.laned;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    INSERT INTO pulse.lanes AS known (topic, lane, held, weight, "limit")
    VALUES (of_topic, of_lane, 0, new_weight, new_limit)
    ON CONFLICT (topic, lane) DO UPDATE SET weight = EXCLUDED.weight, "limit" = EXCLUDED.limit;
    PERFORM pulse.limits_of_lanes_changed_v1(policy, of_lane);
    RETURN true;
END
$$;

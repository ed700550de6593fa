-- Makes the next claim open these lanes, which may have work and free places.
CREATE OR REPLACE FUNCTION pulse.notice_lanes_v1(policy pulse.flow_policies, names text[]) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO pulse.flow_notices (turnstile, topic, lanes, ended)
    SELECT policy.turnstile, policy.topic, array_agg(lane.name), 0
    FROM unnest(names) WITH ORDINALITY AS lane (name, number)
    GROUP BY lane.number / 64
$$;

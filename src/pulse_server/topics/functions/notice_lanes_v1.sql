-- Makes the next claim open these lanes, which may have work and free places.
CREATE OR REPLACE FUNCTION pulse.notice_lanes_v1(policy pulse.limit_policies, names text[]) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    INSERT INTO pulse.limit_notices (pool, topic, lanes, ended)
    SELECT policy.pool, policy.topic, array_agg(lane.name), 0
    FROM unnest(names) WITH ORDINALITY AS lane (name, number)
    GROUP BY lane.number / 64
$$;

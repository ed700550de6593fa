-- The order of a job in its lane, after its tier. Each step of priority is worth `aging` of
-- waiting. Steps beyond 1e11 seconds (3,169 years) do not count: a priority is any integer, and the
-- result must be a timestamp.
CREATE OR REPLACE FUNCTION pulse.rank_of_v1(submitted_at timestamptz, priority integer, aging interval) RETURNS timestamptz
LANGUAGE sql STABLE AS $$
    SELECT submitted_at
        - LEAST(GREATEST(COALESCE(priority * date_part('epoch', aging), 0), -1e11), 1e11) * interval '1 second'
$$;

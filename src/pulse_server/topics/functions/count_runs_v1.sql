-- Recounts the runs of a pool, with the pool locked. One statement, as count_lanes.
CREATE OR REPLACE FUNCTION pulse.count_runs_v1(of_pool text) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    UPDATE pulse.pools AS pool
    SET held = (SELECT count(*) FROM pulse.limited_runs AS run WHERE run.pool = of_pool)
        + COALESCE((SELECT sum(notice.ended) FROM pulse.limit_notices AS notice WHERE notice.pool = of_pool), 0)
    WHERE pool.name = of_pool
$$;

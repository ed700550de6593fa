-- Recounts the runs of a turnstile, with the turnstile locked. One statement, as count_lanes.
CREATE OR REPLACE FUNCTION pulse.count_runs_v1(of_turnstile text) RETURNS void LANGUAGE sql
SET search_path = pg_catalog, pg_temp AS $$
    UPDATE pulse.turnstiles AS turnstile
    SET held = (SELECT count(*) FROM pulse.limited_runs AS run WHERE run.turnstile = of_turnstile)
        + COALESCE((SELECT sum(notice.ended) FROM pulse.flow_notices AS notice WHERE notice.turnstile = of_turnstile), 0)
    WHERE turnstile.name = of_turnstile
$$;

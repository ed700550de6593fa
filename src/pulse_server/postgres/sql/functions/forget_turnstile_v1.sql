-- Deletes a locked turnstile, unless a topic uses it.
CREATE OR REPLACE FUNCTION pulse.forget_turnstile_v1(of_turnstile text) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pulse.flow_policies AS policy WHERE policy.turnstile = of_turnstile) THEN
        DELETE FROM pulse.flow_notices AS notice WHERE notice.turnstile = of_turnstile;
        DELETE FROM pulse.turnstiles AS known WHERE known.name = of_turnstile;
    END IF;
END
$$;

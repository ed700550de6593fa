-- Deletes a locked pool, unless a topic uses it.
CREATE OR REPLACE FUNCTION pulse.forget_pool_v1(of_pool text) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF NOT EXISTS (SELECT FROM pulse.limit_policies AS policy WHERE policy.pool = of_pool) THEN
        DELETE FROM pulse.limit_notices AS notice WHERE notice.pool = of_pool;
        DELETE FROM pulse.pools AS known WHERE known.name = of_pool;
    END IF;
END
$$;

-- Refuses an argument of the interface with a sentence that begins with its name.
CREATE OR REPLACE FUNCTION pulse.refuse_v1(field text, problem text) RETURNS void LANGUAGE plpgsql
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RAISE EXCEPTION USING ERRCODE = 'invalid_parameter_value', MESSAGE = format('%s %s', field, problem);
END $$;

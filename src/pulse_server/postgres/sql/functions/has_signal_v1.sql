-- Whether a signal of these names, one in each line, waits to be taken, as of now and not of the snapshot of the statement
-- that asks: that one has locked the job, and a signal that it waited for may have been committed since.
CREATE OR REPLACE FUNCTION pulse.has_signal_v1(of_job uuid, of_names text)
RETURNS boolean LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN EXISTS (
        SELECT
        FROM pulse.job_signals AS signal
        WHERE signal.job_id = of_job AND signal.name = ANY(string_to_array(of_names, E'\n')) AND signal.taken_at IS NULL
    );
END $$;

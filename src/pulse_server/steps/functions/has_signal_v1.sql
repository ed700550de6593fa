-- Whether a signal of these names, one name per line, waits to be taken. Reads the present, not the
-- snapshot of the calling statement, which has locked the job: a signal may have been committed
-- while it waited for that lock.
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

-- Whether a job of the schedule is unfinished, as of now and not of the snapshot of the statement that asks: that one has
-- locked the schedule, and a fire that it waited for may have committed since.
CREATE OR REPLACE FUNCTION pulse.schedule_is_busy_v1(of_schedule uuid)
RETURNS boolean LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM pulse.jobs AS job WHERE job.schedule_id = of_schedule AND job.finished_at IS NULL
    );
END $$;

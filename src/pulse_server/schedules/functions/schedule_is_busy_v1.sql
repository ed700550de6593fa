-- Whether the schedule has an unfinished job. Reads the present, not the snapshot of the calling
-- statement, which has locked the schedule: a fire may have committed while it waited for that
-- lock. COALESCE keeps the planner off jobs_live, which has all unfinished jobs.
CREATE OR REPLACE FUNCTION pulse.schedule_is_busy_v1(of_schedule uuid)
RETURNS boolean LANGUAGE plpgsql VOLATILE
SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    RETURN EXISTS (
        SELECT FROM pulse.jobs AS job
        WHERE job.schedule_id = of_schedule AND COALESCE(job.finished_at, 'infinity') = 'infinity'
    );
END $$;

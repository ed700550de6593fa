-- Drops the partition of a past day, in UTC, with its jobs, but for those whose workflow has not
-- ended: they move to completed_jobs_kept. Returns about how many jobs it had.
-- NULL if the partition does not exist, if another session uses it, or if the durations of a topic
-- were changed after `unless_changed_since`: the partition may have jobs that this topic keeps.
CREATE OR REPLACE FUNCTION pulse.drop_completed_day_v1(day date, unless_changed_since timestamptz)
RETURNS bigint LANGUAGE plpgsql VOLATILE SECURITY DEFINER
SET search_path = pg_catalog, pg_temp SET lock_timeout = '50ms' AS $$
DECLARE
    name constant text := 'completed_jobs_' || to_char(day, 'YYYYMMDD');
    jobs bigint;
BEGIN
    IF (day + 1)::timestamp AT TIME ZONE 'UTC' > now() OR NOT pulse.try_lock_v1('completed_days') THEN
        RETURN NULL;
    END IF;
    SELECT class.reltuples INTO jobs
    FROM pg_class AS class
    JOIN pg_inherits AS part ON part.inhrelid = class.oid
    WHERE part.inhparent = 'pulse.completed_jobs_by_day'::regclass AND class.relname = name;
    IF jobs IS NULL OR EXISTS (SELECT FROM pulse.topic_rules WHERE kept_changed_at > unless_changed_since) THEN
        RETURN NULL;
    END IF;
    IF jobs <= 0 THEN  -- never analyzed: it is small, or autovacuum is off
        EXECUTE format('SELECT count(*) FROM (SELECT FROM pulse.%I LIMIT 100000) AS found', name) INTO jobs;
    END IF;
    UPDATE pulse.completed_jobs AS job
    SET kept = true
    FROM pulse.workflows AS workflow
    JOIN pulse.workflow_jobs AS node ON node.workflow_id = ANY(ARRAY[workflow.id])
    WHERE workflow.finished_at IS NULL AND job.id = ANY(ARRAY[node.job_id]) AND NOT job.kept
      AND job.finished_at >= day::timestamp AT TIME ZONE 'UTC' AND job.finished_at < (day + 1)::timestamp AT TIME ZONE 'UTC';
    EXECUTE format('DROP TABLE pulse.%I', name);
    RETURN jobs;
END $$;
REVOKE EXECUTE ON FUNCTION pulse.drop_completed_day_v1 FROM PUBLIC;

-- How far the attempts of jobs have come, as their handlers report it. ADR-0068
--
-- In one transaction, as 0003. The table is not rewritten.

-- NULL for a job whose handler reports none. fraction, text, cursor (JSON as a text: jsonb would change its numbers), number,
-- attempt, reported_at, since, since_fraction. No claim writes it, and no index has it (ADR-0056).
ALTER TABLE pulse.jobs ADD COLUMN progress jsonb;

-- The progress of a job after a report of the attempt that started then, or NULL. A report that was overtaken changes nothing.
-- What it leaves out stays. The rest of the work is estimated from `since`, when the fraction was `since_fraction`: the
-- start of the attempt, or its first report where it continues an earlier one, or where the fraction fell.
CREATE FUNCTION pulse.with_progress(progress jsonb, reported jsonb, attempt integer, started_at timestamptz)
RETURNS jsonb LANGUAGE sql VOLATILE AS $$
    SELECT CASE
        WHEN reported IS NULL
          OR ((progress ->> 'reported_at')::timestamptz >= started_at
              AND (progress ->> 'number')::bigint > (reported ->> 'number')::bigint)
        THEN progress
        ELSE COALESCE(progress, '{}') || reported
            || jsonb_build_object('attempt', attempt, 'reported_at', clock_timestamp())
            || CASE
                WHEN reported ->> 'fraction' IS NULL THEN '{}'::jsonb
                WHEN progress ->> 'fraction' IS NULL
                THEN jsonb_build_object('since', started_at, 'since_fraction', 0)
                WHEN (progress ->> 'since')::timestamptz >= started_at
                  AND (reported ->> 'fraction')::float8 >= (progress ->> 'since_fraction')::float8
                THEN '{}'::jsonb
                ELSE jsonb_build_object('since', clock_timestamp(), 'since_fraction', reported -> 'fraction')
            END
    END
$$;

CREATE OR REPLACE VIEW pulse.all_jobs AS
SELECT job.id, job.submitted_at, job.next_run_at, job.lease_until, job.started_at, job.finished_at, job.priority,
       job.attempts, job.max_attempts, job.queued, job.queued AND job.locked_by IS NULL AS ready, job.delivered,
       job.status, job.topic, job.payload, job.locked_by, job.finished_by, job.idempotency_key, job.schedule_id,
       job.last_error, job.metadata, job.history, job.error_group,
       job.snoozes, job.crashes, job.start_by, job.unique_key, job.unique_scope, job.lane, job.result,
       job.progress
FROM pulse.jobs AS job
UNION ALL
SELECT done.id, done.submitted_at, done.next_run_at, NULL::timestamptz, done.started_at, done.finished_at, done.priority,
       done.attempts, done.max_attempts, false, false, done.delivered,
       'COMPLETED'::text, done.topic, done.payload, NULL::text, done.finished_by, done.idempotency_key, done.schedule_id,
       done.last_error, done.metadata, done.history, ''::text,
       done.snoozes, done.crashes, NULL::timestamptz, done.unique_key, NULL::text, done.lane, done.result, NULL::jsonb
FROM pulse.completed_jobs AS done;

-- Results: what handlers return, kept as long as the job. ADR-0067

-- NULL stands for none: a job without a result stores nothing for it.
ALTER TABLE pulse.completed_jobs ADD COLUMN result bytea;
-- Of the few completed jobs that stay in pulse.jobs (ADR-0057).
ALTER TABLE pulse.jobs ADD COLUMN result bytea;

CREATE OR REPLACE VIEW pulse.all_jobs AS
SELECT job.id, job.submitted_at, job.next_run_at, job.lease_until, job.started_at, job.finished_at, job.priority,
       job.attempts, job.max_attempts, job.queued, job.queued AND job.locked_by IS NULL AS ready, job.delivered,
       job.status, job.topic, job.payload, job.locked_by, job.finished_by, job.idempotency_key, job.schedule_id,
       job.last_error, job.metadata, job.history, job.error_group,
       job.snoozes, job.crashes, job.start_by, job.unique_key, job.unique_scope, job.lane, job.result
FROM pulse.jobs AS job
UNION ALL
SELECT done.id, done.submitted_at, done.next_run_at, NULL::timestamptz, done.started_at, done.finished_at, done.priority,
       done.attempts, done.max_attempts, false, false, done.delivered,
       'COMPLETED'::text, done.topic, done.payload, NULL::text, done.finished_by, done.idempotency_key, done.schedule_id,
       done.last_error, done.metadata, done.history, ''::text,
       done.snoozes, done.crashes, NULL::timestamptz, done.unique_key, NULL::text, done.lane, done.result
FROM pulse.completed_jobs AS done;

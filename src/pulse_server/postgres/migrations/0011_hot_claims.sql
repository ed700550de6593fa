-- A claim, a heartbeat and a release change no index (ADR-0056). Nothing that they write (status, attempts, locked_by,
-- lease_until, started_at, delivered) stands in the key, the INCLUDE list or the predicate of any index of pulse.jobs: one
-- that did would end HOT updates for every row of the table, also for rows that are not in it.
--
-- A server of the release before fails on this schema, in every statement that starts, ends or releases an attempt: its
-- claim would take jobs that run. Its heartbeats are still stored. docs/operations.md says how to upgrade.
--
-- In one transaction, as 0003. The table is not rewritten; jobs that run, are dead-lettered or canceled are updated once.

-- Room on the page for a second version of every row. With 70 two of three claims find none, and change all indexes.
ALTER TABLE pulse.jobs SET (fillfactor = 45);

-- `ready` was cleared by a claim. `queued` stays true while the job runs: it stands in the claim index from when it is
-- due until it ends or waits again. What may be claimed is `queued AND locked_by IS NULL`. jobs_claim stays as it is.
ALTER TABLE pulse.jobs RENAME COLUMN ready TO queued;
ALTER TABLE pulse.jobs DROP CONSTRAINT jobs_ready_means_waiting;

-- Leases are found here: each statement that claims jobs writes one row with their ids. A fresh row is looked at when
-- check_at has come, 2 s after the claim, and replaced by settled rows for the jobs that still run, most of which have
-- ended by then. These are looked at when the leases end. So the table has the claims of about three seconds, and what
-- runs longer. Heartbeats do not touch it.
CREATE TABLE pulse.lease_checks (
    check_at timestamptz NOT NULL,   -- no later than the lease of any of these jobs ends
    settled  boolean     NOT NULL,
    ids      uuid[]      NOT NULL
) WITH (
    -- All rows are deleted soon: few live ones, many dead ones.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_insert_scale_factor = 10,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0.02,
    toast.autovacuum_vacuum_threshold = 2000,
    toast.autovacuum_vacuum_insert_scale_factor = 10,
    toast.autovacuum_vacuum_cost_delay = 0
);
-- A thousand ids take 16 kB. To compress them would cost more than all the rest.
ALTER TABLE pulse.lease_checks ALTER COLUMN ids SET STORAGE EXTERNAL;
CREATE INDEX lease_checks_due ON pulse.lease_checks (settled, check_at);
INSERT INTO pulse.lease_checks (check_at, settled, ids)
SELECT min(running.lease_until), true, array_agg(running.id)
FROM (
    SELECT job.id, job.lease_until, row_number() OVER (ORDER BY job.lease_until) AS place
    FROM pulse.jobs AS job
    WHERE job.status = 'RUNNING'
) AS running
GROUP BY running.place / 1000;
UPDATE pulse.jobs SET queued = true WHERE status = 'RUNNING';
DROP INDEX pulse.jobs_expired;
ALTER TABLE pulse.jobs ADD CONSTRAINT jobs_queued_means_unfinished
    CHECK ((NOT queued OR finished_at IS NULL) AND (queued OR locked_by IS NULL));

-- The status of jobs that ended without success, once more: the status itself may stand in no index.
ALTER TABLE pulse.jobs ADD COLUMN ended_as text;
-- The indexes are made before the column is filled: an index that is built over rows which were updated in the same
-- transaction cannot be used as long as an older transaction is open.
CREATE INDEX jobs_ended ON pulse.jobs (ended_as, submitted_at DESC, id DESC) INCLUDE (topic)
    WHERE ended_as IS NOT NULL;
CREATE INDEX jobs_dead ON pulse.jobs (error_group, topic, submitted_at DESC, id DESC) INCLUDE (finished_at)
    WHERE ended_as = 'DEAD_LETTERED' AND error_group >= '';
UPDATE pulse.jobs SET ended_as = status WHERE status IN ('DEAD_LETTERED', 'CANCELED');
DROP INDEX pulse.jobs_unsuccessful, pulse.jobs_dead_letters;
ALTER INDEX pulse.jobs_ended RENAME TO jobs_unsuccessful;
ALTER INDEX pulse.jobs_dead RENAME TO jobs_dead_letters;
ALTER TABLE pulse.jobs ADD CONSTRAINT jobs_ended_as_repeats_status
    CHECK (ended_as IS NOT DISTINCT FROM CASE WHEN status IN ('DEAD_LETTERED', 'CANCELED') THEN status END);

-- promote_due and promote_in_turn. The two conditions mean the same in different words, so that a statement can use one
-- index and never the other (0007).
DROP INDEX pulse.jobs_due, pulse.jobs_due_in_turn;
CREATE INDEX jobs_due ON pulse.jobs (next_run_at) INCLUDE (topic) WHERE NOT queued AND finished_at IS NULL;
CREATE INDEX jobs_due_in_turn ON pulse.jobs (topic, next_run_at)
    WHERE NOT queued AND COALESCE(finished_at, 'infinity') = 'infinity' AND topic >= '';

-- Every statement of the release before that records an attempt fails, rather than leave a job queued that has to wait.
ALTER FUNCTION pulse.append_attempt(jsonb, integer, text, timestamptz, text, text) RENAME TO with_attempt;

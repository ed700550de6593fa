-- Lease checks state which jobs to look at and when, so that no index has to follow leases. Each
-- statement that claims jobs writes a fresh check; reap_expired (jobs/transitions/reaping.sql) works
-- through the settled ones. No statement here changes a job. ADR-0056

-- name: settle_claims(lease_checks, reach)
-- Replaces due fresh checks by settled ones for the jobs that still run: most jobs have ended by
-- then. A check that another server has locked is skipped. Returns the number of fresh checks.
-- :reach is how far back to look; NULL: all. Dead entries before that are not walked.
WITH due AS MATERIALIZED (
    SELECT lease_check.ctid AS tid, lease_check.ids
    FROM pulse.lease_checks AS lease_check
    WHERE NOT lease_check.settled
      AND lease_check.check_at <= now()
      AND lease_check.check_at > COALESCE(now() - :reach::interval, '-infinity')
    ORDER BY lease_check.check_at
    LIMIT :lease_checks
    FOR UPDATE SKIP LOCKED
),
{running_in_due},
{due_is_spent},
kept AS (
    SELECT running.id, running.lease_until AS check_at FROM running
),
{kept_is_checked_again}
SELECT count(*) AS lease_checks FROM due;

-- name: restore_lease_checks(after_time, after_id, jobs)
-- Reads a page of unfinished jobs, oldest first. Running jobs without a lease check get one: the
-- table was truncated, or restored from elsewhere. One statement writes a job and its check, so
-- otherwise none is ever missing. Returns the number of jobs read, the last job, and the number of
-- new checks.
WITH page AS MATERIALIZED (
    SELECT job.submitted_at, job.id, job.locked_by, job.lease_until
    FROM pulse.jobs AS job
    WHERE job.finished_at IS NULL AND (job.submitted_at, job.id) > (:after_time::timestamptz, :after_id::uuid)
    ORDER BY job.submitted_at, job.id
    LIMIT :jobs
),
named AS MATERIALIZED (
    SELECT array_agg(known.id) AS ids
    FROM pulse.lease_checks AS lease_check
    CROSS JOIN LATERAL unnest(lease_check.ids) AS known (id)
),
kept AS MATERIALIZED (
    SELECT page.id, page.lease_until AS check_at
    FROM page
    WHERE page.locked_by IS NOT NULL AND page.id NOT IN (SELECT unnest(named.ids) FROM named)
),
{kept_is_checked_again}
SELECT
    (SELECT count(*) FROM page) AS looked_at,
    reached.submitted_at,
    reached.id,
    (SELECT count(*) FROM kept) AS restored
FROM (SELECT) AS always
LEFT JOIN LATERAL (
    SELECT page.submitted_at, page.id FROM page ORDER BY page.submitted_at DESC, page.id DESC LIMIT 1
) AS reached ON true;

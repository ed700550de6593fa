-- Jobs that clients wait for. Nothing here changes a row. ADR-0067

-- name: finished_jobs(ids, most_bytes)
-- Returns finished jobs without payloads, up to :most_bytes bytes, at least one. Each row has the ids of the
-- finished jobs that did not fit, and of the unfinished jobs, all at one moment. A row without an
-- id: no job has finished. The message in the WAL has the same reason as in look_up_jobs: a result
-- that a caller has read must not be lost in a failover. docs/figures.md#repeats-and-standbys
-- Most awaited jobs have not finished. completed_jobs is searched only for jobs that are not live;
-- if all are live, nothing is written.
WITH live AS MATERIALIZED (
    SELECT job.id
    FROM pulse.jobs AS job
    WHERE job.id = ANY(:ids::uuid[]) AND job.status NOT IN ('COMPLETED', 'DEAD_LETTERED', 'CANCELED')
),
others AS MATERIALIZED (
    SELECT ARRAY(SELECT asked.id FROM unnest(:ids::uuid[]) AS asked (id) WHERE asked.id NOT IN (SELECT live.id FROM live)) AS ids
),
found AS MATERIALIZED (
    SELECT {job}, job.history, job.result
    FROM pulse.all_jobs AS job
    WHERE job.id = ANY((SELECT others.ids FROM others)::uuid[])
      AND (
          SELECT CASE WHEN others.ids <> '{}' THEN pg_catalog.pg_logical_emit_message(true, 'pulse', '') END FROM others
      ) IS NOT NULL
),
measured AS (
    SELECT found.*, sum(size.bytes) OVER (ORDER BY found.id ROWS UNBOUNDED PRECEDING) - size.bytes AS bytes_before
    FROM found
    CROSS JOIN LATERAL (
        SELECT COALESCE(octet_length(found.result), 0) + COALESCE(pg_column_size(found.history), 0)
            + COALESCE(octet_length(found.last_error), 0) + COALESCE(pg_column_size(found.metadata), 0) + 300 AS bytes
    ) AS size
    WHERE found.finished_at IS NOT NULL
)
SELECT
    fitting.*,
    (SELECT array_agg(measured.id) FROM measured WHERE measured.bytes_before >= :most_bytes::bigint) AS left_over,
    (SELECT array_agg(live.id) FROM live) AS unfinished
FROM (SELECT) AS always
LEFT JOIN (SELECT * FROM measured WHERE measured.bytes_before < :most_bytes::bigint) AS fitting ON true;

-- Servers and their connected workers.

-- name: held_jobs(most_of_each)
-- The jobs that workers hold: the first :most_of_each of each, longest held first, with the total of the
-- worker in each row.
WITH {running_jobs}
SELECT ranked.*
FROM (
    SELECT
        running.*,
        count(*) OVER (PARTITION BY running.locked_by) AS held_count,
        row_number() OVER (PARTITION BY running.locked_by ORDER BY running.started_at, running.id) AS place
    FROM running
) AS ranked
WHERE ranked.place <= :most_of_each
ORDER BY ranked.locked_by, ranked.place;

-- name: record_server(id, name, workers, after, until, once_back, address, version)
-- Records that this server is alive, with these workers. If it falls silent, reap_expired counts it
-- as cut off after :after, and spares its workers until :until. If it counted as cut off until now, because
-- it was frozen, its workers are spared for another lease (:once_back), as after a start: their heartbeats
-- and results have waited for this server, and arrive now. ADR-0042
WITH back AS MATERIALIZED (
    SELECT DISTINCT worker ->> 'worker_id' AS worker_id
    FROM pulse.servers AS server
    CROSS JOIN LATERAL jsonb_array_elements(server.workers || :workers::text::jsonb) AS worker
    WHERE server.id = :id::uuid AND server.silent_from < clock_timestamp()
),
spared AS (
    INSERT INTO pulse.spared_workers AS spared (worker_id, spared_until)
    SELECT back.worker_id, clock_timestamp() + :once_back::interval
    FROM back
    ORDER BY back.worker_id
    ON CONFLICT (worker_id) DO UPDATE SET spared_until = GREATEST(spared.spared_until, excluded.spared_until)
)
INSERT INTO pulse.servers AS server
    (id, name, workers, silent_from, workers_spared_until, steady_since, address, version)
VALUES (:id::uuid, :name, :workers::text::jsonb, clock_timestamp() + :after::interval, clock_timestamp() + :until::interval,
        clock_timestamp(), :address, :version)
ON CONFLICT (id) DO UPDATE
SET seen_at = clock_timestamp(),
    steady_since = CASE
        WHEN server.silent_from >= clock_timestamp() THEN server.steady_since ELSE excluded.steady_since
    END,
    workers = excluded.workers,
    silent_from = excluded.silent_from,
    workers_spared_until = excluded.workers_spared_until
RETURNING clock_timestamp() AS now;

-- name: forget_servers(id, silent_for)
-- Removes this server, and servers that were silent for :silent_for. Rows that another session has locked
-- stay: the next server that starts or stops removes them.
DELETE FROM pulse.servers AS server
WHERE server.id IN (
    SELECT gone.id
    FROM pulse.servers AS gone
    WHERE gone.id = :id::uuid OR gone.seen_at < now() - :silent_for::interval
    FOR UPDATE SKIP LOCKED
);

-- name: list_servers(seen_within)
-- The servers that were seen within :seen_within.
SELECT server.id, server.name, server.workers, server.started_at, server.address, server.version, server.seen_at,
       now() - server.seen_at AS unseen_for
FROM pulse.servers AS server
WHERE server.seen_at >= now() - :seen_within::interval
ORDER BY server.name;

-- The owners of limits: operators' overrides, and declarations in the code of connected workers.
-- ADR-0065

-- name: declare_limits(topics, declarations, worker)
-- Stores a worker's declarations by topic. An empty declaration withdraws the worker's earlier one.
-- Each topic comes once, and in order.
INSERT INTO pulse.limit_declarations AS known (topic, worker_id, declared)
SELECT given.topic, :worker, given.declared::jsonb
FROM unnest(:topics::text[], :declarations::text[]) AS given (topic, declared)
WHERE given.declared <> '{}' OR EXISTS (
    SELECT FROM pulse.limit_declarations AS before WHERE before.topic = given.topic AND before.worker_id = :worker)
ORDER BY given.topic
ON CONFLICT (topic, worker_id) DO UPDATE
SET declared = EXCLUDED.declared,
    declared_at = EXCLUDED.declared_at,
    missing_since = NULL;

-- name: read_owners(topics, silent_for, connected_for)
-- One row for each topic with an override or a declaration. Workers with equal declarations are one
-- entry.
-- Of all topics, if :topics is NULL. A server may have been silent for :silent_for. A worker must have
-- been connected for :connected_for, to show that it declares nothing for a topic.
WITH connected AS MATERIALIZED (
    SELECT worker ->> 'worker_id' AS worker_id, worker -> 'topics' AS topics, (worker ->> 'connected_at')::timestamptz AS since,
           COALESCE(server.workers -> (worker ->> 'same_as')::int, worker) AS taking
    FROM pulse.servers AS server
    CROSS JOIN LATERAL jsonb_array_elements(server.workers) AS worker
    WHERE server.seen_at >= clock_timestamp() - :silent_for::interval
      AND EXISTS (SELECT FROM pulse.limit_declarations)
),
same AS (
    SELECT
        declaration.topic, declaration.declared, count(*) AS workers, max(declaration.declared_at) AS declared_at,
        (array_agg(declaration.worker_id ORDER BY declaration.declared_at DESC, declaration.worker_id))[1] AS worker_id,
        CASE WHEN bool_and(declaration.missing_since IS NOT NULL) THEN max(declaration.missing_since) END AS missing_since,
        bool_or((declaration.missing_since IS NULL) <> (here.worker_id IS NOT NULL)) AS has_moved
    FROM pulse.limit_declarations AS declaration
    LEFT JOIN (
        SELECT DISTINCT said.topic, said.worker_id
        FROM pulse.limit_declarations AS said
        JOIN connected ON connected.worker_id = said.worker_id
        -- The row of a worker with very many topics does not have all of them.
        WHERE connected.taking -> 'topics' ? said.topic OR (connected.taking ->> 'topics_left_out')::int > 0
    ) AS here ON here.topic = declaration.topic AND here.worker_id = declaration.worker_id
    WHERE :topics::text[] IS NULL OR declaration.topic = ANY(:topics::text[])
    GROUP BY declaration.topic, declaration.declared
),
said AS (
    SELECT
        same.topic,
        jsonb_agg(
            jsonb_build_object(
                'declared', same.declared,
                'workers', same.workers,
                'worker_id', same.worker_id,
                'declared_at', date_part('epoch', same.declared_at),
                'missing_seconds', date_part('epoch', clock_timestamp() - same.missing_since))
            ORDER BY same.declared_at, same.worker_id
        ) AS declarations,
        bool_or(same.has_moved) AS has_moved,
        bool_and(same.missing_since IS NOT NULL) AND EXISTS (
            SELECT
            FROM connected
            WHERE connected.topics ? same.topic AND connected.since < clock_timestamp() - :connected_for::interval
        ) AS is_served
    FROM same
    GROUP BY same.topic
)
SELECT
    COALESCE(own.topic, said.topic) AS topic, own.overrides, own.set_by, own.set_at, said.declarations,
    COALESCE(said.has_moved, false) AS has_moved, COALESCE(said.is_served, false) AS is_served
FROM (
    SELECT * FROM pulse.limit_overrides AS known WHERE :topics::text[] IS NULL OR known.topic = ANY(:topics::text[])
) AS own
FULL JOIN said ON said.topic = own.topic
ORDER BY 1;

-- name: mark_missing(silent_for)
-- Records which workers are connected and take the topics that they declare for. Rows that another
-- server has locked stay for its next round.
-- A server may have been silent for :silent_for.
WITH connected AS MATERIALIZED (
    SELECT DISTINCT said.topic, said.worker_id
    FROM pulse.servers AS server
    CROSS JOIN LATERAL jsonb_array_elements(server.workers) AS worker
    CROSS JOIN LATERAL (SELECT COALESCE(server.workers -> (worker ->> 'same_as')::int, worker)) AS its (entry)
    JOIN pulse.limit_declarations AS said ON said.worker_id = worker ->> 'worker_id'
    WHERE server.seen_at >= clock_timestamp() - :silent_for::interval
      AND (its.entry -> 'topics' ? said.topic OR (its.entry ->> 'topics_left_out')::int > 0)
),
moved AS MATERIALIZED (
    SELECT declaration.topic, declaration.worker_id, declaration.missing_since IS NOT NULL AS is_connected
    FROM pulse.limit_declarations AS declaration
    WHERE (declaration.missing_since IS NULL)
        <> ((declaration.topic, declaration.worker_id) IN (SELECT connected.topic, connected.worker_id FROM connected))
    ORDER BY declaration.topic, declaration.worker_id
    FOR UPDATE OF declaration SKIP LOCKED
)
UPDATE pulse.limit_declarations AS declaration
SET missing_since = CASE WHEN moved.is_connected THEN NULL ELSE clock_timestamp() END
FROM moved
WHERE declaration.topic = ANY(ARRAY[moved.topic]) AND declaration.worker_id = ANY(ARRAY[moved.worker_id]);

-- name: forget_declarations(topics, away_for)
-- Deletes declarations of workers that have been away for :away_for, in topics where other declarations
-- count.
WITH gone AS MATERIALIZED (
    SELECT said.topic, said.worker_id
    FROM pulse.limit_declarations AS said
    WHERE said.topic = ANY(:topics::text[]) AND said.missing_since < clock_timestamp() - :away_for::interval
    FOR UPDATE SKIP LOCKED
)
DELETE FROM pulse.limit_declarations AS declaration
USING gone
WHERE declaration.topic = ANY(ARRAY[gone.topic]) AND declaration.worker_id = ANY(ARRAY[gone.worker_id]);

-- name: forget_owners(topics)
-- Deletes empty overrides and declarations of topics without a policy in force.
WITH returned AS (
    DELETE FROM pulse.limit_overrides AS own WHERE own.topic = ANY(:topics::text[]) AND own.overrides = '{}'
)
DELETE FROM pulse.limit_declarations AS declaration
WHERE declaration.topic = ANY(:topics::text[]) AND declaration.declared = '{}';

-- Policies of topics. topic_policies has how long finished jobs are kept. The statements of
-- retention.sql read it, so a change counts from the next statement on, in every server; a shortened
-- duration counts after its grace time (retention_in_force).
-- run_policies has how jobs run. fail_jobs and reap_expired read it, and each server keeps a copy
-- for submits, deliveries and heartbeats. ADR-0060

-- name: lock_policy(topic)
-- Returns the policy as it is now, an empty one if there was none. No other session changes it before
-- this transaction ends.
INSERT INTO pulse.topic_policies AS policy (topic)
VALUES (:topic)
ON CONFLICT (topic) DO UPDATE SET topic = EXCLUDED.topic
RETURNING policy.*, clock_timestamp() AS now;

-- name: set_policy(topic, completed, canceled, dead_lettered, completed_before, canceled_before, dead_lettered_before, shorter_from, by)
UPDATE pulse.topic_policies AS policy
SET completed_kept = :completed::interval,
    canceled_kept = :canceled::interval,
    dead_lettered_kept = :dead_lettered::interval,
    completed_before = :completed_before::interval,
    canceled_before = :canceled_before::interval,
    dead_lettered_before = :dead_lettered_before::interval,
    shorter_from = :shorter_from::timestamptz,
    set_by = :by,
    set_at = clock_timestamp()
WHERE policy.topic = :topic;

-- name: delete_empty_policy
-- Deletes the policy if it is empty.
DELETE FROM pulse.topic_policies
WHERE topic = $1 AND completed_kept IS NULL AND canceled_kept IS NULL AND dead_lettered_kept IS NULL
  AND shorter_from IS NULL;

-- name: override_policy
-- Sets the entries in $2, resets the entries in $3 to the declaration, and leaves the rest.
--   $1 topic   $2 entries   $3 names of entries   $4 by
INSERT INTO pulse.run_policies AS policy (topic, overrides, set_by, set_at)
VALUES ($1, $2::text::jsonb, $4, clock_timestamp())
ON CONFLICT (topic) DO UPDATE
SET overrides = (policy.overrides || EXCLUDED.overrides) - $3::text[],
    set_by = EXCLUDED.set_by,
    set_at = EXCLUDED.set_at;

-- name: override_limits
-- Sets the entries in $2, resets the entries in $3 to the declaration, and leaves the rest.
--   $1 topic   $2 entries   $3 names of entries   $4 by
INSERT INTO pulse.limit_overrides AS own (topic, overrides, set_by)
VALUES ($1, $2::text::jsonb - $3::text[], $4)
ON CONFLICT (topic) DO UPDATE
SET overrides = (own.overrides || EXCLUDED.overrides) - $3::text[],
    set_by = EXCLUDED.set_by,
    set_at = EXCLUDED.set_at;

-- name: declare_policies
-- Stores a worker's declarations by topic. An empty declaration withdraws the earlier one. An
-- unchanged declaration writes no row. Returns the previous values of the declarations that
-- changed.
--   $1 topics, each once and in order   $2 the declaration of each   $3 by
WITH news AS MATERIALIZED (
    SELECT given.topic, given.declared::jsonb AS declared, policy.declared AS before, policy.declared_by, policy.declared_at
    FROM unnest($1::text[], $2::text[]) AS given (topic, declared)
    LEFT JOIN pulse.run_policies AS policy ON policy.topic = ANY(ARRAY[given.topic])
    WHERE given.declared::jsonb <> COALESCE(policy.declared, '{}')
    ORDER BY given.topic
),
stored AS (
    INSERT INTO pulse.run_policies AS policy (topic, declared, declared_by, declared_at)
    SELECT news.topic, news.declared, $3, clock_timestamp()
    FROM news
    ON CONFLICT (topic) DO UPDATE
    SET declared = EXCLUDED.declared,
        declared_by = EXCLUDED.declared_by,
        declared_at = EXCLUDED.declared_at
)
SELECT news.topic, COALESCE(news.before, '{}') AS before, news.declared_by, news.declared_at
FROM news;

-- name: delete_empty_run_policies
DELETE FROM pulse.run_policies
WHERE topic = ANY($1::text[]) AND overrides = '{}' AND declared = '{}';

-- name: list_policies
WITH page AS MATERIALIZED (
    (
        SELECT topic
        FROM pulse.topic_policies
        WHERE topic > $1 AND ($3::text[] IS NULL OR topic = ANY($3::text[]))
        -- A policy that was removed stays until its grace time has passed.
          AND (COALESCE(completed_kept, canceled_kept, dead_lettered_kept) IS NOT NULL OR shorter_from > now())
        ORDER BY topic
        LIMIT $2
    )
    UNION
    (
        SELECT topic
        FROM pulse.run_policies
        WHERE topic > $1 AND ($3::text[] IS NULL OR topic = ANY($3::text[]))
        ORDER BY topic
        LIMIT $2
    )
    UNION
    (
        SELECT topic
        FROM pulse.limit_overrides
        WHERE topic > $1 AND ($3::text[] IS NULL OR topic = ANY($3::text[])) AND overrides <> '{}'
        ORDER BY topic
        LIMIT $2
    )
    UNION
    (
        SELECT DISTINCT topic
        FROM pulse.limit_declarations
        WHERE topic > $1 AND ($3::text[] IS NULL OR topic = ANY($3::text[])) AND declared <> '{}'
        ORDER BY topic
        LIMIT $2
    )
    ORDER BY topic
    LIMIT $2
)
SELECT page.topic, kept.completed_kept, kept.canceled_kept, kept.dead_lettered_kept, kept.completed_before,
       kept.canceled_before, kept.dead_lettered_before, kept.shorter_from, now() AS now, kept.set_by AS kept_by,
       kept.set_at AS kept_at, run.overrides, run.set_by AS overridden_by, run.set_at AS overridden_at, run.declared,
       run.declared_by, run.declared_at
FROM page
LEFT JOIN pulse.topic_policies AS kept ON kept.topic = ANY(ARRAY[page.topic])
LEFT JOIN pulse.run_policies AS run ON run.topic = ANY(ARRAY[page.topic])
ORDER BY page.topic;

-- name: read_run_policies
-- Overrides and declarations of each topic that has a policy. NULL if a server has read the same
-- before.
--   $1 the checksum of its last read
SELECT CASE WHEN md5(everything.policies) <> $1 THEN everything.policies END AS policies
FROM (
    SELECT
        COALESCE(jsonb_object_agg(policy.topic, jsonb_build_array(policy.overrides, policy.declared)), '{}')::text
            AS policies
    FROM pulse.run_policies AS policy
) AS everything;

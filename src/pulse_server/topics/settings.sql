-- The settings of topics. topic_settings has them by owner; topic_rules has what is in force of how jobs run and how
-- long they are kept. The statements that end an attempt, insert jobs or delete them read topic_rules, so a change
-- counts from the next statement on, in every server. Each server keeps a copy for submits, deliveries and heartbeats.
-- Limits in force are in limits.sql. docs/figures.md#retention, ADR-0060, ADR-0065

-- name: lock_topics(topics)
-- Makes a row of rules for each topic that has none, and locks them all to the end of the transaction, each once and in
-- the order given: every change of settings begins with this. Returns the rules.
INSERT INTO pulse.topic_rules AS rules (topic)
SELECT given.topic FROM unnest(:topics::text[]) AS given (topic)
ON CONFLICT (topic) DO UPDATE SET topic = EXCLUDED.topic
RETURNING rules.*, clock_timestamp() AS now;

-- name: read_rows(topics, worker, runs)
-- The rows of the operators, of this worker, and of the workers whose declarations of how jobs run hold.
-- :runs has the names of these entries.
SELECT own.topic, own.owner, own.entries, own.set_at, own.missing_since IS NOT NULL AS is_missing
FROM pulse.topic_settings AS own
WHERE own.topic = ANY(:topics::text[])
  AND (own.owner = '' OR own.owner = :worker OR own.entries ?| :runs::text[]);

-- name: store_entries(topics, entries, owner, reset, by)
-- Stores entries of one owner. What an operator does not set or reset stays, also if this server cannot read it; a
-- declaration replaces the whole one before.
INSERT INTO pulse.topic_settings AS known (topic, owner, entries, set_by)
SELECT given.topic, :owner, given.entries::jsonb, :by
FROM unnest(:topics::text[], :entries::text[]) AS given (topic, entries)
ON CONFLICT (topic, owner) DO UPDATE
SET entries = CASE WHEN :owner = '' THEN known.entries - :reset::text[] ELSE '{}' END || EXCLUDED.entries,
    set_by = EXCLUDED.set_by,
    set_at = EXCLUDED.set_at,
    missing_since = NULL;

-- name: delete_entries(topics, owner)
DELETE FROM pulse.topic_settings AS own WHERE own.topic = ANY(:topics::text[]) AND own.owner = :owner;

-- name: replace_runs(topics, worker, runs)
-- Withdraws what other workers have declared of how jobs run: the declaration of :worker holds.
WITH emptied AS (
    DELETE FROM pulse.topic_settings AS said
    WHERE said.topic = ANY(:topics::text[]) AND said.owner <> '' AND said.owner <> :worker
      AND said.entries ?| :runs::text[] AND said.entries - :runs::text[] = '{}'
)
UPDATE pulse.topic_settings AS said
SET entries = said.entries - :runs::text[]
WHERE said.topic = ANY(:topics::text[]) AND said.owner <> '' AND said.owner <> :worker
  AND said.entries ?| :runs::text[] AND said.entries - :runs::text[] <> '{}';

-- name: store_runs(topics, backoffs, backoffs_by_operator, max_attempts, attempts_by_operator, attempt_timeouts, max_crashes)
-- How the jobs of these topics run from now on.
UPDATE pulse.topic_rules AS rules
SET backoff = given.backoff::jsonb,
    backoff_by_operator = given.backoff_by_operator,
    max_attempts = given.max_attempts,
    attempts_by_operator = given.attempts_by_operator,
    attempt_timeout = given.attempt_timeout,
    max_crashes = given.max_crashes
FROM unnest(
    :topics::text[], :backoffs::text[], :backoffs_by_operator::bool[], :max_attempts::int[], :attempts_by_operator::bool[],
    :attempt_timeouts::interval[], :max_crashes::int[]
) AS given (topic, backoff, backoff_by_operator, max_attempts, attempts_by_operator, attempt_timeout, max_crashes)
WHERE rules.topic = ANY(ARRAY[given.topic]);

-- name: store_kept(topic, completed, canceled, dead_lettered, completed_before, canceled_before, dead_lettered_before, shorter_from)
-- How long the jobs of the topic are kept from now on. Without any duration the rules forget when they changed.
UPDATE pulse.topic_rules AS rules
SET completed_kept = :completed::interval,
    canceled_kept = :canceled::interval,
    dead_lettered_kept = :dead_lettered::interval,
    completed_before = :completed_before::interval,
    canceled_before = :canceled_before::interval,
    dead_lettered_before = :dead_lettered_before::interval,
    shorter_from = :shorter_from::timestamptz,
    kept_changed_at = CASE
        WHEN num_nonnulls(:completed::interval, :canceled::interval, :dead_lettered::interval, :shorter_from::timestamptz) > 0
        THEN clock_timestamp()
    END
WHERE rules.topic = :topic;

-- name: forget_rules(topics)
-- Deletes rules without an entry, of topics without an owner.
DELETE FROM pulse.topic_rules AS rules
WHERE rules.topic = ANY(:topics::text[])
  AND num_nonnulls(rules.backoff, rules.max_attempts, rules.attempt_timeout, rules.max_crashes, rules.kept_changed_at) = 0
  AND NOT EXISTS (
      SELECT FROM pulse.topic_settings AS own WHERE own.topic = rules.topic AND own.entries <> '{}' OFFSET 0);

-- name: list_topics(after_topic, most, topics)
-- Topics with settings of their own, by name, with the longer durations that still count.
WITH shortened AS MATERIALIZED (
    SELECT rules.topic FROM pulse.topic_rules AS rules WHERE rules.shorter_from > now()
),
page AS MATERIALIZED (
    (
        SELECT DISTINCT own.topic
        FROM pulse.topic_settings AS own
        WHERE own.topic > :after_topic AND (:topics::text[] IS NULL OR own.topic = ANY(:topics::text[]))
          AND own.entries <> '{}'
        ORDER BY own.topic
        LIMIT :most
    )
    UNION
    SELECT shortened.topic
    FROM shortened
    WHERE shortened.topic > :after_topic AND (:topics::text[] IS NULL OR shortened.topic = ANY(:topics::text[]))
    ORDER BY topic
    LIMIT :most
)
SELECT page.topic, rules.completed_before, rules.canceled_before, rules.dead_lettered_before, rules.shorter_from, now() AS now
FROM page
LEFT JOIN pulse.topic_rules AS rules ON rules.topic = ANY(ARRAY[page.topic])
ORDER BY page.topic;

-- name: read_rules(known)
-- How the jobs run of each topic that has rules for it. NULL if a server has read the same before.
-- :known is the checksum of its last read.
SELECT CASE WHEN md5(everything.rules) <> :known THEN everything.rules END AS rules
FROM (
    SELECT COALESCE(
        jsonb_object_agg(
            rules.topic,
            jsonb_build_array(
                rules.max_attempts, rules.attempts_by_operator, date_part('epoch', rules.attempt_timeout))),
        '{}'
    )::text AS rules
    FROM pulse.topic_rules AS rules
    WHERE num_nonnulls(rules.backoff, rules.max_attempts, rules.attempt_timeout, rules.max_crashes) > 0
) AS everything;

-- name: read_owners(topics, limits, runs, silent_for, connected_for)
-- One row for each topic and owner; workers that declare the same limits are one. Of these topics, or with NULL of
-- all that have limits: by an owner, or still in force after an owner has withdrawn them. :limits and :runs have the names of these entries.
-- A server may have been silent for :silent_for. A worker must have been connected for :connected_for, to show that it
-- declares nothing for a topic.
WITH {connected_workers},
owner AS MATERIALIZED (
    SELECT
        own.topic, own.owner = '' AS is_operator, own.owner, own.entries, own.set_by, own.set_at, own.missing_since,
        own.entries ?| :limits::text[] OR own.entries = '{}' AS has_limits,
        own.owner <> '' AND (own.entries ?| :limits::text[] OR own.entries = '{}')
            AND (own.missing_since IS NULL) <> {worker_is_connected} AS has_moved
    FROM pulse.topic_settings AS own
    WHERE own.topic = ANY(:topics::text[])
       OR (:topics::text[] IS NULL AND (own.entries ?| :limits::text[] OR own.entries = '{}'))
)
SELECT
    owner.topic, owner.is_operator, owner.has_limits, owner.declared::text AS entries,
    max(owner.set_by) AS set_by, max(owner.set_at) AS set_at, count(*) AS workers,
    (array_agg(owner.owner ORDER BY owner.set_at DESC, owner.owner))[1] AS worker_id,
    CASE
        WHEN bool_and(owner.missing_since IS NOT NULL)
        THEN date_part('epoch', clock_timestamp() - max(owner.missing_since))
    END AS missing_seconds,
    bool_or(owner.has_moved) AS has_moved,
    (owner.topic IN (
        SELECT serving.topic FROM serving WHERE serving.since < clock_timestamp() - :connected_for::interval)) AS is_served,
    (jsonb_agg(owner.entries - :limits::text[]) FILTER (WHERE owner.has_runs) -> 0)::text AS runs,
    (array_agg(owner.owner) FILTER (WHERE owner.has_runs))[1] AS runs_by,
    max(owner.set_at) FILTER (WHERE owner.has_runs) AS runs_at
FROM (
    SELECT owner.*, NOT owner.is_operator AND owner.entries ?| :runs::text[] AS has_runs,
        CASE WHEN owner.is_operator THEN owner.entries ELSE owner.entries - :runs::text[] END AS declared
    FROM owner
    UNION ALL
    SELECT policy.topic, true, '', '{}', '', NULL, NULL, false, false, false, '{}'
    FROM pulse.limit_policies AS policy
    WHERE :topics::text[] IS NULL AND NOT policy.retired
      AND EXISTS (SELECT FROM pulse.topic_settings AS own WHERE own.topic = policy.topic OFFSET 0)
      AND (policy.topic IN (SELECT owner.topic FROM owner WHERE owner.is_operator)) IS NOT TRUE
) AS owner
GROUP BY owner.topic, owner.is_operator, owner.has_limits, owner.declared
ORDER BY owner.topic, set_at, worker_id;

-- name: mark_missing(limits, silent_for)
-- Records which workers are connected and take the topics that they limit. Rows that another server has locked stay
-- for its next round. :limits has the names of the entries. A server may have been silent for :silent_for.
WITH {connected_workers},
moved AS MATERIALIZED (
    SELECT own.topic, own.owner, own.missing_since IS NOT NULL AS is_connected
    FROM pulse.topic_settings AS own
    WHERE own.owner <> '' AND (own.entries ?| :limits::text[] OR own.entries = '{}')
      AND (own.missing_since IS NULL) <> {worker_is_connected}
    ORDER BY own.topic, own.owner
    FOR UPDATE OF own SKIP LOCKED
)
UPDATE pulse.topic_settings AS own
SET missing_since = CASE WHEN moved.is_connected THEN NULL ELSE clock_timestamp() END
FROM moved
WHERE own.topic = ANY(ARRAY[moved.topic]) AND own.owner = ANY(ARRAY[moved.owner]);

-- name: forget_declarations(topics, limits, runs, away_for)
-- Withdraws the limits of workers that have been away for :away_for, in topics where other declarations count. How
-- jobs run stays declared.
WITH gone AS MATERIALIZED (
    SELECT said.topic, said.owner
    FROM pulse.topic_settings AS said
    WHERE said.topic = ANY(:topics::text[]) AND said.missing_since < clock_timestamp() - :away_for::interval
    FOR UPDATE SKIP LOCKED
),
left_with_runs AS (
    UPDATE pulse.topic_settings AS said
    SET entries = said.entries - :limits::text[],
        missing_since = NULL
    FROM gone
    WHERE said.topic = ANY(ARRAY[gone.topic]) AND said.owner = ANY(ARRAY[gone.owner]) AND said.entries ?| :runs::text[]
)
DELETE FROM pulse.topic_settings AS said
USING gone
WHERE said.topic = ANY(ARRAY[gone.topic]) AND said.owner = ANY(ARRAY[gone.owner]) AND NOT said.entries ?| :runs::text[];

-- name: forget_owners(topics)
-- Deletes what owners have withdrawn, of topics without limits in force.
DELETE FROM pulse.topic_settings AS own
WHERE own.topic = ANY(:topics::text[]) AND own.entries = '{}';

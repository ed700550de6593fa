-- The audit. database/audit.py sends the first six in the transaction of a change. ADR-0081

-- name: write_entry(id, user, role, address, method, reason, outcome, refusal, topics, ids, asked, changes, changed)
-- Adds the entry of an action, or counts a further change of it. No row: another user, or another
-- method, has used the id. Returns the changes of the action so far.
INSERT INTO pulse.audit AS entry
    (id, user_name, role, address, method, reason, outcome, refusal, topics, ids, asked, changes, changed)
VALUES (:id::uuid, :user, :role, :address, :method, :reason, :outcome, :refusal, :topics::text[], :ids::text[],
        :asked::text::jsonb, :changes::text::jsonb, :changed::bigint)
ON CONFLICT (id) DO UPDATE
SET changed = entry.changed + EXCLUDED.changed,
    topics = CASE
        WHEN entry.topics @> EXCLUDED.topics THEN entry.topics
        ELSE (entry.topics || EXCLUDED.topics)[:64]
    END,
    ids = CASE
        WHEN entry.ids @> EXCLUDED.ids THEN entry.ids
        ELSE (entry.ids || EXCLUDED.ids)[:64]
    END,
    changes = entry.changes || EXCLUDED.changes
WHERE entry.user_name = EXCLUDED.user_name AND entry.method = EXCLUDED.method AND entry.outcome = EXCLUDED.outcome
RETURNING entry.changed;

-- name: lock_audit
-- Before the change: a session that has the table locked must not keep an action waiting with the
-- rows of its jobs locked, nor for as long as the action may take. The wait for rows is as before, and
-- a shorter one counts here too.
DO $$
DECLARE
    wait text DEFAULT current_setting('lock_timeout');
BEGIN
    IF wait::interval NOT BETWEEN interval '1 ms' AND interval '1 s' THEN
        PERFORM set_config('lock_timeout', '1s', true);
    END IF;
    LOCK TABLE pulse.audit IN ROW EXCLUSIVE MODE;
    PERFORM set_config('lock_timeout', wait, true);
END $$;

-- name: lock_settings(of)
-- One action at a time changes the settings :of a topic, a schedule or a worker, or the pause of a topic or
-- of everything. Without this, the second of two would record an old value that no longer holds. An action
-- that waits for a row must not keep others waiting: a pause may be urgent, and has a lock of its own.
INSERT INTO pulse.locks (name) VALUES (:of) ON CONFLICT (name) DO UPDATE SET name = EXCLUDED.name;

-- name: unlock_settings(of)
-- The row is gone at the end of the transaction, which has it locked until then.
DELETE FROM pulse.locks WHERE name = :of;

-- name: read_pauses(topics)
-- The pauses of topics, or without any the pause of everything, as one object. No other table is read: a lock
-- on one must not delay a pause.
SELECT COALESCE(jsonb_object_agg(pause.key, pause.value), '{}')::text AS settings
FROM (
    SELECT barred.reason
    FROM pulse.barred_topics AS barred
    WHERE barred.topic = ANY(:topics::text[]) AND barred.paused
    UNION ALL
    SELECT everything.reason
    FROM pulse.dispatch_control AS everything
    WHERE everything.id = 1 AND everything.paused AND :topics::text[] = '{}'
) AS found
CROSS JOIN LATERAL jsonb_each(jsonb_build_object('paused', true, 'pause_reason', found.reason)) AS pause;

-- name: read_settings(topics, lane, schedule, application, worker)
-- The settings of topics, of a lane of them, of a schedule, of the schedules of an application, and of
-- a worker, as one object; not the pauses. Payloads and metadata are read as their size and a checksum,
-- which is compared and not stored.
WITH entry (topic, name, value) AS (
    SELECT own.topic, entry.key, entry.value
    FROM pulse.topic_settings AS own
    CROSS JOIN LATERAL jsonb_each(own.entries) AS entry
    WHERE own.topic = ANY(:topics::text[]) AND own.owner = ''
    UNION ALL
    -- Workers that declare the same are one: the next worker of a fleet changes nothing.
    SELECT said.topic, 'declared.' || entry.key,
        CASE WHEN count(DISTINCT entry.value) = 1 THEN jsonb_agg(entry.value) -> 0 ELSE jsonb_agg(DISTINCT entry.value) END
    FROM pulse.topic_settings AS said
    CROSS JOIN LATERAL jsonb_each(said.entries) AS entry
    WHERE said.topic = ANY(:topics::text[]) AND said.owner <> ''
    GROUP BY said.topic, entry.key
    UNION ALL
    SELECT policy.topic, 'held_until', to_jsonb(GREATEST(pool.closed_until, policy.closed_until))
    FROM pulse.limit_policies AS policy
    JOIN pulse.pools AS pool ON pool.name = ANY(ARRAY[policy.pool])
    WHERE policy.topic = ANY(:topics::text[])
      AND GREATEST(pool.closed_until, policy.closed_until) > clock_timestamp()
    UNION ALL
    SELECT lane.topic, own.name, to_jsonb(own.value)
    FROM pulse.lanes AS lane
    CROSS JOIN LATERAL (VALUES ('lane.weight', NULLIF(lane.weight, 1)), ('lane.limit', lane.limit)) AS own (name, value)
    WHERE lane.topic = ANY(:topics::text[]) AND lane.lane = :lane
    UNION ALL
    SELECT '', own.key, own.value
    FROM pulse.schedules AS schedule
    CROSS JOIN LATERAL jsonb_each(
        to_jsonb(schedule) - '{id,created_at,next_run_at,last_run_at,queued_for,payload,metadata,updated_at,overrides}'::text[]
        || jsonb_build_object(
            'payload', octet_length(schedule.payload) || ' bytes ' || md5(schedule.payload),
            'metadata', pg_column_size(schedule.metadata) || ' bytes ' || md5(schedule.metadata::text))
    ) AS own
    WHERE schedule.id = :schedule::uuid
    UNION ALL
    -- What code declares in place of the entries that operators have set.
    SELECT '', 'declared.' || own.key, CASE own.key
            WHEN 'payload' THEN to_jsonb(
                octet_length(decode(own.value ->> 'declared', 'base64')) || ' bytes ' || md5(own.value ->> 'declared'))
            WHEN 'metadata' THEN to_jsonb(
                octet_length(own.value ->> 'declared') || ' bytes ' || md5(own.value ->> 'declared'))
            ELSE COALESCE(NULLIF(own.value -> 'declared', 'null'), '"none"')
        END
    FROM pulse.schedules AS schedule
    CROSS JOIN LATERAL jsonb_each(schedule.overrides) AS own
    WHERE schedule.id = :schedule::uuid
    UNION ALL
    SELECT schedule.name, 'declared_by_code', to_jsonb(schedule.vanished_at IS NULL)
    FROM pulse.schedules AS schedule
    WHERE schedule.application = :application
    UNION ALL
    SELECT '', own.key, own.value
    FROM pulse.worker_states AS worker
    CROSS JOIN LATERAL jsonb_each(jsonb_build_object('state', worker.state, 'state_reason', worker.reason)) AS own
    WHERE worker.worker_id = :worker
)
SELECT COALESCE(
    jsonb_object_agg(
        CASE WHEN entry.topic = '' OR cardinality(:topics::text[]) = 1 THEN '' ELSE entry.topic || ': ' END || entry.name,
        entry.value
    ) FILTER (WHERE entry.value <> 'null'),
    '{}'
)::text AS settings
FROM entry;

-- name: list_audit
-- Newest first. audit.py appends the conditions.
SELECT entry.* FROM pulse.audit AS entry WHERE true;

-- name: entries_of_topic(topic, most)
SELECT entry.id FROM pulse.audit AS entry WHERE entry.topics @> ARRAY[:topic::text] LIMIT :most::int;

-- name: delete_old_audit(kept, entries)
WITH old AS MATERIALIZED (
    SELECT entry.id
    FROM pulse.audit AS entry
    WHERE entry.at < now() - :kept::interval
    ORDER BY entry.at, entry.id
    LIMIT :entries
    FOR UPDATE SKIP LOCKED
)
DELETE FROM pulse.audit AS entry USING old WHERE entry.id = ANY(ARRAY[old.id])
RETURNING entry.id;

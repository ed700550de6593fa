-- Who owns a limit: what operators have set, and what the code of each worker declares. What holds of it is in
-- pulse.flow_policies. Entries: limit, rate (starts, period), pool, per_lane, lane_rate, turns, ordered, aging; durations in
-- seconds. ADR-0065

-- An empty object: an operator returned all entries. The row is deleted once the policy in force follows.
CREATE TABLE pulse.flow_overrides (
    topic     text        NOT NULL,
    overrides jsonb       NOT NULL,
    set_by    text        NOT NULL DEFAULT '',
    set_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT flow_overrides_pkey PRIMARY KEY (topic),
    CONSTRAINT flow_overrides_are_objects CHECK (jsonb_typeof(overrides) = 'object')
);

-- One row for each worker and topic with limits. A declaration counts while its worker is connected, and for a while after.
CREATE TABLE pulse.flow_declarations (
    topic         text        NOT NULL,
    worker_id     text        NOT NULL,
    declared      jsonb       NOT NULL,
    declared_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    missing_since timestamptz,                       -- the worker is not connected; NULL: it is, or has just declared this
    CONSTRAINT flow_declarations_pkey PRIMARY KEY (topic, worker_id),
    CONSTRAINT flow_declarations_are_objects CHECK (jsonb_typeof(declared) = 'object')
) WITH (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 100);

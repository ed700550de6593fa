-- The settings of topics, by owner: the operators, or a worker whose code declares some. Entries have the names and
-- forms of src/pulse/topic_settings.py, with durations in seconds. Limits of a worker count while it is connected, and
-- for a while after. How jobs run (max_attempts, backoff, attempt_timeout, max_crashes) is in the row of one worker,
-- whose declaration was the last. An empty object: the owner has withdrawn everything. The row is deleted once the
-- limits in force follow. A change locks the row of the topic in pulse.topic_rules first. ADR-0060, ADR-0065
CREATE TABLE pulse.topic_settings (
    topic         text        NOT NULL,
    owner         text        NOT NULL,               -- a worker; empty: the operators
    entries       jsonb       NOT NULL,
    set_by        text        NOT NULL DEFAULT '',    -- the user of the last change, of operators
    set_at        timestamptz NOT NULL DEFAULT clock_timestamp(),
    missing_since timestamptz,                -- the worker is not connected; NULL: it is, or has just declared this
    CONSTRAINT topic_settings_pkey PRIMARY KEY (topic, owner),
    CONSTRAINT topic_settings_are_objects CHECK (jsonb_typeof(entries) = 'object')
) WITH (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 100);

-- What is in force of the settings above, for the statements that end an attempt, insert a job, or delete one. One
-- row for each topic with settings, written in the transaction of a change. NULL: the settings of the server hold.
-- Forever is an interval of 365,000 days. docs/figures.md#retention, ADR-0060
CREATE TABLE pulse.topic_rules (
    topic                text    NOT NULL,
    backoff              jsonb,
    backoff_by_operator  boolean NOT NULL DEFAULT false,   -- a declared one gives way to the worker's own
    max_attempts         integer,
    attempts_by_operator boolean NOT NULL DEFAULT false,   -- a declared number gives way to the producer's own
    attempt_timeout      interval,
    max_crashes          integer,
    completed_kept       interval,
    canceled_kept        interval,
    dead_lettered_kept   interval,
    -- The longer durations from before the last change. They count until `shorter_from`.
    completed_before     interval,
    canceled_before      interval,
    dead_lettered_before interval,
    shorter_from         timestamptz,
    kept_changed_at      timestamptz,             -- the last change of the durations
    CONSTRAINT topic_rules_pkey PRIMARY KEY (topic),
    CONSTRAINT topic_rules_kept CHECK (
        LEAST(completed_kept, canceled_kept, dead_lettered_kept) >= interval '1 minute'
        AND GREATEST(completed_kept, canceled_kept, dead_lettered_kept) <= interval '365000 days'
    )
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 100);
-- The few topics in their grace time.
CREATE INDEX topic_rules_shorter_from ON pulse.topic_rules (shorter_from) WHERE shorter_from IS NOT NULL;

-- How long the jobs of these topics are kept at this moment. Every statement that deletes jobs reads
-- this view: the clock of the database ends the grace time, for all servers at once.
CREATE VIEW pulse.retention_in_force AS
SELECT rules.topic,
       CASE WHEN rules.shorter_from > now() THEN GREATEST(rules.completed_before, rules.completed_kept)
            ELSE rules.completed_kept END AS completed_kept,
       CASE WHEN rules.shorter_from > now() THEN GREATEST(rules.canceled_before, rules.canceled_kept)
            ELSE rules.canceled_kept END AS canceled_kept,
       CASE WHEN rules.shorter_from > now() THEN GREATEST(rules.dead_lettered_before, rules.dead_lettered_kept)
            ELSE rules.dead_lettered_kept END AS dead_lettered_kept
FROM pulse.topic_rules AS rules;

-- Counts by minute and topic. The empty name, which no topic can have, stands for all topics
-- together. Each server adds its own counts every few seconds. Only the depth is counted from jobs.
CREATE TABLE pulse.topic_minutes (
    minute        timestamptz NOT NULL,
    topic         text        NOT NULL,
    submitted     bigint      NOT NULL DEFAULT 0,
    completed     bigint      NOT NULL DEFAULT 0,
    failed        bigint      NOT NULL DEFAULT 0,
    retried       bigint      NOT NULL DEFAULT 0,
    dead_lettered bigint      NOT NULL DEFAULT 0,
    canceled      bigint      NOT NULL DEFAULT 0,
    -- How long jobs waited and ran: {"bucket": count}, with the buckets of base/metrics.py. A
    -- minute fills about ten of 104 buckets, and only these are stored: 190 bytes instead of 850
    -- for an array of all.
    wait_buckets  jsonb       NOT NULL DEFAULT '{}',
    run_buckets   jsonb       NOT NULL DEFAULT '{}',
    -- The depth, sampled once a minute by one server. NULL: not sampled, or no such jobs if the row of
    -- all topics has a sample.
    ready          bigint,
    running        bigint,
    oldest_seconds float8,
    CONSTRAINT topic_minutes_pkey PRIMARY KEY (minute, topic)
);

-- The servers, each with its connected workers. A row that is not refreshed belongs to a dead
-- server.
CREATE TABLE pulse.servers (
    id           uuid        NOT NULL,
    name         text        NOT NULL,
    address      text        NOT NULL DEFAULT '',  -- that it listens on
    version      text        NOT NULL DEFAULT '',
    started_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at      timestamptz NOT NULL DEFAULT clock_timestamp(),
    steady_since timestamptz,                 -- since when it has been seen without a gap. docs/figures.md#the-caution-of-the-watchdog
    -- When a silent server starts to count as cut off from the database, and until when its workers
    -- are spared. ADR-0042
    silent_from          timestamptz,
    workers_spared_until timestamptz,
    workers      jsonb       NOT NULL DEFAULT '[]',
    CONSTRAINT servers_pkey PRIMARY KEY (id)
);

-- How long an operator keeps the jobs of a topic. NULL: the duration in the settings of the server.
-- Forever is an interval of 365,000 days. ADR-0058
CREATE TABLE pulse.topic_policies (
    topic              text        NOT NULL,
    completed_kept     interval,
    canceled_kept      interval,
    dead_lettered_kept interval,
    -- The longer durations from before the last change. They count until `shorter_from`.
    completed_before     interval,
    canceled_before      interval,
    dead_lettered_before interval,
    shorter_from         timestamptz,
    set_by             text        NOT NULL DEFAULT '',
    set_at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT topic_policies_pkey PRIMARY KEY (topic),
    CONSTRAINT topic_policies_kept CHECK (
        LEAST(completed_kept, canceled_kept, dead_lettered_kept) >= interval '1 minute'
        AND GREATEST(completed_kept, canceled_kept, dead_lettered_kept) <= interval '365000 days'
    )
);

-- How long the jobs of these topics are kept at this moment. Every statement that deletes jobs reads
-- this view: the clock of the database ends the grace time, for all servers at once.
CREATE VIEW pulse.retention_in_force AS
SELECT policy.topic,
       CASE WHEN policy.shorter_from > now() THEN GREATEST(policy.completed_before, policy.completed_kept)
            ELSE policy.completed_kept END AS completed_kept,
       CASE WHEN policy.shorter_from > now() THEN GREATEST(policy.canceled_before, policy.canceled_kept)
            ELSE policy.canceled_kept END AS canceled_kept,
       CASE WHEN policy.shorter_from > now() THEN GREATEST(policy.dead_lettered_before, policy.dead_lettered_kept)
            ELSE policy.dead_lettered_kept END AS dead_lettered_kept
FROM pulse.topic_policies AS policy;

-- How the jobs of a topic are retried, how long an attempt may take, and how many attempts may end
-- in a lost lease. Entries: backoff (first, factor, longest, jitter), max_attempts, timeout,
-- max_crashes; durations in seconds. `declared || overrides` takes precedence over the settings of
-- the server. ADR-0060
CREATE TABLE pulse.run_policies (
    topic       text        NOT NULL,
    overrides   jsonb       NOT NULL DEFAULT '{}',  -- by operators
    set_by      text        NOT NULL DEFAULT '',
    set_at      timestamptz,
    declared    jsonb       NOT NULL DEFAULT '{}',  -- by the code of a worker
    declared_by text        NOT NULL DEFAULT '',
    declared_at timestamptz,
    CONSTRAINT run_policies_pkey PRIMARY KEY (topic),
    CONSTRAINT run_policies_are_objects CHECK (
        jsonb_typeof(overrides) = 'object' AND jsonb_typeof(declared) = 'object'
    )
);

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
    -- How long jobs waited and ran: {"bucket": count}, with the buckets of domain/latencies.py. A
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
    steady_since timestamptz,                 -- since when it has been seen without a gap. ADR-0072
    -- When a silent server starts to count as cut off from the database, and until when its workers
    -- are spared. ADR-0042
    silent_from          timestamptz,
    workers_spared_until timestamptz,
    workers      jsonb       NOT NULL DEFAULT '[]',
    CONSTRAINT servers_pkey PRIMARY KEY (id)
);

-- Limits, rates, lanes and turns, for topics that have them. Such a topic is limited. Its claims
-- lock its pool, one at a time in the whole cluster. Pools and lanes are written, and notices
-- removed, only under the lock of the pool. All other statements append notices, which waits for no
-- lock. So there is one lock, and claims take it first. ADR-0064

-- One row for each pool. A limited topic without one has a pool of its own, under the
-- name of the topic.
CREATE TABLE pulse.pools (
    name         text        PRIMARY KEY,
    "limit"      integer     CONSTRAINT pools_limit_is_positive CHECK ("limit" > 0),
    starts       integer     CONSTRAINT pools_starts_is_positive CHECK (starts > 0),       -- at most, in any period
    period       interval,                    -- without starts: the period of the last rate, for its slices
    held         integer     NOT NULL DEFAULT 0,      -- running jobs that are counted here, and places in notices
    slice        bigint      NOT NULL DEFAULT 0,      -- the number of the last entry in slices
    slices       integer[]   NOT NULL DEFAULT '{}',   -- starts of the period, in 21 slices
    closed_until timestamptz,                 -- no start before then
    operator_until timestamptz,               -- closed_until by operators; workers cannot end it
    wanted       integer     NOT NULL DEFAULT 0,      -- slots that could have started a job at once, but for the limit
    wanted_until timestamptz,                 -- until when room is reserved for them
    CONSTRAINT pools_rate_is_whole CHECK (starts IS NULL OR period IS NOT NULL)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);

-- The policy in force for each limited topic, made from pulse.topic_settings.
CREATE TABLE pulse.limit_policies (
    topic       text     PRIMARY KEY,
    pool        text     NOT NULL,
    laned       boolean  NOT NULL DEFAULT false,      -- jobs stand in lanes, which take turns
    per_lane    integer  CONSTRAINT limit_policies_per_lane_is_positive CHECK (per_lane > 0),
    shrinks     boolean  NOT NULL DEFAULT false,      -- a lane may have more places in use than its limit
    lane_starts integer  CONSTRAINT limit_policies_lane_starts_is_positive CHECK (lane_starts > 0),
    lane_period interval,                     -- without lane_starts: the period of the last rate of lanes
    ordered     boolean  NOT NULL DEFAULT false,      -- a retried job holds its lane
    retired     boolean  NOT NULL DEFAULT false,      -- has no limits any more; deleted once unlimit_topic permits it
    aging       interval,                     -- the waiting time that equals one step of priority
    -- After a change of aging: jobs in lanes after this position may still have the old rank. NULL:
    -- no job has.
    ranked_lane text,
    ranked_tier integer,
    ranked_at   timestamptz,
    ranked_id   uuid,
    -- After a change of lanes: the transactions that were under way, and may still add jobs by the old
    -- policy. '{}': not looked up yet; NULL: none. docs/figures.md#limits-without-a-table-lock
    older       text[],
    -- State that the topic takes along to another pool. Slices: the topic's own starts, in
    -- slices of the pool's length.
    slice        bigint,
    slices       integer[],
    closed_until timestamptz,                 -- a hold of its previous pool
    CONSTRAINT limit_policies_lane_rate_is_whole CHECK (lane_starts IS NULL OR lane_period IS NOT NULL),
    CONSTRAINT limit_policies_lanes_are_laned
        CHECK (laned OR (per_lane IS NULL AND lane_starts IS NULL AND aging IS NULL AND NOT ordered))
);

-- The lanes that have jobs, or had jobs a while ago. A lane has one place for each job that may run
-- at once, or a single place if it has no limit. A place is in the line, taken by a running job,
-- waiting for next_at, or not in use.
CREATE TABLE pulse.lanes (
    topic       text        NOT NULL,
    lane        text        NOT NULL,
    held        integer     NOT NULL,         -- places in use: in the line, waiting, or taken by a running job
    weight      smallint    NOT NULL DEFAULT 1 CONSTRAINT lanes_weight_is_positive CHECK (weight > 0),
    "limit"     integer     CONSTRAINT lanes_limit_is_positive CHECK ("limit" > 0),            -- instead of per_lane
    waiting     integer     NOT NULL DEFAULT 0,       -- places that wait for next_at: rate spent, or a retry holds the lane
    next_at     timestamptz,
    waits_for   uuid[],                       -- where order is kept: retried jobs that hold the lane
    slice       bigint      NOT NULL DEFAULT 0,
    slices      integer[]   NOT NULL DEFAULT '{}',
    used_at     timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT lanes_pkey PRIMARY KEY (topic, lane),
    CONSTRAINT lanes_wait_has_an_end CHECK ((waiting > 0) = (next_at IS NOT NULL))
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000,
        autovacuum_vacuum_cost_delay = 0);
CREATE INDEX lanes_waiting ON pulse.lanes (topic, next_at) WHERE next_at IS NOT NULL;

-- The line of turns: free places of lanes, in the order of their use. The statement that ends jobs
-- appends their places, up to 64 lanes in a row: a row for each lane would cost as much as a third
-- of the lease.
CREATE TABLE pulse.lane_line (
    id      bigint    GENERATED ALWAYS AS IDENTITY,
    topic   text      NOT NULL,
    lanes   text[]    NOT NULL,
    places  integer   NOT NULL,               -- per lane
    job_id  uuid,                             -- the job of the only lane, if it will be retried
    -- After some lanes of the row were used: the number of lanes before these, and the jobs left
    -- in the turn of each; NULL: all.
    place   integer   NOT NULL DEFAULT 0,
    credits integer[]
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_scale_factor = 10);
-- As in lease_checks: a key would cost every turn and every notice an index entry.
ALTER TABLE pulse.lane_line REPLICA IDENTITY FULL;
CREATE INDEX lane_line_next ON pulse.lane_line (topic, id, place);

-- News for the next claim from other statements: runs that have ended, lanes that have new work.
CREATE TABLE pulse.limit_notices (
    pool      text    NOT NULL,
    topic     text    NOT NULL,
    lanes     text[],                         -- lanes with new work; NULL: runs have ended
    ended     integer NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_scale_factor = 10);
ALTER TABLE pulse.limit_notices REPLICA IDENTITY FULL;
CREATE INDEX limit_notices_next ON pulse.limit_notices (pool);

-- The running jobs that are counted in a pool, by the lease checks. ADR-0056
CREATE VIEW pulse.limited_runs AS
SELECT job.id, job.topic, job.pool, job.lane, job.lane_held
FROM pulse.jobs AS job
WHERE job.locked_by IS NOT NULL AND job.pool IS NOT NULL
  AND job.id = ANY(ARRAY(SELECT unnest(lease_check.ids) FROM pulse.lease_checks AS lease_check));

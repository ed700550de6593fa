-- The schema: jobs, completed jobs, leases, keys, steps, schedules, pauses, limits, policies, and
-- statistics for operators. Functions are in sql/functions/, a file each.

-- One row for each job that has not completed: its state, its retries and its lease together.
CREATE TABLE pulse.jobs (
    -- Fixed-width columns first: no padding between them.
    id              uuid        NOT NULL,
    submitted_at    timestamptz NOT NULL,
    next_run_at     timestamptz NOT NULL,
    lease_until     timestamptz,
    started_at      timestamptz,              -- of the last attempt
    finished_at     timestamptz,              -- set once the status is terminal
    priority        integer     NOT NULL DEFAULT 0,
    attempts        integer     NOT NULL DEFAULT 0,  -- finished attempts that count, plus the running one
    run             integer     NOT NULL DEFAULT 0,  -- of the last claim; each claim has the next number. The fence. ADR-0001
    max_attempts    integer     NOT NULL,
    queued          boolean     NOT NULL,     -- from its due time until it ends or waits again, also while it runs. ADR-0056
    delivered       boolean     NOT NULL DEFAULT false,  -- whether the last attempt is known to have reached a worker
    status          text        NOT NULL,
    topic           text        NOT NULL,
    payload         bytea       NOT NULL,
    locked_by       text,                     -- the worker that holds the lease
    finished_by     text,                     -- the worker of the attempt that ended the job
    idempotency_key text,
    schedule_id     uuid,                     -- lineage; no foreign key: jobs outlive their schedule
    last_error      text,                     -- kept after a later success
    metadata        jsonb,
    history         jsonb,                    -- unsuccessful attempts, oldest first, capped
    error_group     text        NOT NULL DEFAULT '',  -- of a dead-lettered job
    ended_as        text,                     -- the final status if not COMPLETED; no index may have `status`
    -- From here on NULL for a plain job, which stores nothing for these columns. No CHECK names
    -- them: a claim would pay for it.
    -- Run policies. ADR-0060
    snoozes         integer,                  -- runs that were snoozed; they cost no attempt
    crashes         integer,                  -- attempts that ended in a lost lease, since the last retry by an operator
    start_by        timestamptz,              -- canceled if it has not started by then; NULL once it has started
    -- Unique jobs. ADR-0066
    unique_key      text,                     -- as submitted; kept when the key is free again
    unique_scope    text,                     -- waiting, live; NULL: the job does not hold the key
    -- Limits. ADR-0064
    lane            text,                     -- as submitted; '' in the lane of jobs without a lane
    tier            integer,                  -- first order in its lane, highest first. NULL: in no lane
    rank_at         timestamptz,              -- second order in its lane
    turnstile       text,                     -- where the last attempt is counted while it runs; NULL: nowhere
    lane_held       text,                     -- the lane of the last attempt's place; NULL: its lane has no limit
    -- Only of the few completed jobs that stay in this table. ADR-0067
    result          bytea,
    -- fraction, text, cursor (JSON as a text: jsonb would change its numbers), number, attempt, reported_at, since,
    -- since_fraction. ADR-0068
    progress        jsonb,
    -- Steps. ADR-0069
    steps           integer,                  -- rows in job_steps. NULL: no steps and no signals
    step_bytes      integer,                  -- of the steps
    signals         integer,                  -- received since the submit or the last fresh start. NULL: none
    signal_bytes    integer,                  -- of the signals
    suspensions     integer,                  -- runs that a sleep or a signal suspended; they cost no attempt
    waits_for       text,                     -- signals that end its wait, one per line; '': sleeps. Until an attempt ends otherwise

    CONSTRAINT jobs_pkey PRIMARY KEY (id),
    CONSTRAINT jobs_status_is_known
        CHECK (status IN ('PENDING', 'RUNNING', 'RETRYING', 'COMPLETED', 'DEAD_LETTERED', 'CANCELED')),
    -- A lease exists exactly while the job runs. So the fences check only locked_by and run: with
    -- the status in their conditions, the planner may walk a partial index for every report.
    CONSTRAINT jobs_lease_means_running
        CHECK ((status = 'RUNNING') = (locked_by IS NOT NULL) AND (locked_by IS NULL) = (lease_until IS NULL)),
    CONSTRAINT jobs_queued_means_unfinished
        CHECK ((NOT queued OR finished_at IS NULL) AND (queued OR locked_by IS NULL)),
    CONSTRAINT jobs_finished_means_terminal
        CHECK ((finished_at IS NOT NULL) = (status IN ('COMPLETED', 'DEAD_LETTERED', 'CANCELED'))),
    CONSTRAINT jobs_ended_as_repeats_status
        CHECK (ended_as IS NOT DISTINCT FROM CASE WHEN status IN ('DEAD_LETTERED', 'CANCELED') THEN status END),
    CONSTRAINT jobs_attempts_are_bounded
        CHECK (attempts >= 0 AND attempts <= max_attempts)
) WITH (
    -- Room on the page for a second version of every row. With 70, two of three claims find no room
    -- and change all indexes.
    fillfactor = 45,
    -- A queue turns its rows over all day. With the default (a fifth of the table), dead entries
    -- would pile up at the head of the claim index, where each claim has to step over them.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000,
    autovacuum_analyze_scale_factor = 0.05,
    autovacuum_vacuum_insert_scale_factor = 0.1,
    autovacuum_vacuum_cost_delay = 0
);

-- A claim, a heartbeat and a release change no index. Their columns (status, attempts, run,
-- locked_by, lease_until, started_at, delivered, turnstile, lane_held) must not be in the key, the
-- INCLUDE list or the predicate of an index of this table: such an index would end HOT updates for
-- every row, even for rows outside the index. ADR-0056

-- The order of indexes counts: of two indexes with equal cost, as in an empty table, the planner
-- takes the later one, and a session keeps that plan. So indexes for a single kind of query come
-- after indexes for walks over many jobs.

-- insert_jobs: one job for each key and topic.
CREATE UNIQUE INDEX jobs_key ON pulse.jobs (topic, idempotency_key) WHERE idempotency_key IS NOT NULL;
-- list_jobs: the jobs of a schedule are its history.
CREATE INDEX jobs_schedule ON pulse.jobs (schedule_id, submitted_at DESC, id DESC) WHERE schedule_id IS NOT NULL;
-- list_jobs, count_jobs, delete_expired: each row is in one of the two, so live jobs are found
-- without stepping over finished ones.
CREATE INDEX jobs_live ON pulse.jobs (submitted_at DESC, id DESC) WHERE finished_at IS NULL;
CREATE INDEX jobs_finished ON pulse.jobs (submitted_at DESC, id DESC) WHERE finished_at IS NOT NULL;
-- list_jobs and topic_depths: jobs that ended without success.
CREATE INDEX jobs_unsuccessful ON pulse.jobs (ended_as, submitted_at DESC, id DESC) INCLUDE (topic)
    WHERE ended_as IS NOT NULL;
-- list_dead_letter_groups reads only this index. list_jobs finds a group's jobs in it, in the order
-- of a page. The second condition holds for every row, and only a statement that has it too can use
-- the index: otherwise the planner would use it for the dead letters of a topic, and sort them all
-- to show a page.
CREATE INDEX jobs_dead_letters ON pulse.jobs (error_group, topic, submitted_at DESC, id DESC) INCLUDE (finished_at)
    WHERE ended_as = 'DEAD_LETTERED' AND error_group >= '';
-- promote_due and promote_in_turn. The two predicates mean the same in different words, and
-- topic >= '' holds for every row: each statement can use only its own index. Otherwise, with
-- statistics from a time when little waited, the planner uses jobs_due for one topic and walks the
-- jobs of all topics, or uses the other index for all due jobs and sorts them.
CREATE INDEX jobs_due ON pulse.jobs (next_run_at) INCLUDE (topic) WHERE NOT queued AND finished_at IS NULL;
CREATE INDEX jobs_due_in_turn ON pulse.jobs (topic, next_run_at)
    WHERE NOT queued AND COALESCE(finished_at, 'infinity') = 'infinity' AND topic >= '';
-- cancel_unstarted. No other index has this predicate.
CREATE INDEX jobs_start_by ON pulse.jobs (start_by)
    WHERE start_by IS NOT NULL AND COALESCE(finished_at, 'infinity') = 'infinity';
-- Decides races between submits of unique jobs. A started job keeps its entry for `waiting` until a
-- submit that meets it clears its unique_scope.
CREATE UNIQUE INDEX jobs_unique ON pulse.jobs (topic, unique_key, unique_scope)
    WHERE unique_scope IS NOT NULL AND finished_at IS NULL;
-- The claims, in the order of dispatch. Each queued job is in one of the two. topic_depths reads
-- next_run_at from the index alone.
CREATE INDEX jobs_claim ON pulse.jobs (topic, priority DESC, submitted_at, id) INCLUDE (next_run_at)
    WHERE queued AND tier IS NULL;
CREATE INDEX jobs_lane ON pulse.jobs (topic, lane, tier DESC, rank_at, id) INCLUDE (next_run_at)
    WHERE queued AND tier IS NOT NULL;
-- list_jobs of a lane.
CREATE INDEX jobs_of_lane ON pulse.jobs (topic, lane, submitted_at DESC, id DESC) WHERE lane > '';

-- The statement that completes a job moves it from pulse.jobs to the partition of the current day.
-- Retention drops whole partitions. Canceled and dead-lettered jobs stay in pulse.jobs: an operator
-- may retry them. A completion deletes its row: a foreign key on pulse.jobs would refuse this, or
-- delete other rows. ADR-0057
CREATE TABLE pulse.completed_jobs (
    -- The columns of pulse.jobs that a completed job keeps. The status is not stored: it is
    -- COMPLETED.
    id              uuid        NOT NULL,
    submitted_at    timestamptz NOT NULL,
    next_run_at     timestamptz NOT NULL,
    started_at      timestamptz,
    finished_at     timestamptz NOT NULL,
    priority        integer     NOT NULL,
    attempts        integer     NOT NULL,
    run             integer     NOT NULL DEFAULT 0,
    max_attempts    integer     NOT NULL,
    delivered       boolean     NOT NULL,
    kept            boolean     NOT NULL DEFAULT false,  -- for longer than its day, by the policy of its topic. ADR-0058
    topic           text        NOT NULL,
    payload         bytea       NOT NULL,
    finished_by     text,
    idempotency_key text,
    schedule_id     uuid,
    last_error      text,
    metadata        jsonb,
    history         jsonb,
    snoozes         integer,
    crashes         integer,
    unique_key      text,
    lane            text,
    result          bytea,
    suspensions     integer,
    timeline        jsonb                     -- the steps without their values
) PARTITION BY LIST (kept);
-- A day is dropped as a whole. Jobs whose topic is kept for longer move to completed_jobs_kept
-- before. ADR-0058
CREATE TABLE pulse.completed_jobs_by_day PARTITION OF pulse.completed_jobs FOR VALUES IN (false)
    PARTITION BY RANGE (finished_at);
CREATE TABLE pulse.completed_jobs_kept PARTITION OF pulse.completed_jobs FOR VALUES IN (true);
-- Jobs that finish on a day without a partition.
CREATE TABLE pulse.completed_jobs_default PARTITION OF pulse.completed_jobs_by_day DEFAULT;

-- get_job, completed_among. An index over partitions by another column cannot be unique;
-- completed_among prevents duplicates.
CREATE INDEX completed_jobs_id ON pulse.completed_jobs (id);
-- find_existing, completed_among.
CREATE INDEX completed_jobs_key ON pulse.completed_jobs (topic, idempotency_key) WHERE idempotency_key IS NOT NULL;
-- list_jobs, delete_expired. Counting the jobs of a topic reads the index alone. The condition
-- holds for every row, and only a statement that has it too can use the index: a partition looks
-- empty to the planner when its day begins, so it would use this index for a look-up by id too, and
-- walk it all day.
CREATE INDEX completed_jobs_newest ON pulse.completed_jobs (submitted_at DESC, id DESC) INCLUDE (topic)
    WHERE topic >= '';
CREATE INDEX completed_jobs_schedule ON pulse.completed_jobs (schedule_id, submitted_at DESC, id DESC)
    WHERE schedule_id IS NOT NULL;

-- Today and the next two days, in UTC. Servers make later days. A publication for all tables
-- refuses to delete rows of a table without a replica identity, and a partition does not inherit
-- it. FULL: a key would add an index to each completion.
DO $$
DECLARE
    today constant timestamptz := date_trunc('day', now() AT TIME ZONE 'UTC') AT TIME ZONE 'UTC';
    part  regclass;
BEGIN
    FOR ahead IN 0..2 LOOP
        EXECUTE format(
            'CREATE TABLE pulse.%I PARTITION OF pulse.completed_jobs_by_day FOR VALUES FROM (%L) TO (%L)',
            'completed_jobs_' || to_char((today + ahead * interval '24 hours') AT TIME ZONE 'UTC', 'YYYYMMDD'),
            today + ahead * interval '24 hours', today + (ahead + 1) * interval '24 hours');
    END LOOP;
    FOR part IN SELECT tree.relid FROM pg_partition_tree('pulse.completed_jobs') AS tree LOOP
        EXECUTE format('ALTER TABLE %s REPLICA IDENTITY FULL', part);
    END LOOP;
END $$;

-- Every job, from both tables.
CREATE VIEW pulse.all_jobs AS
SELECT job.id, job.submitted_at, job.next_run_at, job.lease_until, job.started_at, job.finished_at, job.priority,
       job.attempts, job.run, job.max_attempts, job.queued, job.queued AND job.locked_by IS NULL AS ready, job.delivered,
       job.status, job.topic, job.payload, job.locked_by, job.finished_by, job.idempotency_key, job.schedule_id,
       job.last_error, job.metadata, job.history, job.error_group,
       job.snoozes, job.crashes, job.start_by, job.unique_key, job.unique_scope, job.lane, job.result,
       job.progress, job.steps, job.suspensions, job.waits_for
FROM pulse.jobs AS job
UNION ALL
SELECT done.id, done.submitted_at, done.next_run_at, NULL::timestamptz, done.started_at, done.finished_at, done.priority,
       done.attempts, done.run, done.max_attempts, false, false, done.delivered,
       'COMPLETED'::text, done.topic, done.payload, NULL::text, done.finished_by, done.idempotency_key, done.schedule_id,
       done.last_error, done.metadata, done.history, ''::text,
       done.snoozes, done.crashes, NULL::timestamptz, done.unique_key, NULL::text, done.lane, done.result,
       NULL::jsonb, jsonb_array_length(done.timeline), done.suspensions, NULL::text
FROM pulse.completed_jobs AS done;

-- Finds leases: each statement that claims jobs writes one row with their ids. A fresh row is read
-- at check_at, 2 s after the claim. Settled rows replace it for the jobs that still run;
-- most have ended by then. Settled rows are read when the leases end. So the table has the claims
-- of about three seconds, and longer runs. Heartbeats do not touch it. ADR-0056
CREATE TABLE pulse.lease_checks (
    check_at timestamptz NOT NULL,            -- no later than the first end of a lease
    settled  boolean     NOT NULL,
    ids      uuid[]      NOT NULL
) WITH (
    -- All rows are deleted soon: the table has few live rows and many dead ones.
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 500,
    autovacuum_vacuum_insert_scale_factor = 10,
    autovacuum_vacuum_cost_delay = 0,
    toast.autovacuum_vacuum_scale_factor = 0.02,
    toast.autovacuum_vacuum_threshold = 2000,
    toast.autovacuum_vacuum_insert_scale_factor = 10,
    toast.autovacuum_vacuum_cost_delay = 0
);
-- A thousand ids take 16 kB. Compressing them would cost more than the rest of the statement.
ALTER TABLE pulse.lease_checks ALTER COLUMN ids SET STORAGE EXTERNAL;
-- A key would cost every claim an index entry. FULL costs nothing below wal_level = logical; there a deletion logs the row, 16
-- bytes a job.
ALTER TABLE pulse.lease_checks REPLICA IDENTITY FULL;
CREATE INDEX lease_checks_due ON pulse.lease_checks (settled, check_at);

-- Workers whose heartbeats reached a server but could not be stored: a locked row, a full disk, a
-- slow statement. No server reaps their jobs until the time that the heartbeat would have set.
-- ADR-0042
CREATE TABLE pulse.spared_workers (
    worker_id    text        NOT NULL,
    spared_until timestamptz NOT NULL,
    CONSTRAINT spared_workers_pkey PRIMARY KEY (worker_id)
);

-- Throttled keys: the last stored job, which may be deleted, and until when no other is stored.
-- ADR-0066
CREATE TABLE pulse.unique_periods (
    topic  text        NOT NULL,
    key    text        NOT NULL,
    until  timestamptz NOT NULL,
    job_id uuid        NOT NULL,
    CONSTRAINT unique_periods_pkey PRIMARY KEY (topic, key)
) WITH (
    -- A key in frequent use updates its row in place, with room on the page.
    fillfactor = 50,
    autovacuum_vacuum_scale_factor = 0.02,
    autovacuum_vacuum_threshold = 1000
);
-- forget_periods.
CREATE INDEX unique_periods_over ON pulse.unique_periods (until);

-- Results of a handler's steps, kept for its next attempt. No foreign key on pulse.jobs:
-- completions delete its rows. ADR-0069
CREATE TABLE pulse.job_steps (
    job_id     uuid        NOT NULL,
    name       text        NOT NULL,
    position   integer     NOT NULL,          -- the order of storing
    attempt    integer     NOT NULL,          -- the attempt that stored it, or waits for it
    started_at timestamptz NOT NULL,
    stored_at  timestamptz,                   -- NULL: the signal has not arrived
    until      timestamptz,                   -- when a sleep or a wait ends. NULL: no end, or no wait
    signal_id  uuid,                          -- the signal that was taken
    kind       text        NOT NULL,
    value      bytea,                         -- NULL: a sleep, or a signal that did not arrive in time
    CONSTRAINT job_steps_pkey PRIMARY KEY (job_id, name),
    CONSTRAINT job_steps_kind_is_known CHECK (kind IN ('step', 'sleep', 'signal'))
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- Signals to jobs. A taken signal stays while its job is unfinished: a sender may repeat it.
CREATE TABLE pulse.job_signals (
    id       uuid        NOT NULL,            -- made by the sender
    number   bigint      GENERATED ALWAYS AS IDENTITY,
    job_id   uuid        NOT NULL,
    name     text        NOT NULL,
    value    bytea       NOT NULL,
    sent_at  timestamptz NOT NULL DEFAULT clock_timestamp(),
    taken_at timestamptz,
    CONSTRAINT job_signals_pkey PRIMARY KEY (id)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
-- take_signal, in the order of arrival.
CREATE INDEX job_signals_next ON pulse.job_signals (job_id, name, number);

-- Schedules: mutable definitions, each with one cursor.
CREATE TABLE pulse.schedules (
    id           uuid        NOT NULL,
    next_run_at  timestamptz NOT NULL,        -- the cursor: the occurrence that fires next
    last_run_at  timestamptz,                 -- the occurrence that fired last
    created_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    updated_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    run_at       timestamptz,                 -- kind once
    interval_ms  bigint,                      -- kind interval
    priority     integer     NOT NULL DEFAULT 0,
    -- The attempts of its jobs. With attempts_by_policy, the policy of the topic at the time of the
    -- fire comes first, and the number is only a default: of the caller's code for the topic with
    -- max_attempts_is_default, otherwise of the settings.
    max_attempts integer     NOT NULL,
    attempts_by_policy      boolean NOT NULL DEFAULT false,
    max_attempts_is_default boolean NOT NULL DEFAULT false,
    paused       boolean     NOT NULL DEFAULT false,
    kind         text        NOT NULL,
    cron_expr    text,                        -- kind cron
    time_zone    text        NOT NULL DEFAULT 'UTC',
    catch_up     text        NOT NULL DEFAULT 'one',
    name         text,
    topic        text        NOT NULL,
    payload      bytea       NOT NULL,
    metadata     jsonb,
    start_within interval,                    -- how long after its occurrence a job may start; NULL: no limit
    overlap      text        NOT NULL DEFAULT 'allow',  -- if it has an unfinished job: allow, skip, queue
    queued_for   timestamptz,                 -- the occurrence that waits for that job to finish
    declared_by  text,                        -- the user who declared it; no other may replace it. NULL: made without users
    application  text,                        -- the application whose code declares it; NULL: none
    vanished_at  timestamptz,                 -- since when that code no longer declares it

    CONSTRAINT schedules_pkey PRIMARY KEY (id),
    CONSTRAINT schedules_kind_has_its_one_spec CHECK (
        (kind = 'once' AND run_at IS NOT NULL AND interval_ms IS NULL AND cron_expr IS NULL)
        OR (kind = 'interval' AND run_at IS NULL AND interval_ms IS NOT NULL AND cron_expr IS NULL)
        OR (kind = 'cron' AND run_at IS NULL AND interval_ms IS NULL AND cron_expr IS NOT NULL)
    ),
    CONSTRAINT schedules_catch_up_is_known CHECK (catch_up IN ('one', 'skip', 'all')),
    CONSTRAINT schedules_interval_is_positive CHECK (interval_ms > 0)
);
-- due_schedules: one short index read per tick, however many schedules wait.
CREATE INDEX schedules_due ON pulse.schedules (next_run_at) WHERE NOT paused;
-- create_schedule: one schedule per name, so that an application may declare its schedules at every start.
CREATE UNIQUE INDEX schedules_name ON pulse.schedules (name) WHERE name IS NOT NULL;
-- list_schedules.
CREATE INDEX schedules_oldest ON pulse.schedules (created_at, id);
-- declare_schedules: few of a hundred thousand schedules may be declared by code.
CREATE INDEX schedules_application ON pulse.schedules (application) WHERE application IS NOT NULL;
-- queued_schedules.
CREATE INDEX schedules_queued ON pulse.schedules (queued_for) WHERE queued_for IS NOT NULL;

-- The switch for everything: one row, for ever.
CREATE TABLE pulse.dispatch_control (
    id        integer     PRIMARY KEY DEFAULT 1 CONSTRAINT dispatch_control_is_one_row CHECK (id = 1),
    paused    boolean     NOT NULL DEFAULT false,
    reason    text        NOT NULL DEFAULT '',
    paused_at timestamptz,
    paused_by text        NOT NULL DEFAULT '',  -- empty: an open server asks for no user
    -- The settings of the server that started last, for the functions of the interface. ADR-0075
    max_attempts     integer NOT NULL DEFAULT 25,
    max_result_bytes integer NOT NULL DEFAULT 65536,
    CONSTRAINT dispatch_control_tells_since_when CHECK (paused = (paused_at IS NOT NULL))
);
INSERT INTO pulse.dispatch_control (id) VALUES (1);

-- Jobs that the functions of the interface stored or completed: a row for each call, in the
-- transaction of its caller. It becomes visible with the commit, however late. Servers take the
-- rows, wake dispatch, and notify watchers and waiters. ADR-0075
CREATE TABLE pulse.arrivals (
    oldest      timestamptz NOT NULL,         -- no job of the row was submitted before
    ran_seconds float8,                       -- of the attempt that completed the job. NULL: the jobs are new
    priority    integer,                      -- of the jobs that are ready. NULL: none is
    jobs        integer     NOT NULL,
    attempt     integer,                      -- this and the next two: the claim that completed the job
    run         integer,
    worker_id   text,
    topic       text        NOT NULL,
    ids         uuid[]                        -- the first of many
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_scale_factor = 10);
ALTER TABLE pulse.arrivals REPLICA IDENTITY FULL;

-- Topics that plain claims and hand-overs skip: an operator has paused them, or they have limits,
-- or both.
CREATE TABLE pulse.barred_topics (
    topic     text        PRIMARY KEY,
    paused    boolean     NOT NULL DEFAULT true,
    limited   boolean     NOT NULL DEFAULT false,  -- has a flow policy: it is claimed by claim_limited alone
    reason    text        NOT NULL DEFAULT '',  -- of the pause
    paused_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    paused_by text        NOT NULL DEFAULT '',
    CONSTRAINT barred_topics_has_a_cause CHECK (paused OR limited)
);

-- Limits, rates, lanes and turns, for topics that have a flow policy. A topic with a flow policy is
-- limited. Its claims pass a turnstile, one at a time in the whole cluster. Turnstiles and lanes
-- are written, and notices removed, only under the lock of the turnstile. All other statements
-- append notices, which waits for no lock. So there is one lock, and claims take it first. ADR-0064

-- One turnstile for each limited topic without a pool, under the name of the topic, and one for
-- each pool.
CREATE TABLE pulse.turnstiles (
    name         text        PRIMARY KEY,
    max_running  integer     CONSTRAINT turnstiles_max_running_is_positive CHECK (max_running > 0),
    starts       integer     CONSTRAINT turnstiles_starts_is_positive CHECK (starts > 0),  -- at most, in any period
    period       interval,                    -- without starts: the period of the last rate, for its slices
    held         integer     NOT NULL DEFAULT 0,      -- running jobs that are counted here, and places in notices
    slice        bigint      NOT NULL DEFAULT 0,      -- the number of the last entry in slices
    slices       integer[]   NOT NULL DEFAULT '{}',   -- starts of the period, in 21 slices
    closed_until timestamptz,                 -- no start before then
    operator_until timestamptz,               -- closed_until by operators; workers cannot end it
    wanted       integer     NOT NULL DEFAULT 0,      -- slots that could have started a job at once, but for the limit
    wanted_until timestamptz,                 -- until when room is reserved for them
    CONSTRAINT turnstiles_rate_is_whole CHECK (starts IS NULL OR period IS NOT NULL)
) WITH (fillfactor = 20, autovacuum_vacuum_scale_factor = 0, autovacuum_vacuum_threshold = 100);

-- The policy in force for each limited topic, made from overrides and declarations.
CREATE TABLE pulse.flow_policies (
    topic       text     PRIMARY KEY,
    turnstile   text     NOT NULL,
    laned       boolean  NOT NULL DEFAULT false,      -- jobs stand in lanes, which take turns
    per_lane    integer  CONSTRAINT flow_policies_per_lane_is_positive CHECK (per_lane > 0),
    shrinks     boolean  NOT NULL DEFAULT false,      -- a lane may have more places in use than its limit
    lane_starts integer  CONSTRAINT flow_policies_lane_starts_is_positive CHECK (lane_starts > 0),
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
    -- State that the topic takes along to another turnstile. Slices: the topic's own starts, in
    -- slices of the pool's length.
    slice        bigint,
    slices       integer[],
    closed_until timestamptz,                 -- a hold of its previous turnstile
    CONSTRAINT flow_policies_lane_rate_is_whole CHECK (lane_starts IS NULL OR lane_period IS NOT NULL),
    CONSTRAINT flow_policies_lanes_are_laned
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
    max_running integer     CONSTRAINT lanes_max_running_is_positive CHECK (max_running > 0),  -- instead of per_lane
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
CREATE TABLE pulse.flow_notices (
    turnstile text    NOT NULL,
    topic     text    NOT NULL,
    lanes     text[],                         -- lanes with new work; NULL: runs have ended
    ended     integer NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000, autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_scale_factor = 10);
ALTER TABLE pulse.flow_notices REPLICA IDENTITY FULL;
CREATE INDEX flow_notices_next ON pulse.flow_notices (turnstile);

-- The running jobs that are counted at a turnstile, by the lease checks. ADR-0056
CREATE VIEW pulse.limited_runs AS
SELECT job.id, job.topic, job.turnstile, job.lane, job.lane_held
FROM pulse.jobs AS job
WHERE job.locked_by IS NOT NULL AND job.turnstile IS NOT NULL
  AND job.id = ANY(ARRAY(SELECT unnest(lease_check.ids) FROM pulse.lease_checks AS lease_check));

-- Limits that operators have set. Entries, here and in declarations: limit, rate (starts, period),
-- pool, per_lane, lane_rate, turns, ordered, aging; durations in seconds. An empty object: an
-- operator has reset all entries. The row is deleted once the policy in force follows. ADR-0065
CREATE TABLE pulse.flow_overrides (
    topic     text        NOT NULL,
    overrides jsonb       NOT NULL,
    set_by    text        NOT NULL DEFAULT '',
    set_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT flow_overrides_pkey PRIMARY KEY (topic),
    CONSTRAINT flow_overrides_are_objects CHECK (jsonb_typeof(overrides) = 'object')
);

-- One row for each worker and topic with limits. A declaration counts while its worker is
-- connected, and for a while after.
CREATE TABLE pulse.flow_declarations (
    topic         text        NOT NULL,
    worker_id     text        NOT NULL,
    declared      jsonb       NOT NULL,
    declared_at   timestamptz NOT NULL DEFAULT clock_timestamp(),
    missing_since timestamptz,                -- the worker is not connected; NULL: it is, or has just declared this
    CONSTRAINT flow_declarations_pkey PRIMARY KEY (topic, worker_id),
    CONSTRAINT flow_declarations_are_objects CHECK (jsonb_typeof(declared) = 'object')
) WITH (autovacuum_vacuum_scale_factor = 0.1, autovacuum_vacuum_threshold = 100);

-- How long an operator keeps the jobs of a topic. NULL: the duration in the settings of the server.
-- Forever is an interval of 365,000 days. ADR-0058
CREATE TABLE pulse.topic_policies (
    topic              text        NOT NULL,
    completed_kept     interval,
    canceled_kept      interval,
    dead_lettered_kept interval,
    set_by             text        NOT NULL DEFAULT '',
    set_at             timestamptz NOT NULL DEFAULT clock_timestamp(),
    CONSTRAINT topic_policies_pkey PRIMARY KEY (topic),
    CONSTRAINT topic_policies_kept CHECK (
        LEAST(completed_kept, canceled_kept, dead_lettered_kept) >= interval '1 minute'
        AND GREATEST(completed_kept, canceled_kept, dead_lettered_kept) <= interval '365000 days'
    )
);

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
-- together. Each server adds its own counts every few seconds; no query counts jobs.
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
    CONSTRAINT topic_minutes_pkey PRIMARY KEY (minute, topic)
);

-- The servers, each with its connected workers. A row that is not refreshed belongs to a dead
-- server.
CREATE TABLE pulse.servers (
    id           uuid        NOT NULL,
    name         text        NOT NULL,
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

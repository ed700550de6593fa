-- The schema: jobs, completed jobs, leases, keys, steps, schedules, pauses, limits, policies, and
-- statistics for operators. Functions are in functions/ of each room, a file each.

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
    pool            text,                     -- where the last attempt is counted while it runs; NULL: nowhere
    lane_held       text,                     -- the lane of the last attempt's place; NULL: its lane has no limit
    -- Only of the few completed jobs that stay in this table. ADR-0067
    result          bytea,
    -- fraction, text, cursor (JSON as a text: jsonb would change its numbers), number, attempt, reported_at, since,
    -- since_fraction. docs/figures.md#progress
    progress        jsonb,
    -- Steps. ADR-0069
    steps           integer,                  -- rows in job_steps. NULL: no steps and no signals
    step_bytes      integer,                  -- of the steps
    signals         integer,                  -- received since the submit or the last fresh start. NULL: none
    signal_bytes    integer,                  -- of the signals
    suspensions     integer,                  -- runs that a sleep or a signal suspended; they cost no attempt
    waits_for       text,                     -- signals that end its wait, one per line; '': sleeps. Until an attempt ends otherwise
    -- Workflows. ADR-0077
    workflow_id     uuid,
    held            boolean,                  -- true: it waits for jobs of its workflow, or was canceled while it did
    -- Of the last action of an operator: its id as `action`, how it left the job, and the values that
    -- it changed as `was`. docs/figures.md#undo
    undo            jsonb,

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
-- locked_by, lease_until, started_at, delivered, pool, lane_held) must not be in the key, the
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
-- list_jobs: the few completed jobs that stay in this table, without a walk over all unsuccessful ones.
CREATE INDEX jobs_completed ON pulse.jobs (submitted_at DESC, id DESC)
    WHERE finished_at IS NOT NULL AND ended_as IS NULL;
-- list_jobs and topic_depths: jobs that ended without success.
CREATE INDEX jobs_unsuccessful ON pulse.jobs (ended_as, submitted_at DESC, id DESC) INCLUDE (topic)
    WHERE ended_as IS NOT NULL;
-- list_dead_letter_groups reads only this index. list_jobs finds a group's jobs in it, in the order
-- of a page. The second condition holds for every row, and only a statement that has it too can use
-- the index: otherwise the planner would use it for the dead letters of a topic, and sort them all
-- to show a page.
CREATE INDEX jobs_dead_letters ON pulse.jobs (error_group, topic, submitted_at DESC, id DESC) INCLUDE (finished_at)
    WHERE ended_as = 'DEAD_LETTERED' AND error_group >= '';
-- list_jobs by the text of the error reads only jobs that have one.
CREATE INDEX jobs_errors ON pulse.jobs (submitted_at DESC, id DESC) WHERE last_error IS NOT NULL;
-- promote_due and promote_in_turn. The two predicates mean the same in different words, and
-- topic >= '' holds for every row: each statement can use only its own index. Otherwise, with
-- statistics from a time when little waited, the planner uses jobs_due for one topic and walks the
-- jobs of all topics, or uses the other index for all due jobs and sorts them.
CREATE INDEX jobs_due ON pulse.jobs (next_run_at) INCLUDE (topic)
    WHERE NOT queued AND finished_at IS NULL AND held IS NULL;
CREATE INDEX jobs_due_in_turn ON pulse.jobs (topic, next_run_at)
    WHERE NOT queued AND COALESCE(finished_at, 'infinity') = 'infinity' AND topic >= '' AND held IS NULL;
-- topic_depths: jobs that wait for other jobs of their workflow.
CREATE INDEX jobs_held ON pulse.jobs (topic) WHERE held AND finished_at IS NULL;
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
-- jobs_of_action. The second condition holds for every row: undo_jobs lacks it, and uses the primary
-- key.
CREATE INDEX jobs_undo ON pulse.jobs ((undo ->> 'action'), id) WHERE undo IS NOT NULL AND topic >= '';

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
    kept            boolean     NOT NULL DEFAULT false,  -- for longer than its day, by the policy of its topic. docs/figures.md#retention
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
    timeline        jsonb,                    -- the steps without their values
    workflow_id     uuid
) PARTITION BY LIST (kept);
-- A day is dropped as a whole. Jobs whose topic is kept for longer move to completed_jobs_kept
-- before. docs/figures.md#retention
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
CREATE INDEX completed_jobs_errors ON pulse.completed_jobs (submitted_at DESC, id DESC) WHERE last_error IS NOT NULL;
CREATE INDEX completed_jobs_of_lane ON pulse.completed_jobs (topic, lane, submitted_at DESC, id DESC) WHERE lane > '';

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
       job.progress, job.steps, job.suspensions, job.waits_for, job.workflow_id, job.held
FROM pulse.jobs AS job
UNION ALL
SELECT done.id, done.submitted_at, done.next_run_at, NULL::timestamptz, done.started_at, done.finished_at, done.priority,
       done.attempts, done.run, done.max_attempts, false, false, done.delivered,
       'COMPLETED'::text, done.topic, done.payload, NULL::text, done.finished_by, done.idempotency_key, done.schedule_id,
       done.last_error, done.metadata, done.history, ''::text,
       done.snoozes, done.crashes, NULL::timestamptz, done.unique_key, NULL::text, done.lane, done.result,
       NULL::jsonb, jsonb_array_length(done.timeline), done.suspensions, NULL::text, done.workflow_id, NULL::boolean
FROM pulse.completed_jobs AS done;

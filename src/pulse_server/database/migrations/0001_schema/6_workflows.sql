-- Workflows: jobs that wait for jobs. ADR-0077
--
-- The statement that ends a job of a workflow, or brings it back, writes a notice in the same
-- commit. A settler takes notices with the row of the workflow locked, and compares the children
-- with their parents as they stand now. A notice only names the jobs to look at: early, late or
-- twice, it does no harm. Statements that end jobs read and lock nothing of a workflow.

CREATE TABLE pulse.workflows (
    id           uuid        NOT NULL,        -- made by the caller: a repeated submit finds it
    submitted_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    finished_at  timestamptz,                 -- no job of it is unfinished
    canceled_at  timestamptz,                 -- as a whole: no further job becomes ready
    schedule_id  uuid,                        -- of the schedule that started it
    jobs         integer     NOT NULL,
    edges        integer     NOT NULL,
    unfinished   integer     NOT NULL,
    succeeded    integer     NOT NULL DEFAULT 0,
    failed       integer     NOT NULL DEFAULT 0,  -- dead-lettered
    canceled     integer     NOT NULL DEFAULT 0,
    skipped      integer     NOT NULL DEFAULT 0,  -- not needed
    name         text        NOT NULL,
    digest       bytea       NOT NULL,        -- of the submit: distinguishes a repeat from another workflow
    CONSTRAINT workflows_pkey PRIMARY KEY (id),
    CONSTRAINT workflows_counts_add_up CHECK (jobs = unfinished + succeeded + failed + canceled + skipped)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500);
-- list_workflows. The condition holds for every row, and only a statement that has it too can use the
-- index: with statistics of an empty table the planner would use it for a look-up by id, and walk it.
CREATE INDEX workflows_newest ON pulse.workflows (submitted_at DESC, id DESC) WHERE name >= '';
-- delete_workflows, keep_results: the finished ones in order, and the few others.
CREATE INDEX workflows_finished ON pulse.workflows (finished_at);

-- A row for each job, for as long as the workflow is kept. The job itself may be in either table of
-- jobs, or deleted.
--
-- Here and for edges, one index alone can serve each look-up: by job, by name, by workflow in the order
-- of numbers; children of a job, parents of a job. Of two indexes that begin with the workflow, the
-- planner would take any while its statistics are of an empty table: one expected row costs the same by
-- half of a key, and each look-up would walk all jobs of the workflow.
CREATE TABLE pulse.workflow_jobs (
    job_id       uuid        NOT NULL,
    workflow_id  uuid        NOT NULL,
    run_at       timestamptz,                 -- this and the next two count from when it becomes ready
    delay        interval,
    start_within interval,
    number       integer     NOT NULL,        -- its place in the workflow
    unended      integer     NOT NULL,        -- parents whose end has not been counted
    failed       integer     NOT NULL DEFAULT 0,  -- parents that were dead-lettered or canceled
    skipped      integer     NOT NULL DEFAULT 0,  -- parents that were not needed
    condition    text        NOT NULL,
    dropped      text,                        -- canceled by the workflow: dropped, skipped
    outcome      text,                        -- as its children have counted it. NULL: it has not ended
    name         text        NOT NULL,
    topic        text        NOT NULL,
    CONSTRAINT workflow_jobs_pkey PRIMARY KEY (job_id),
    CONSTRAINT workflow_jobs_number UNIQUE (workflow_id, number),
    CONSTRAINT workflow_jobs_condition_is_known CHECK (condition IN ('succeeded', 'failed', 'always')),
    CONSTRAINT workflow_jobs_counts_are_possible CHECK (unended >= 0 AND failed >= 0 AND skipped >= 0)
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
-- A handler that runs again adds nothing twice. The fragment named_node looks names up.
CREATE UNIQUE INDEX workflow_jobs_name ON pulse.workflow_jobs ((workflow_id::text || name) COLLATE "C");

CREATE TABLE pulse.workflow_edges (
    parent uuid    NOT NULL,
    child  uuid    NOT NULL,
    number integer NOT NULL,                  -- of the parent: its children are read by pages of parents
    CONSTRAINT workflow_edges_pkey PRIMARY KEY (child, number)
);
CREATE INDEX workflow_edges_parent ON pulse.workflow_edges (parent);
-- If one large workflow fills the tables, statistics would say that each job has thousands of edges.
ALTER TABLE pulse.workflow_edges ALTER COLUMN parent SET STATISTICS 0, ALTER COLUMN child SET STATISTICS 0,
    ALTER COLUMN number SET STATISTICS 0;
ALTER TABLE pulse.workflow_jobs ALTER COLUMN workflow_id SET STATISTICS 0, ALTER COLUMN number SET STATISTICS 0,
    ALTER COLUMN name SET STATISTICS 0;

-- Where settlers have to look. All rows are deleted soon.
CREATE TABLE pulse.workflow_notices (
    workflow_id uuid   NOT NULL,
    job_ids     uuid[] NOT NULL,
    status      text   NOT NULL               -- COMPLETED is final. Any other status is looked up
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 500, autovacuum_vacuum_cost_delay = 0,
        autovacuum_vacuum_insert_scale_factor = 10);
ALTER TABLE pulse.workflow_notices REPLICA IDENTITY FULL;
CREATE INDEX workflow_notices_next ON pulse.workflow_notices (workflow_id);
ALTER TABLE pulse.workflow_notices ALTER COLUMN workflow_id SET STATISTICS 0;

-- A job ended without success, completed in place, or was brought back. Claims, heartbeats and
-- releases do not set finished_at: the trigger does not exist for them. The text of the function is
-- in workflows/functions.
CREATE FUNCTION pulse.notice_workflow_v1() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RETURN NULL; END $$;
CREATE TRIGGER jobs_end_in_workflow AFTER UPDATE OF finished_at ON pulse.jobs FOR EACH ROW
    WHEN (NEW.workflow_id IS NOT NULL AND OLD.finished_at IS DISTINCT FROM NEW.finished_at)
    EXECUTE FUNCTION pulse.notice_workflow_v1();

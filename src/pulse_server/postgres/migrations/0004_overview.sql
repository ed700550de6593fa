-- What operators look at: jobs by state without walking the finished ones, statistics by the minute, and who is
-- connected where. In one transaction, as 0003: writes wait while the indexes are built, about a second for a
-- million jobs. A server of the release before works on, but lists and deletes more slowly until it is replaced.

-- list_jobs, count_jobs, delete_expired: two indexes instead of one over all rows. Together they cost what the one
-- did (each row is in exactly one of them), but a question about live jobs no longer steps over a million
-- finished ones, and retention no longer steps over the live ones.
CREATE INDEX jobs_live ON pulse.jobs (submitted_at DESC, id DESC) WHERE finished_at IS NULL;
CREATE INDEX jobs_finished ON pulse.jobs (submitted_at DESC, id DESC) WHERE finished_at IS NOT NULL;
DROP INDEX pulse.jobs_newest;

-- topic_depths: the topic rides along, so that counting reads the index alone. Rows enter these two only when
-- they are delayed, fail or are called off.
CREATE INDEX jobs_due_by_topic ON pulse.jobs (next_run_at) INCLUDE (topic)
    WHERE NOT ready AND status IN ('PENDING', 'RETRYING');
DROP INDEX pulse.jobs_due;
ALTER INDEX pulse.jobs_due_by_topic RENAME TO jobs_due;
CREATE INDEX jobs_unsuccessful_by_topic ON pulse.jobs (status, submitted_at DESC, id DESC) INCLUDE (topic)
    WHERE status IN ('DEAD_LETTERED', 'CANCELED');
DROP INDEX pulse.jobs_unsuccessful;
ALTER INDEX pulse.jobs_unsuccessful_by_topic RENAME TO jobs_unsuccessful;

-- What happened, by minute and topic. Each server adds what it did every few seconds; nobody counts jobs.
CREATE TABLE pulse.topic_minutes (
    minute        timestamptz NOT NULL,
    topic         text        NOT NULL,
    submitted     bigint      NOT NULL DEFAULT 0,
    completed     bigint      NOT NULL DEFAULT 0,
    failed        bigint      NOT NULL DEFAULT 0,
    retried       bigint      NOT NULL DEFAULT 0,
    dead_lettered bigint      NOT NULL DEFAULT 0,
    canceled      bigint      NOT NULL DEFAULT 0,
    CONSTRAINT topic_minutes_pkey PRIMARY KEY (minute, topic)
);

-- The servers, each with the workers that are connected to it. A row that is not refreshed is a server that died.
CREATE TABLE pulse.servers (
    id         uuid        NOT NULL,
    name       text        NOT NULL,
    started_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    seen_at    timestamptz NOT NULL DEFAULT clock_timestamp(),
    workers    jsonb       NOT NULL DEFAULT '[]',
    CONSTRAINT servers_pkey PRIMARY KEY (id)
);

-- How long jobs waited and ran, by the minute, from which percentiles are told.

-- {"bucket": count}, the buckets of domain/latencies.py. A topic's jobs are mostly alike: of 104 buckets a minute
-- fills about ten, and only these are stored, 190 bytes instead of 850 for an array of all. A table with a row for each
-- bucket would have twenty times the rows of this one, each with an index entry. Several servers add to a minute in
-- one upsert, which joins the two objects and sums by key. The defaults are constants: the table is not rewritten, and
-- a server of the release before adds to it as it did.
ALTER TABLE pulse.topic_minutes
    ADD COLUMN wait_buckets jsonb NOT NULL DEFAULT '{}',
    ADD COLUMN run_buckets  jsonb NOT NULL DEFAULT '{}';

-- From now on the servers keep one row more for each minute: all topics together, under the empty name, which no topic
-- can have. A day over all topics is 1,440 rows then, however many topics there are. Here for what was kept so far.
INSERT INTO pulse.topic_minutes
    (minute, topic, submitted, completed, failed, retried, dead_lettered, canceled)
SELECT stats.minute, '', sum(stats.submitted), sum(stats.completed), sum(stats.failed), sum(stats.retried),
       sum(stats.dead_lettered), sum(stats.canceled)
FROM pulse.topic_minutes AS stats
GROUP BY stats.minute
ON CONFLICT DO NOTHING;

-- Dead letters in groups that died of the same error. In one transaction, as 0003: writes wait while the index is
-- built, and the table is read once for it. The column costs no rewrite. A server of the release before works on;
-- what it dead-letters has no group.

-- Set when a job is dead-lettered, empty otherwise, and of those that died before there were groups.
ALTER TABLE pulse.jobs ADD COLUMN error_group text NOT NULL DEFAULT '';

-- list_dead_letter_groups reads this index alone; list_jobs finds a group's jobs in it, in the order of a page. No
-- update that was HOT stops being so: whoever writes error_group or finished_at changes the status too.
--
-- The second condition holds for every row. Only a statement that says it as well may use the index: else the planner
-- would take it for the dead letters of a topic, and sort them all to show a page.
CREATE INDEX jobs_dead_letters ON pulse.jobs (error_group, topic, submitted_at DESC, id DESC) INCLUDE (finished_at)
    WHERE status = 'DEAD_LETTERED' AND error_group >= '';

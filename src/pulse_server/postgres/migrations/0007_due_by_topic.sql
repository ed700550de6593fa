-- Topics take turns in promotion. In one transaction, as 0003: writes wait while the index is built, about a second for
-- a million delayed jobs. A server of the release before works on as it did.

-- promote_in_turn: the topics that have jobs waiting for their time, and of each the ones that are due first. Rows
-- enter it only when they are delayed or fail.
--
-- The condition means what that of jobs_due means, in other words, and topic >= '' holds for every row: a statement can
-- use the one or the other, never both. Else the planner, with statistics of a time when little waited, takes jobs_due
-- for the jobs of one topic and walks those of all, or this one for all that is due, and sorts it.
CREATE INDEX jobs_due_in_turn ON pulse.jobs (topic, next_run_at)
    WHERE NOT ready AND status NOT IN ('RUNNING', 'COMPLETED', 'DEAD_LETTERED', 'CANCELED') AND topic >= '';

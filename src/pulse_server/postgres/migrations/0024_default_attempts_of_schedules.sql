-- With attempts_by_policy: max_attempts is what the code of the caller has for all jobs of the topic, and not the number of
-- the settings. Fires read only attempts_by_policy: those of servers of the release before have the same attempts. Such
-- servers do not write the column; without attempts_by_policy it means nothing. The column costs no rewrite.
ALTER TABLE pulse.schedules ADD COLUMN max_attempts_is_default boolean NOT NULL DEFAULT false;

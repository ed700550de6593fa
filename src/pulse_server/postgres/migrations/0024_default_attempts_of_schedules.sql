-- With attempts_by_policy: max_attempts is what the code of the caller has for all jobs of the topic, and not the number of
-- the settings. Fires read only attempts_by_policy: those of servers of the release before have the same attempts. Such
-- servers do not write the column; without attempts_by_policy it means nothing. The column costs no rewrite.
ALTER TABLE pulse.schedules ADD COLUMN max_attempts_is_default boolean NOT NULL DEFAULT false;

-- The functions of the schema look up names in pg_catalog alone, in whichever session they are called: another role may have
-- put an operator into public that fits better. SQL functions that name nothing of ours stay as they are. They compute a value
-- for each row, and one that has a setting is not inlined: 6 µs a row. Their names are looked up as those of the statement are.
DO $$
DECLARE
    function regprocedure;
BEGIN
    FOR function IN
        SELECT proc.oid
        FROM pg_proc AS proc
        JOIN pg_language AS language ON language.oid = proc.prolang
        WHERE proc.pronamespace = 'pulse'::regnamespace
          AND proc.proconfig IS NULL
          AND NOT (language.lanname = 'sql' AND proc.prosrc NOT LIKE '%pulse.%')
    LOOP
        EXECUTE format('ALTER FUNCTION %s SET search_path = pg_catalog, pg_temp', function);
    END LOOP;
END $$;

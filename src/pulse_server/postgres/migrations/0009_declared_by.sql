-- Who declared a schedule: only that user may replace it by another declaration. Null where it was made without users, or
-- by a server of the release before, which works on. The column costs no rewrite.
ALTER TABLE pulse.schedules ADD COLUMN declared_by text;

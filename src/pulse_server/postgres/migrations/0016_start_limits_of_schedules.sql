-- How long after its occurrence a job of the schedule may start; NULL: without a limit. Servers of the release before do
-- not know the column: their fires make jobs without a limit. The column costs no rewrite.
ALTER TABLE pulse.schedules ADD COLUMN start_within interval;

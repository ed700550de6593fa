-- Which application declares a schedule in its code, and since when its code no longer does. Null where none declares it.
-- `declared_by` is the user, who may replace it. The columns cost no rewrite.
ALTER TABLE pulse.schedules
    ADD COLUMN application text,
    ADD COLUMN vanished_at timestamptz;
-- declare_schedules: few of a hundred thousand schedules may be declared by code.
CREATE INDEX schedules_application ON pulse.schedules (application) WHERE application IS NOT NULL;

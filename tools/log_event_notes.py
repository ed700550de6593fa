"""When each event is logged: the part of docs/reference/log-events.md that the code does not have."""

from typing import NamedTuple


class Note(NamedTuple):
    """When the server logs the event. `computed` are fields that the generator cannot read from the code."""

    when: str
    computed: tuple[str, ...] = ()


_SERVING = ("auth", "tls")
_CERTIFICATE = ("subject", "names", "expires_at")
_CALLER = ("user", "role", "address")
_ATTEMPT = ("job_id", "topic", "worker_id", "attempt")
_HOLDER = (
    *("holder", "pid", "held_by", "database", "application", "user", "state"),
    *("held_seconds", "transactions", "dead_rows"),
)

NOTES: dict[str, dict[str, Note]] = {
    "Start and stop": {
        "serving": Note("calls are accepted", _SERVING),
        "process_serving": Note("one of several processes is up", _SERVING),
        "http_serving": Note("the HTTP port of several processes is open"),
        "readiness": Note("the answer of `/readyz` has changed"),
        "check_failed": Note("a check of `/readyz` met a bug"),
        "draining": Note("SIGTERM or SIGINT came"),
        "stopped": Note("an orderly exit"),
        "stopped_at_once": Note("a second signal came while draining"),
        "drain_took_too_long": Note("processes hung at the end and were killed"),
        "process_ended": Note("one of several processes died"),
        "process_restarted": Note("its replacement serves"),
        "postgres_started": Note("the embedded Postgres accepts connections at this address"),
        "postgres_ended": Note("the embedded Postgres ended, or nothing can connect; it is started again"),
        "postgres_restarted": Note("it accepts connections again, at the same address"),
        "postgres_start_failed": Note("it did not start, and another start follows"),
        "postgres_given_up": Note("it cannot be started again, so `pulsed` drains and ends"),
        "supervisor_gone": Note("the parent of several processes died; this process drains"),
        "setting_unknown": Note("a variable begins with PULSE_ but is no setting; misspelled?"),
        "failpoints_armed": Note(
            "a test makes this server fail on purpose (`PULSE_FAILPOINTS`); not for production"
        ),
    },
    "Access": {
        "open_to_everyone_who_can_connect": Note(
            "there are no users, and other machines can connect", ("address", "hint")
        ),
        "credentials_in_plain_text": Note("there are users, but no TLS", ("address", "hint")),
        "login_refused": Note("wrong password or unknown user (then `user` is null)"),
        "streams_without_user_refused": Note(
            "too many callers without a user watch the health of the server"
        ),
        "users_changed": Note("the users file was read again"),
        "users_file_is_bad": Note("the file cannot be used; the users stay as they were"),
        "users_file_is_good_again": Note("the file can be used again"),
        "no_users_to_read_again": Note("SIGHUP came, but the users come from the environment"),
        "bcrypt_costs_differ": Note("hashes have different costs, at start or after a change of users"),
        "stream_revoked": Note("a stream ended because its user was removed or changed"),
        "certificate_reloaded": Note("a renewed certificate is in use", _CERTIFICATE),
        "certificate_not_reloaded": Note("the files changed but cannot be used"),
        "certificate_expires_soon": Note("the certificate expires in 14 days or less", _CERTIFICATE),
        "change": Note(
            "a caller [changed something](../operations/watch.md#who-changed-what), or tried to",
            (
                *("action_id", *_CALLER, "method", "ids", "filter", "asked"),
                *("count", "reason", "outcome", "refusal"),
            ),
        ),
        "change_ended": Note(
            "the last of several batches of an action was done; `count` is the number of all changes",
            (
                *("action_id", *_CALLER, "method", "ids", "filter", "asked"),
                *("count", "reason", "outcome"),
            ),
        ),
        "jobs_replaced": Note(
            "a submit with a unique key and `replace` or `debounce` gave "
            "[waiting jobs](../how-to/one-job-at-a-time.md) new arguments; `ids` has the first 64. By SQL, "
            "`user` is the role of the database and `role` is `sql`",
            _CALLER,
        ),
        "silent_connections_closed": Note(
            "connections without a call of a user were closed, after 30 s or because their address had more "
            "than 100; the address with the most is named"
        ),
    },
    "Workers and their jobs": {
        "worker_connected": Note("a stream was opened; `topics` has the first 100"),
        "worker_disconnected": Note("the stream ended; `held` is the number of jobs that the worker held"),
        "worker_does_not_read": Note("the stream was ended, because the worker reads no messages"),
        "lines_ended_for_memory": Note(
            "streams of submits and reports, and waits for jobs, were ended, because incomplete messages on "
            "them may use the memory; callers continue without streams and open their waits again"
        ),
        "released_undelivered": Note("jobs that did not reach a worker were requeued"),
        "release_failed": Note("such jobs could not be released; their leases will expire"),
        "steps_not_read": Note(
            "the steps of woken jobs could not be read with their claim; their workers read them"
        ),
        "attempt_failed": Note("an attempt failed; another will follow", _ATTEMPT),
        "job_dead_lettered": Note("a job failed for the last time; the error is kept with the job", _ATTEMPT),
        "lease_expired": Note(
            "the watchdog reaped a job; `status` is its new status; `timed_out`: the lease ended by the time "
            "limit of the attempt"
        ),
        "lease_checks_restored": Note(
            "running jobs had no entry in `pulse.lease_checks`, as after a TRUNCATE; they have one again, so "
            "an expired lease is found"
        ),
    },
    "Dispatch, policies and limits": {
        "dispatch_failing": Note(
            "claims of workers with these topics (five are named) fail; without topics, the search for work "
            "fails. A topic with limits is named alone: its workers get their other topics. Logged once; "
            "other workers are served"
        ),
        "dispatch_recovered": Note("these claims work again"),
        "dispatch_failed": Note("claiming met a bug"),
        "dispatch_gate": Note(
            "dispatch or a worker was paused or resumed, or a topic got its first limit or lost its last; a "
            "hundred of the paused topics and of the quiet workers are named"
        ),
        "limits_changed": Note(
            "limits were put in force, or ended; `by` is the operator or the worker that made the last change"
        ),
        "limits_differ": Note(
            "connected workers declare different limits for the topic; the strictest holds. Logged once for "
            "each difference"
        ),
        "limits_pending": Note(
            "limits are accepted, and come into force once other transactions have ended: `pending` names "
            "them. Logged once for each change; `limits_changed` follows"
        ),
        "limits_removed": Note("these topics no longer have limits"),
        "limits_repaired": Note(
            "the counts of limits did not agree with the running jobs, and were corrected",
            ("pools", "lanes"),
        ),
        "topic_rules": Note(
            "how the jobs of topics run was set or declared; `topics` is the number of topics with rules"
        ),
        "runs_declared": Note(
            "the code of a worker declares otherwise than before how the jobs of the topic run"
        ),
    },
    "Schedules": {
        "schedule_fired": Note("an occurrence created its job"),
        "schedule_skipped": Note("a schedule cannot be planned; other schedules fire"),
        "fire_held": Note(
            "the job of an earlier occurrence has not finished, and the schedule's `overlap` made no new one"
        ),
        "fire_id_taken": Note(
            "a job that no schedule made has the id of an occurrence; the occurrence fired under another id"
        ),
    },
    "Retention": {
        "jobs_deleted": Note(
            "retention deleted these numbers of jobs row by row in a pass",
            ("COMPLETED", "CANCELED", "DEAD_LETTERED"),
        ),
        "steps_forgotten": Note("steps and signals without a job were deleted"),
        "completed_day_added": Note("there is a partition for the jobs that are completed on that day"),
        "completed_day_closed": Note(
            "the day is more than 60 days old and its jobs are kept for longer: they moved to "
            "`pulse.completed_jobs_kept`, and its partition was dropped"
        ),
        "completed_day_dropped": Note(
            "retention dropped the jobs that were completed on that day; `jobs` is approximate"
        ),
    },
    "The database": {
        "database_parameters_ignored": Note(
            "[parameters of `DB_HOST`](../operations/database.md#parameters-of-the-connection) have no "
            "effect; a warning if they concern security",
            ("parameters", "hint"),
        ),
        "connection_limit_is_low": Note(
            "a [limit of connections](../operations/database.md#limits-of-connections) leaves too few for "
            "this server"
        ),
        "connection_refused": Note("the database takes no more connections; at most once a minute"),
        "database_is_starting": Note(
            "the database starts, recovers or shuts down; a `pulsed` that starts waits for it"
        ),
        "database_went_away": Note("the database went away while this `pulsed` started; it waits for it"),
        "database_left": Note("a host froze or no longer accepts writes; its connections are dropped"),
        "database_moved": Note("another host is the primary now"),
        "rows_locked": Note(
            "another session of the database has locked the rows of `jobs` jobs; one is named. These jobs "
            "stay unchanged and are reported as locked; `lock_met` names the session"
        ),
        "lock_met": Note(
            "a statement has waited for a lock for 100 ms. The named session has the strongest lock on our "
            "tables, and of several the oldest transaction. The statement `limit_topic` is a topic's first "
            "limit, `drop_completed_day` drops an old day. `delete_expired` and `completed_days` are a task "
            "that one server at a time does, and that the session has had for 30 s. At most once in 10 s. "
            "Without `pg_read_all_stats` the state and the age of other roles' sessions are missing",
            ("pid", "user", "application", "state", "table", "lock", "seconds"),
        ),
        "vacuum_held_back": Note(
            "a session, slot, standby or prepared transaction has kept dead rows from being removed for "
            "5 minutes; again at 10, 20, 40 … `held_by` is the name of a slot or of a prepared transaction. "
            "Without `pg_read_all_stats` a session of another user has no `state`",
            _HOLDER,
        ),
        "vacuum_free_again": Note("vacuum can remove dead rows again", _HOLDER),
        "database_full": Note(
            "a disk of the database has no space left: nothing can be stored. Again every 10 minutes while "
            "it lasts. `refused` counts the statements of this server that were refused since it started"
        ),
        "database_has_space": Note("the database has disk space again"),
        "migration_applied": Note("the schema has this migration now"),
        "functions_installed": Note("the database has these functions as this server has them"),
        "migration_waits": Note("the migration waits for a lock, or for its turn"),
        "wakeups_down": Note("LISTEN does not work; jobs are found by polling, up to 500 ms later"),
        "wakeups_recovered": Note("LISTEN works again"),
        "wakeups_off": Note("there is no LISTEN, on purpose (`PULSE_DB_POOLER`)"),
        "wakeup_not_understood": Note("a wake-up of another release was ignored"),
        "foreign_wakeups": Note(
            "another role of the database sends messages on the channel of the servers: it knows the name. "
            "`count` since the last such line, once a minute; `pids` are of its sessions. Past 1,000 a "
            "minute the server does not listen until the minute is over "
            "([other roles](../operations/database.md#other-roles-of-the-database))"
        ),
        "ended_claims_hold": Note(
            "another server reported claims as ended, and they hold: a failover lost a commit, or a role "
            "knows the secret of the queue. No handler was stopped"
        ),
    },
    "Loops and bugs": {
        "loop_failing": Note("a background loop fails; logged once"),
        "workflow_failing": Note(
            "a workflow cannot be settled; it is left alone for a minute, and the others go on"
        ),
        "loop_recovered": Note("the loop works again"),
        "loop_failed": Note("a loop met a bug"),
        "call_failed": Note("a call met a bug; its caller got INTERNAL"),
        "page_failed": Note("the HTTP port met a bug"),
    },
    "Traces": {
        "exporting_traces": Note("traces go to a collector"),
        "traces_not_exported": Note("a collector is configured, but a package is missing"),
        "traces_lost": Note("the last spans did not arrive"),
        "claims_not_traced": Note("OpenTelemetry is installed but cannot be used"),
        "claim_not_traced": Note("making a claim's span met a bug"),
    },
}

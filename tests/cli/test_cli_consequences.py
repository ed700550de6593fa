"""Settings that delete or stop jobs ask first."""

from tests.cli.buried_jobs import bury, sql
from tests.cli.command_line import CommandLine, until
from tests.cli.test_cli_topic_settings import declare


def kept(own: CommandLine, topic: str) -> object:
    return own("topics", "show", topic, "-o", "json").json["in_force"]["keep_dead_lettered"]


def test_shorter_retention_asks_with_the_number_of_jobs(
    own: CommandLine, own_database: str, topic: str
) -> None:
    bury(own_database, topic, 12, apart="10 minutes")
    shorter = ("topics", "set", topic, "--keep-dead-lettered", "65m")
    before = kept(own, topic)

    result = own(*shorter)

    assert result.code == 2
    assert "up to 6 DEAD_LETTERED jobs" in result.err
    assert kept(own, topic) == before
    done = own(*shorter, "--yes")
    assert "What is shorter takes effect" in done.out
    assert "until then: keep-dead-lettered 30d." in done.out
    state = own("topics", "show", topic, "-o", "json").json
    assert state["before"] == {"keep_dead_lettered": "30d"}
    assert state["shorter_from"] is not None
    assert "30d, soon 1h5m" in own.screen("topics", "show", columns=200).out
    assert own("topics", "set", topic, "--keep-dead-lettered", "30d").code == 0, "longer: no question"


def test_shorter_retention_of_a_topic_without_old_jobs_asks_nothing(
    own: CommandLine, topic: str, own_database: str
) -> None:
    assert own("topics", "set", topic, "--keep-dead-lettered", "1d").code == 0


def test_shorter_retention_counts_completed_jobs(own: CommandLine, own_database: str, topic: str) -> None:
    sql(
        own_database,
        """INSERT INTO pulse.completed_jobs (id, submitted_at, next_run_at, finished_at, priority, attempts,
               max_attempts, delivered, topic, payload)
           SELECT gen_random_uuid(), now() - interval '2 hours', now(), now() - interval '1 hour', 0, 1, 5,
               true, $1, '' FROM generate_series(1, 1234)""",
        topic,
    )
    result = own("topics", "set", topic, "--keep-completed", "10m")
    assert (result.code, "deletes up to 1,234 COMPLETED jobs for good" in result.err) == (2, True)


def run(own: CommandLine, database: str, topic: str, *options: str) -> None:
    """Have three jobs of the topic run."""
    for _ in range(3):
        own("submit", topic, *options)
    sql(
        database,
        "WITH held AS (UPDATE pulse.jobs SET status = 'RUNNING', locked_by = 'w', attempts = 1, run = 1, "
        "lease_until = now() + interval '1 hour', started_at = now() WHERE topic = $1 RETURNING id) "
        "INSERT INTO pulse.lease_checks (check_at, settled, ids) "
        "SELECT now() + interval '1 hour', true, array_agg(id) FROM held",
        topic,
    )


def test_limit_below_the_running_jobs_asks_first(own: CommandLine, own_database: str, topic: str) -> None:
    run(own, own_database, topic)

    result = own("topics", "set", topic, "--running", "2")

    assert result.code == 2
    assert "3 jobs run" in result.err
    assert own("topics", "set", topic, "--running", "3").code == 0
    assert own("topics", "set", topic, "--running", "2", "--yes").code == 0
    held = own("topics", "hold", topic, "--for", "2m")
    assert (held.code, "3 running jobs finish" in held.err) == (2, True)
    assert own("topics", "hold", topic, "--for", "2m", "--yes").code == 0


def test_limit_of_a_pool_counts_the_running_jobs_of_all_its_topics(
    own: CommandLine, own_database: str, topic: str
) -> None:
    run(own, own_database, topic)
    other, pool = f"{topic}-other", f"{topic}-pool"
    assert own("topics", "set", topic, "--running", "9", "--pool", pool).code == 0

    result = own("topics", "set", other, "--running", "2", "--pool", pool)

    assert (result.code, f"3 jobs run on the pool {pool} now" in result.err) == (2, True)
    assert own("topics", "set", other, "--running", "2", "--pool", pool, "--yes").code == 0
    assert own("topics", "set", other, "--running", "3").code == 0, "higher: no question"


def test_rate_below_the_pace_asks_first(own: CommandLine, own_database: str, topic: str) -> None:
    sql(
        own_database,
        "INSERT INTO pulse.topic_minutes (minute, topic, completed) "
        "SELECT date_trunc('minute', now()) - ago * interval '1 minute', $1, 500 "
        "FROM generate_series(0, 1) AS ago",
        topic,
    )
    until(own, ["topics", "--search", topic], lambda found: found and found[0]["last_minute"]["completed"])

    result = own("topics", "set", topic, "--rate", "10/min")
    assert result.code == 2
    assert "in the last minute. With a rate of 10/min fewer start" in result.err
    assert own("topics", "set", topic, "--rate", "100000/min").code == 0


def test_reset_to_a_limit_of_the_code_below_the_running_jobs_asks_first(
    own: CommandLine, own_address: str, own_database: str, topic: str
) -> None:
    declare(own_address, topic, running=1)
    own("topics", "set", topic, "--running", "9")
    run(own, own_database, topic)

    result = own("topics", "reset", topic)

    assert (result.code, "With a limit of 1 they go on" in result.err) == (2, True)
    assert own("topics", "show", topic, "-o", "json").json["in_force"]["running"] == 9
    assert own("topics", "reset", topic, "--yes").code == 0

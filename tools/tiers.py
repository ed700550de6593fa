"""The tiers of tests/: each folder belongs to one, and single files of the first tier to the long one."""

# Pure: no database, no socket, no process. `test --quick` runs these alone.
PURE_FOLDERS = ("access", "dispatch", "domain", "service", "telemetry", "text")
# With `test`, the pure ones included.
FIRST_FOLDERS = (
    *PURE_FOLDERS,
    "benchmarks",
    "cli",
    "deploy",
    "docs",
    "packaging",
    "postgres",
    "sdk",
    "server",
    "transport",
    "ui",
)
# With `test --all` only: faults, processes that die or misbehave, browsers.
LONG_FOLDERS = ("embedded", "examples", "faults", "system")
LONG_FILES = (
    "benchmarks/test_load_generator.py",
    "cli/test_cli_processes.py",
    "cli/test_cli_recycling.py",
    "cli/test_cli_worker.py",
    "cli/test_cli_worker_ending.py",
    "cli/test_cli_worker_modules.py",
    "cli/test_cli_worker_reload.py",
    "cli/test_cli_worker_surroundings.py",
    "docs/test_how_to.py",
    "docs/test_production_pages.py",
    "docs/test_tutorial.py",
    "packaging/test_locked_setup.py",
    "packaging/test_packaging.py",
    "postgres/test_lifecycle_machine.py",
    "postgres/test_migrations_under_load.py",
    "sdk/test_sdk_bulk_retry.py",
    "sdk/test_sdk_exits.py",
    "sdk/test_sdk_fork_signals.py",
    "sdk/test_sdk_forks.py",
    "sdk/test_sdk_frozen.py",
    "sdk/test_sdk_interrupts.py",
    "sdk/test_sdk_process_messages.py",
    "sdk/test_sdk_process_origins.py",
    "sdk/test_sdk_process_progress.py",
    "sdk/test_sdk_process_steps.py",
    "sdk/test_sdk_processes.py",
    "sdk/test_sdk_run_processes.py",
    "sdk/test_sdk_sentry_processes.py",
    "sdk/test_sdk_signals.py",
    "sdk/test_sdk_supervisor.py",
    "sdk/test_sql_zombies.py",
    "server/test_behind_pooler.py",
    "server/test_bounded_calls.py",
    "server/test_connection_limits.py",
    "server/test_database_away.py",
    "server/test_failover.py",
    "server/test_memory_of_pulsed.py",
    "server/test_memory_of_streams.py",
    "server/test_pulsed_processes.py",
    "server/test_pulsed_start.py",
    "server/test_pulsed_stop.py",
    "transport/test_auth_process.py",
    "transport/test_compressed_bombs.py",
    "transport/test_limited_servers.py",
    "transport/test_pause_under_load.py",
    "transport/test_silent_connections.py",
    "ui/test_dashboard_process.py",
    "ui/test_dead_letter_page.py",
    "ui/test_job_page.py",
    "ui/test_jobs_page.py",
    "ui/test_live.py",
    "ui/test_login_in_a_browser.py",
    "ui/test_morph.py",
    "ui/test_overview_page.py",
    "ui/test_page_health.py",
    "ui/test_progress_page.py",
    "ui/test_schedule_pages.py",
)

# Four at a time on two cores: most tests wait for processes of their own. Worksteal starts with whole
# quarters of the tier, so that a file's fixtures are mostly set up once, and evens out at the end.
_IN_PARALLEL = ("-n", "4", "--dist", "worksteal")

# Arguments of pytest.
QUICK_TIER = [f"tests/{folder}" for folder in PURE_FOLDERS]
FIRST_TIER = [*_IN_PARALLEL, *(f"--ignore=tests/{place}" for place in (*LONG_FOLDERS, *LONG_FILES))]
LONG_TIER = [*_IN_PARALLEL, *(f"tests/{place}" for place in (*LONG_FOLDERS, *LONG_FILES))]
EVERY_TIER = list(_IN_PARALLEL)

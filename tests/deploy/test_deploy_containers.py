"""The image and the compose file: who runs, what is asked of them, how they are stopped."""

import re

import pulse_ui.settings
from deploy.locked_requirements import entries
from pulse_server.settings import Settings
from pulse_server.supervisor import longest_drain
from tests.deploy.deployment_files import (
    DEPLOY,
    ROOT,
    WORKLOADS,
    container,
    documents,
    seconds,
)
from tests.rows import each_row

DOCKERFILE = (DEPLOY / "Dockerfile").read_text(encoding="utf-8")
COMPOSE = documents(DEPLOY / "compose.yaml")[0]["services"]
SETTINGS = Settings("[::]:50051", "postgres://pulse@localhost/pulse")
DASHBOARD_PORT = int(pulse_ui.settings.DEFAULT_ADDRESS.rpartition(":")[2])
LONGEST_STOP = longest_drain(SETTINGS).total_seconds()


# ------------------------------------------------------------ images


def images() -> list[str]:
    of_compose = [service["image"] for service in COMPOSE.values()]
    bases = re.findall(r"^ARG BASE=(\S+)", DOCKERFILE, re.MULTILINE)
    return [*of_compose, *bases, *(container(workload)["image"] for workload in WORKLOADS)]


def test_every_image_has_a_tag_that_says_which() -> None:
    for image in images():
        name, colon, tag = image.partition(":")
        assert name, image
        assert colon, image
        assert not tag.startswith("latest"), image


def test_image_runs_as_a_numbered_user_that_is_not_root() -> None:
    users = re.findall(r"^USER (\d+):(\d+)$", DOCKERFILE, re.MULTILINE)
    assert users == [("65532", "65532")]
    # The last stage is what runs.
    assert DOCKERFILE.rindex("USER ") > DOCKERFILE.rindex("FROM ")


def test_image_takes_nothing_from_a_checkout_but_what_it_copies() -> None:
    allowed = {
        line[1:]
        for line in (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
        if line.startswith("!")
    }
    copied = re.findall(r"^COPY (?!--from)(.+) \S+$", DOCKERFILE, re.MULTILINE)
    assert {name for line in copied for name in line.split()} == allowed
    for name in allowed:
        assert (ROOT / name).exists(), name


def test_image_exposes_the_ports_that_it_listens_on() -> None:
    (http,) = re.findall(r"PULSE_HTTP_ADDR=:(\d+)", DOCKERFILE)
    assert re.findall(r"^EXPOSE (.+)$", DOCKERFILE, re.MULTILINE) == [f"50051 {http} {DASHBOARD_PORT}"]


def test_image_fetches_nothing_but_what_the_lock_has_by_its_hash() -> None:
    steps = re.split(r"\s(?:&&|\|\|)\s", DOCKERFILE.replace("\\\n", " "))
    installs = [step for step in steps if re.search(r"pip .*(install|wheel)\b", step)]
    assert len(installs) == 5
    for step in installs:
        is_locked = "--require-hashes" in step and "--no-deps" in step
        is_ours = "--no-deps" in step and ("/wheels/*.whl" in step or "--no-build-isolation" in step)
        assert is_locked or is_ours or "${PACKAGES}" in step, step


def test_entries_of_the_lock_are_found_whole() -> None:
    found = entries((ROOT / "requirements" / "run.lock").read_text(encoding="utf-8"))
    assert {"hatchling", "grpcio", "asyncpg", "uvicorn", "opentelemetry-api"} <= found.keys()
    assert all("--hash=sha256:" in entry for entry in found.values())
    assert all(entry.count("==") == 1 for entry in found.values())


def test_image_has_the_dashboard_in_it() -> None:
    (extras,) = re.findall(r"^ARG EXTRAS=(\S+)", DOCKERFILE, re.MULTILINE)
    assert "ui" in extras.split(",")


# ------------------------------------------------------------ compose


@each_row("name", ["pulsed-1", "pulsed-2"])
def test_compose_waits_longer_than_a_server_drains(name: str) -> None:
    assert seconds(COMPOSE[name]["stop_grace_period"]) > LONGEST_STOP


@each_row("name", ["pulsed-1", "pulsed-2", "migrate", "dashboard"])
def test_compose_runs_the_server_locked_down(name: str) -> None:
    service = COMPOSE[name]
    assert service["read_only"] is True
    assert service["cap_drop"] == ["ALL"]
    assert "user" not in service  # the image's


def test_compose_brings_the_schema_up_to_date_before_a_server_starts() -> None:
    assert COMPOSE["migrate"]["command"] == ["migrate"]
    assert COMPOSE["migrate"]["depends_on"] == {"postgres": {"condition": "service_healthy"}}
    for name in ("pulsed-1", "pulsed-2"):
        assert COMPOSE[name]["depends_on"] == {"migrate": {"condition": "service_completed_successfully"}}


def test_compose_publishes_on_loopback_unless_set_otherwise() -> None:
    for service in COMPOSE.values():
        for published in service.get("ports", []):
            assert published.startswith(("127.0.0.1:", "${PULSE_PUBLISH:-127.0.0.1}:"))


def test_compose_mounts_files_that_exist() -> None:
    for service in COMPOSE.values():
        for volume in service.get("volumes", []):
            source = volume.split(":")[0]
            if source.startswith("./"):
                assert (DEPLOY / source).exists(), source


def test_prometheus_scrapes_the_port_that_the_servers_listen_on() -> None:
    (scrape,) = documents(DEPLOY / "prometheus" / "prometheus.yml")[0]["scrape_configs"]
    (target,) = scrape["dns_sd_configs"]
    assert f":{target['port']}" == COMPOSE["pulsed-1"]["environment"]["PULSE_HTTP_ADDR"]
    for name in ("pulsed-1", "pulsed-2"):
        assert COMPOSE[name]["networks"]["default"]["aliases"] == target["names"]


def test_dashboard_of_compose_knows_the_servers_and_not_the_database() -> None:
    service = COMPOSE["dashboard"]
    assert service["entrypoint"] == ["pulse-ui"]
    settings = pulse_ui.settings.read_settings([], {"PULSE_UI_ADDR": service["environment"]["PULSE_UI_ADDR"]})
    assert (settings.port, service["ports"]) == (
        DASHBOARD_PORT,
        [f"127.0.0.1:{DASHBOARD_PORT}:{settings.port}"],
    )
    host, _, port = service["environment"]["PULSE_ADDR"].partition(":")
    assert [host] == COMPOSE["pulsed-1"]["networks"]["default"]["aliases"]
    assert port == "50051"
    assert not {"DB_HOST", "PULSE_AUTH_USERS", "PULSE_USER"} & service["environment"].keys()

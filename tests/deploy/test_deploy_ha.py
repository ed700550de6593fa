"""The recipe of deploy/ha can be filled in, and its settings keep what its README promises."""

import re
from pathlib import Path
from typing import Any

import pytest

from faults import ha
from faults.ha import templates
from pulse_server.database.connector import hosts_in
from pulse_server.settings import Settings, read_settings
from tests.deploy.deployment_files import DEPLOY, documents
from tests.rows import each_row

RECIPE = DEPLOY / "ha"
README = (RECIPE / "README.md").read_text(encoding="utf-8")
PROSE = " ".join(README.split())  # wherever its lines end
NODE = templates.assignments((RECIPE / "node.example").read_text(encoding="utf-8"))
SECRETS = templates.assignments((RECIPE / "secrets.example").read_text(encoding="utf-8"))
ADDRESSES = [address for _, _, address in (part.partition("//") for part in NODE["ETCD_MEMBERS"].split(","))]


def patroni() -> dict[str, Any]:
    return documents(RECIPE / "patroni.yml")[0]


def dcs() -> dict[str, Any]:
    found: dict[str, Any] = patroni()["bootstrap"]["dcs"]
    return found


@each_row("template", ["etcd.env.in", "patroni.env.in"])
def test_templates_ask_for_what_the_example_names(template: str) -> None:
    filled = templates.filled(template, NODE)
    assert not [value for value in filled.values() if not value or "$" in value]


def test_every_name_of_the_example_is_asked_for() -> None:
    text = "".join((RECIPE / name).read_text(encoding="utf-8") for name in ("etcd.env.in", "patroni.env.in"))
    assert set(re.findall(r"\$\{(\w+)\}", text)) == NODE.keys()


def test_trial_fills_in_the_same_names(tmp_path: Path) -> None:
    addresses = {"db1": "127.0.0.1", "db2": "127.0.0.2"}
    assert templates.variables("db1", addresses, tmp_path, tmp_path).keys() == NODE.keys()


def test_machines_are_listed_alike_everywhere() -> None:
    of_etcd = [address.partition(":")[0] for address in NODE["ETCD_HOSTS"].split(",")]
    assert of_etcd == [address.partition(":")[0] for address in ADDRESSES]
    assert NODE["ADDRESS"] in of_etcd
    (url,) = re.findall(r"^DB_HOST=(\S+)$", README, re.MULTILINE)
    assert [host.name for host in hosts_in(url)] == of_etcd
    assert {host.port for host in hosts_in(url)} == {templates.PORTS["Postgres"]}
    assert read_settings({"DB_HOST": url}).database_url == url


def test_no_password_is_in_the_recipe() -> None:
    assert set(SECRETS.values()) == {"CHANGE-ME"}
    filled = templates.filled("patroni.env.in", NODE)
    # For each account there is a password to make up, and nothing else is secret.
    accounts = {name.removesuffix("USERNAME") for name in filled if name.endswith("_USERNAME")}
    assert {f"{account}PASSWORD" for account in accounts} == SECRETS.keys()
    assert "authentication" not in patroni()["postgresql"]


def test_a_slow_round_trip_to_etcd_costs_no_failover() -> None:
    """Patroni's own rule; it would change the values in silence."""
    assert dcs()["loop_wait"] + 2 * dcs()["retry_timeout"] <= dcs()["ttl"]
    assert f"`ttl` ({dcs()['ttl']} s)" in PROSE


def test_etcd_speaks_the_language_that_patroni_does() -> None:
    """The older one: with the newer one a leader that thawed took the lead back from its successor."""
    assert "PATRONI_ETCD_HOSTS" in templates.filled("patroni.env.in", NODE)
    assert templates.filled("etcd.env.in", NODE)["ETCD_ENABLE_V2"] == "true"


def test_commits_wait_for_a_standby() -> None:
    assert (dcs()["synchronous_mode"], dcs()["synchronous_mode_strict"]) == (True, True)
    assert dcs()["postgresql"]["parameters"]["synchronous_commit"] == "on"


def test_there_are_connections_for_three_servers_and_for_those_they_gave_up() -> None:
    most = dcs()["postgresql"]["parameters"]["max_connections"]
    assert 2 * 3 * Settings("127.0.0.1:50051", "postgres://localhost/pulse").most_connections <= most
    assert f"`max_connections` is {most}" in PROSE


def test_ports_of_the_trial_are_those_of_the_recipe() -> None:
    named = {
        int(port)
        for template in ("etcd.env.in", "patroni.env.in")
        for value in templates.filled(template, NODE).values()
        for port in re.findall(r"[\d.]+:(\d+)\b", value)
    }
    assert named == set(templates.PORTS.values())
    for port in named:
        assert str(port) in README


def test_links_lead_somewhere() -> None:
    for target in re.findall(r"\]\(([^)\s]+)\)", README):
        assert (RECIPE / target.partition("#")[0]).exists(), target
    files = {path.name for path in RECIPE.iterdir()} - {"README.md"}
    assert files <= set(re.findall(r"\]\(([^)\s/]+)\)", README))


def test_without_the_programs_the_trial_says_which_packages_to_install(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert ha.main(1.0, 1) == 1
    printed = capsys.readouterr()
    assert "apt-get install etcd-server patroni" in printed.err
    assert printed.out == ""

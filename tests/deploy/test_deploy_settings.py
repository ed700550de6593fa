"""Every setting that deploy/ names exists, and every value that it gives is accepted."""

import re
from pathlib import Path

import pulse_ui.settings
from pulse_server.settings import OPTIONS, read_settings
from tests.deploy.deployment_files import DEPLOY, KUBERNETES, ROOT, assignments, documents, text_files
from tests.rows import each_row

OF_THE_SERVER = {option.variable for option in OPTIONS}
OF_THE_SDK = {
    name
    for path in (ROOT / "src" / "pulse").rglob("*.py")
    for name in re.findall(r"\bPULSE_[A-Z_]+\b", path.read_text(encoding="utf-8"))
}
OF_THE_DASHBOARD = {option.variable for option in pulse_ui.settings.OPTIONS}
# Read by compose.yaml alone.
OF_COMPOSE = {"PULSE_VERSION", "PULSE_PUBLISH"}
HASH = "$2b$04$" + "a" * 21 + "." + "b" * 31


@each_row("path", text_files())
def test_named_settings_exist(path: Path) -> None:
    named = set(re.findall(r"\bPULSE_[A-Z_]*[A-Z]\b", path.read_text(encoding="utf-8")))
    if path.suffix == ".json":  # Grafana's variables are no settings
        named = set()
    assert named <= OF_THE_SERVER | OF_THE_SDK | OF_THE_DASHBOARD | OF_COMPOSE


def test_settings_of_the_kubernetes_example_are_accepted(tmp_path: Path) -> None:
    users = tmp_path / "users"
    (secret,) = (
        document
        for document in documents(KUBERNETES / "secret.example.yaml")
        if document["metadata"]["name"] == "pulsed-users"
    )
    users.write_text(secret["stringData"]["users"].replace("CHANGE-ME", HASH), encoding="utf-8")
    given = assignments(KUBERNETES / "pulsed.env")
    settings = read_settings(
        given | {"PULSE_AUTH_USERS_FILE": str(users), "DB_HOST": "postgres://pulse@localhost/pulse"}
    )
    assert settings.grpc_address == "[::]:50051"
    assert settings.http_address == "[::]:50052"


def test_settings_of_the_systemd_example_are_accepted(tmp_path: Path) -> None:
    given = assignments(DEPLOY / "systemd" / "pulsed.env.example")
    users = tmp_path / "users"
    users.write_text("ada:secret\n", encoding="utf-8")
    settings = read_settings(
        given | {"PULSE_AUTH_USERS_FILE": str(users), "DB_HOST": "postgres://pulse@localhost/pulse"}
    )
    assert settings.grpc_address == "[::]:50051"


def test_settings_of_the_compose_example_are_accepted() -> None:
    compose = documents(DEPLOY / "compose.yaml")[0]
    chosen = assignments(DEPLOY / ".env.example") | {
        "POSTGRES_PASSWORD": "secret",
        "PULSE_AUTH_USERS": f"web:{HASH}:producer",
    }
    environment = {
        name: re.sub(r"\$\{(\w+)[^}]*\}", lambda found: chosen[found[1]], value)
        for name, value in compose["services"]["pulsed-1"]["environment"].items()
    }
    settings = read_settings(environment)
    assert settings.database_url == "postgres://pulse:secret@postgres:5432/pulse"
    assert [user.name for user in settings.users] == ["web"]


def test_compose_names_no_variable_that_its_example_leaves_out() -> None:
    text = (DEPLOY / "compose.yaml").read_text(encoding="utf-8")
    assert set(re.findall(r"\$\{(\w+)", text)) == set(assignments(DEPLOY / ".env.example"))


def test_tls_is_given_whole_wherever_it_is_given() -> None:
    for path in text_files():
        text = path.read_text(encoding="utf-8")
        if path.suffix in (".yaml", ".conf"):
            assert ("PULSE_TLS_CERT" in text) == ("PULSE_TLS_KEY" in text), path

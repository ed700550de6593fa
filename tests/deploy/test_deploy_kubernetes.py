"""The manifests for Kubernetes: who runs, what is asked of them, how they are stopped."""

from typing import Any

import pulse_ui.settings
from pulse import tuning as sdk_tuning
from pulse.supervision.supervised import STOP_GRACE_SECONDS
from pulse_cli.program import pulse as program
from pulse_server.settings import Settings
from pulse_server.supervisor import longest_drain
from pulse_ui.tuning import STOP_GRACE
from tests.cli.reading import nothing_runs
from tests.deploy.deployment_files import (
    KUBERNETES,
    WORKLOADS,
    assignments,
    container,
    documents,
    manifest,
    manifests,
    pod,
)
from tests.rows import each_row

SETTINGS = Settings("[::]:50051", "postgres://pulse@localhost/pulse")
DASHBOARD_PORT = int(pulse_ui.settings.DEFAULT_ADDRESS.rpartition(":")[2])
LONGEST_STOP = longest_drain(SETTINGS).total_seconds()
PULSED = manifest("Deployment", "pulsed")


@each_row("workload", WORKLOADS)
def test_pods_run_restricted(workload: dict[str, Any]) -> None:
    assert pod(workload)["securityContext"]["runAsNonRoot"] is True
    assert pod(workload)["securityContext"]["runAsUser"] > 0
    assert pod(workload)["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod(workload)["automountServiceAccountToken"] is False
    context = container(workload)["securityContext"]
    assert context["allowPrivilegeEscalation"] is False
    assert context["readOnlyRootFilesystem"] is True
    assert context["capabilities"] == {"drop": ["ALL"]}


def test_pods_run_as_the_user_of_the_image() -> None:
    for workload in (PULSED, manifest("Job", "pulsed-migrate")):
        assert pod(workload)["securityContext"]["runAsUser"] == 65532


def test_kubelet_waits_longer_than_a_server_drains() -> None:
    before = container(PULSED)["lifecycle"]["preStop"]["sleep"]["seconds"]
    assert pod(PULSED)["terminationGracePeriodSeconds"] > before + LONGEST_STOP


def test_kubelet_waits_longer_than_a_worker_drains() -> None:
    worker = manifest("Deployment", "mailer")
    longest = sdk_tuning.DEFAULT_DRAIN_SECONDS + STOP_GRACE_SECONDS
    assert pod(worker)["terminationGracePeriodSeconds"] > longest


def test_processes_of_a_worker_and_a_successor_fit_into_its_memory() -> None:
    (container,) = pod(manifest("Deployment", "mailer"))["containers"]
    name, *arguments = container["command"]
    assert name == "pulse"
    with nothing_runs() as ran:
        program.main(arguments, "pulse", standalone_mode=False)
    assert ran == ["pulse worker"]
    processes = int(arguments[arguments.index("--processes") + 1])
    each = int(arguments[arguments.index("--max-memory") + 1].removesuffix("M"))
    assert (processes + 1) * each <= int(container["resources"]["limits"]["memory"].removesuffix("Mi"))


def test_rollout_keeps_every_server_until_a_new_one_is_ready() -> None:
    assert PULSED["spec"]["replicas"] == 2
    assert PULSED["spec"]["strategy"]["rollingUpdate"]["maxUnavailable"] == 0


def test_ports_are_those_of_the_settings() -> None:
    settings = assignments(KUBERNETES / "pulsed.env")
    ports = {port["name"]: port["containerPort"] for port in container(PULSED)["ports"]}
    assert ports == {
        "tcp-grpc": int(settings["PULSE_GRPC_ADDR"].rpartition(":")[2]),
        "http": int(settings["PULSE_HTTP_ADDR"].rpartition(":")[2]),
    }
    annotations = PULSED["spec"]["template"]["metadata"]["annotations"]
    assert int(annotations["prometheus.io/port"]) == ports["http"]
    for service in (manifest("Service", "pulsed"), manifest("Service", "pulsed-headless")):
        for port in service["spec"]["ports"]:
            assert port["targetPort"] in ports


def test_probes_ask_the_http_port() -> None:
    for deployment in (
        m for m in manifests() if m["kind"] == "Deployment" and m["metadata"]["name"] == "pulsed"
    ):
        probes = container(deployment)
        assert probes["readinessProbe"]["httpGet"]["port"] == "http"
        assert probes["readinessProbe"]["httpGet"]["path"] == "/readyz"
        assert probes["livenessProbe"]["httpGet"]["port"] == "http"
        assert probes["livenessProbe"]["httpGet"]["path"] == "/healthz"


def test_selectors_find_the_pods() -> None:
    labels = PULSED["spec"]["template"]["metadata"]["labels"]
    assert PULSED["spec"]["selector"]["matchLabels"].items() <= labels.items()
    assert manifest("Service", "pulsed")["spec"]["selector"].items() <= labels.items()
    budget = manifest("PodDisruptionBudget", "pulsed")["spec"]
    assert budget["selector"]["matchLabels"].items() <= labels.items()


def test_a_mesh_does_not_take_the_port_for_one_whose_calls_it_may_spread() -> None:
    for service in (manifest("Service", "pulsed"), manifest("Service", "pulsed-headless")):
        assert not any(port["name"].startswith("grpc") for port in service["spec"]["ports"])


def test_secrets_that_are_used_are_in_the_example() -> None:
    example = {document["metadata"]["name"] for document in documents(KUBERNETES / "secret.example.yaml")}
    used = set()
    for workload in WORKLOADS:
        for variable in container(workload).get("env", []):
            if reference := variable.get("valueFrom", {}).get("secretKeyRef"):
                used.add(reference["name"])
        used |= {
            volume["secret"]["secretName"]
            for volume in pod(workload).get("volumes", [])
            if "secret" in volume
        }
    assert used == example


def test_there_is_one_dashboard_and_its_service_finds_it() -> None:
    dashboard = manifest("Deployment", "pulse-ui")
    assert dashboard["spec"]["replicas"] == 1
    assert container(dashboard)["image"] == container(PULSED)["image"]
    (port,) = container(dashboard)["ports"]
    variables = {variable["name"]: variable["value"] for variable in container(dashboard)["env"]}
    assert variables["PULSE_UI_ADDR"] == f":{port['containerPort']}"
    assert container(dashboard)["readinessProbe"]["httpGet"] == {"path": "/healthz", "port": port["name"]}
    service = manifest("Service", "pulse-ui")["spec"]
    assert service["selector"].items() <= dashboard["spec"]["template"]["metadata"]["labels"].items()
    assert service["ports"][0]["targetPort"] == port["name"]
    assert pod(dashboard)["terminationGracePeriodSeconds"] > STOP_GRACE.total_seconds()


def test_autoscaling_leaves_connections_for_others() -> None:
    """Postgres allows 100 by default, and keeps three for its superuser."""
    most = manifest("HorizontalPodAutoscaler", "pulsed")["spec"]["maxReplicas"]
    assert most * SETTINGS.most_connections <= 90


def test_kustomization_names_files_that_exist() -> None:
    for path in KUBERNETES.rglob("kustomization.yaml"):
        found = documents(path)[0]
        patches = [patch["path"] for patch in found.get("patches", [])]
        settings = [name for entry in found.get("configMapGenerator", []) for name in entry["envs"]]
        for name in [*found.get("resources", []), *patches, *settings]:
            assert (path.parent / name).is_file(), name

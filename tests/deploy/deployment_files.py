"""What the files under deploy/ say, for the tests that compare it with the code."""

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

from pulse_server.base.metrics import Counter, Histogram, Metrics

ROOT = Path(__file__).resolve().parents[2]
DEPLOY = ROOT / "deploy"
KUBERNETES = DEPLOY / "kubernetes"

# What Prometheus itself adds to each sample, and what the supervisor of several processes does.
FOREIGN_LABELS = frozenset({"job", "instance", "le", "process"})

_METRIC = re.compile(r"\bpulse_\w+")
_SELECTOR = re.compile(r"\b(pulse_\w+)\{([^}]*)\}")
_DURATION = re.compile(r"(\d+)(s|m|min)?")


def text_files() -> list[Path]:
    return sorted(path for path in DEPLOY.rglob("*") if path.is_file() and path.suffix != ".pyc")


@cache
def documents(path: Path) -> list[dict[str, Any]]:
    """The YAML documents of a file."""
    return [document for document in yaml.safe_load_all(path.read_text(encoding="utf-8")) if document]


def manifests() -> list[dict[str, Any]]:
    """Every object for Kubernetes, the examples and the patch for TLS included."""
    return [document for path in sorted(KUBERNETES.rglob("*.yaml")) for document in documents(path)]


def manifest(kind: str, name: str) -> dict[str, Any]:
    """The one object of this kind and name that is whole (a patch has no selector)."""
    (found,) = (
        document
        for document in manifests()
        if document["kind"] == kind
        and document["metadata"]["name"] == name
        and (kind != "Deployment" or "selector" in document["spec"])
    )
    return found


def assignments(path: Path) -> dict[str, str]:
    """NAME=value lines, those that are commented out included: they show a value that must work."""
    lines = path.read_text(encoding="utf-8").splitlines()
    found = (re.fullmatch(r"#?([A-Z][A-Z0-9_]*)=(.*)", line) for line in lines)
    return {match[1]: match[2] for match in found if match}


def seconds(text: str) -> int:
    """'30s', '1m' or bare seconds."""
    match = _DURATION.fullmatch(text)
    assert match, text
    return int(match[1]) * (60 if match[2] in ("m", "min") else 1)


def series_labels() -> dict[str, frozenset[str]]:
    """Every series that a server exposes, by the name that queries use, with its labels."""
    series: dict[str, frozenset[str]] = {}
    for instrument in Metrics():
        labels = frozenset(instrument.labels)
        if isinstance(instrument, Counter):
            series[f"{instrument.name}_total"] = labels
        elif isinstance(instrument, Histogram):
            series |= {f"{instrument.name}_{part}": labels for part in ("bucket", "sum", "count")}
        else:
            series[instrument.name] = labels
    return series


def metrics_named(expression: str) -> set[str]:
    return set(_METRIC.findall(expression))


def labels_matched(expression: str) -> Iterator[tuple[str, str]]:
    """Each (metric, label) of the selectors in a query."""
    for metric, matchers in _SELECTOR.findall(expression):
        for label in re.findall(r"(\w+)\s*(?:=~|!~|!=|=)", matchers):
            yield metric, label


WORKLOADS = [
    *(manifest("Deployment", name) for name in ("pulsed", "pulse-ui", "mailer")),
    manifest("Job", "pulsed-migrate"),
]


def pod(workload: dict[str, Any]) -> dict[str, Any]:
    spec: dict[str, Any] = workload["spec"]["template"]["spec"]
    return spec


def container(workload: dict[str, Any]) -> dict[str, Any]:
    (only,) = pod(workload)["containers"]
    return dict(only)

"""Metrics of several processes as one text."""

from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from pulse_server.base.exposition import Exposition, merged
from pulse_server.base.metrics import Metrics

OPENMETRICS = "application/openmetrics-text"


def text(completed: int, accept: str = "") -> str:
    metrics = Metrics()
    metrics.completed.add("mail", by=completed)
    metrics.queue_wait.observe_in(("mail",), [0.1] * completed)
    metrics.workers.read = lambda: {(): 2.0}
    return Exposition(metrics).snapshot().render(accept, "").body.decode()


def merge(accept: str = "", **texts: str) -> str:
    up = Metrics().process_up
    up.read = lambda: {("1",): 1.0, ("2",): 0.0}
    return merged(
        {name.removeprefix("p"): text for name, text in texts.items()}, up, accept, ""
    ).body.decode()


def test_each_sample_has_its_process_as_a_label() -> None:
    families = {family.name: family for family in parse_plain(merge(p1=text(3), p2=text(4)))}

    completed = families["pulse_jobs_completed"].samples
    assert {(s.labels["process"], s.labels["topic"]): s.value for s in completed} == {
        ("1", "mail"): 3,
        ("2", "mail"): 4,
    }
    counts = [s for s in families["pulse_queue_wait_seconds"].samples if s.name.endswith("_count")]
    assert {s.labels["process"]: s.value for s in counts} == {"1": 3, "2": 4}


def test_families_stay_together() -> None:
    lines = merge(p1=text(3), p2=text(4)).splitlines()
    types = [line for line in lines if line.startswith("# TYPE")]

    assert len(types) == len(set(types))
    assert "# TYPE pulse_jobs_completed_total counter" in types
    assert "# TYPE pulse_queue_wait_seconds histogram" in types
    assert "# TYPE pulse_workers_connected gauge" in types
    assert "# HELP pulse_workers_connected Streams of workers that are open on this server." in lines


def test_supervisor_reports_which_processes_answered() -> None:
    families = {family.name: family for family in parse_plain(merge(p1=text(1)))}

    assert {s.labels["process"]: s.value for s in families["pulse_process_up"].samples} == {"1": 1, "2": 0}


def test_supervisor_has_metrics_although_no_process_answers() -> None:
    assert [family.name for family in parse_plain(merge())] == ["pulse_process_up"]


def test_merged_text_is_rendered_as_openmetrics_too() -> None:
    text_of_all = merge(OPENMETRICS, p1=text(3, OPENMETRICS), p2=text(4, OPENMETRICS))
    families = {family.name: family for family in parse_openmetrics(text_of_all)}

    assert {s.value for s in families["pulse_jobs_completed"].samples} == {3, 4}


def test_any_topic_survives_the_merge() -> None:
    metrics = Metrics()
    topics = ['he said "no"', "a{b} 1", "two\nlines", "# HELP me", "größe", "odd\u2028\x0b\rends"]
    metrics.count_topics(metrics.completed, topics)
    text_of_all = Exposition(metrics).snapshot().render("", "").body.decode()

    families = {family.name: family for family in parse_plain(merge(p1=text_of_all, p2=text_of_all))}

    labels = [sample.labels for sample in families["pulse_jobs_completed"].samples]
    assert sorted(label["topic"] for label in labels) == sorted(topics * 2)
    assert sorted(label["process"] for label in labels) == ["1"] * 6 + ["2"] * 6

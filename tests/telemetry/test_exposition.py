"""The text that Prometheus reads, read by its own parsers."""

import gzip
import re

import pytest
from prometheus_client import (
    CollectorRegistry,
    GCCollector,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.metrics_core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families as parse_plain

from pulse_server.base.exposition import Exposition, Text
from pulse_server.base.metrics import MOST_TOPICS, MOST_UNWORKED_TOPICS, OTHER_TOPICS, SECONDS, Metrics
from tests.rows import each_row

OPENMETRICS = "application/openmetrics-text; version=1.0.0,text/plain;version=0.0.4;q=0.5"


def text_of(metrics: Metrics, accept: str = "", accept_encoding: str = "") -> Text:
    return Exposition(metrics).snapshot().render(accept, accept_encoding)


def families(metrics: Metrics) -> dict[str, Metric]:
    return {family.name: family for family in parse_plain(text_of(metrics).body.decode())}


def samples(metrics: Metrics, family: str) -> dict[tuple[str, ...], float]:
    """By the sample's name and the values of its labels."""
    return {
        (sample.name, *sample.labels.values()): sample.value for sample in families(metrics)[family].samples
    }


def test_counter_is_rendered_as_a_total() -> None:
    metrics = Metrics()
    metrics.completed.add("mail", by=3)
    metrics.completed.add("sms")

    assert samples(metrics, "pulse_jobs_completed") == {
        ("pulse_jobs_completed_total", "mail"): 3,
        ("pulse_jobs_completed_total", "sms"): 1,
    }


def test_buckets_hold_all_values_up_to_their_bound() -> None:
    metrics = Metrics()
    metrics.batch_size.observe_in(("submit",), [1, 1, 2, 7, 9999])

    found = samples(metrics, "pulse_group_commit_batch_size")
    buckets = {key[-1]: value for key, value in found.items() if key[0].endswith("_bucket")}

    assert buckets["1.0"] == 2
    assert buckets["2.0"] == 3
    assert buckets["5.0"] == 3
    assert buckets["10.0"] == 4
    assert buckets["5000.0"] == 4
    assert buckets["+Inf"] == 5
    assert found["pulse_group_commit_batch_size_count", "submit"] == 5
    assert found["pulse_group_commit_batch_size_sum", "submit"] == 10010


def test_value_on_a_bound_is_in_its_bucket() -> None:
    metrics = Metrics()
    metrics.schedule_lateness.observe(value=1.0)

    found = samples(metrics, "pulse_schedule_lateness_seconds")

    assert found["pulse_schedule_lateness_seconds_bucket", "0.5"] == 0
    assert found["pulse_schedule_lateness_seconds_bucket", "1.0"] == 1


def test_finer_buckets_are_rendered_as_sums_at_the_bounds_of_a_scrape() -> None:
    metrics = Metrics()
    metrics.queue_wait.observe_in(("mail",), [1.0, 1.1, 1.2, 1.9, 2.5, 2.6, 1e9])

    found = samples(metrics, "pulse_queue_wait_seconds")
    buckets = {key[-1]: value for key, value in found.items() if key[0].endswith("_bucket")}

    assert [float(bound) for bound in buckets] == [*SECONDS, float("inf")]
    assert [buckets[bound] for bound in ("0.5", "1.0", "2.5", "5.0", "3600.0", "+Inf")] == [0, 1, 5, 6, 6, 7]
    assert found["pulse_queue_wait_seconds_count", "mail"] == 7


def test_gauge_is_read_when_it_is_rendered() -> None:
    metrics = Metrics()
    values = iter([1.0, 2.0])
    metrics.workers.read = lambda: {(): next(values)}

    assert [samples(metrics, "pulse_workers_connected") for _ in range(2)] == [
        {("pulse_workers_connected",): 1.0},
        {("pulse_workers_connected",): 2.0},
    ]


def test_gauge_without_a_reader_is_left_out() -> None:
    """Zero would be a claim."""
    assert samples(Metrics(), "pulse_running_jobs") == {}


def test_series_without_labels_are_there_from_the_start() -> None:
    assert (
        samples(Metrics(), "pulse_schedule_lateness_seconds")["pulse_schedule_lateness_seconds_count",] == 0
    )


def test_snapshot_keeps_what_was_counted_when_it_was_taken() -> None:
    metrics = Metrics()
    metrics.claimed.add("mail")
    metrics.queue_wait.observe("mail", value=1)
    snapshot = Exposition(metrics).snapshot()
    before = snapshot.render("", "").body
    metrics.claimed.add("mail")
    metrics.claimed.add("sms")
    metrics.queue_wait.observe("mail", value=1)

    own = re.compile(rb"^pulse_.*$", re.M)
    assert own.findall(snapshot.render("", "").body) == own.findall(before)


def test_openmetrics_is_rendered_on_request() -> None:
    metrics = Metrics()
    metrics.completed.add("mail")
    metrics.queue_wait.observe("mail", value=0.2)

    text = text_of(metrics, OPENMETRICS)

    assert text.content_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert text.body.endswith(b"# EOF\n")
    found = {family.name: family for family in parse_openmetrics(text.body.decode())}
    assert found["pulse_jobs_completed"].samples[0].value == 1


@each_row("accept", ["", "*/*", "text/plain;version=0.0.4", "text/html", "text/plain;version=¿"])
def test_everybody_else_gets_the_plain_format(accept: str) -> None:
    assert text_of(Metrics(), accept).content_type == "text/plain; version=0.0.4; charset=utf-8"


def test_text_is_compressed_for_who_takes_it() -> None:
    metrics = Metrics()
    text = text_of(metrics, accept_encoding="gzip, deflate")

    assert text.is_compressed
    assert b"pulse_build_info" in gzip.decompress(text.body)
    assert not text_of(metrics, accept_encoding="br").is_compressed


@each_row("topic", ['he said "no"', "back\\slash", "two\nlines", "größe", "a,b={c}", " "])
def test_any_topic_survives_the_format(topic: str) -> None:
    metrics = Metrics()
    metrics.completed.add(topic)

    assert samples(metrics, "pulse_jobs_completed") == {("pulse_jobs_completed_total", topic): 1}


def test_version_is_a_label() -> None:
    ((name, version),) = samples(Metrics(), "pulse_build_info")

    assert name == "pulse_build_info"
    assert version


def test_metrics_of_process_and_interpreter_equal_those_of_the_client_library() -> None:
    """Their names are what everybody's dashboards ask for."""
    library = CollectorRegistry()
    for collector in (ProcessCollector, PlatformCollector, GCCollector):
        collector(registry=library)

    def rendered_by_the_library() -> dict[str, Metric]:
        return {family.name: family for family in parse_plain(generate_latest(library).decode())}

    theirs = rendered_by_the_library()
    ours = families(Metrics())
    later = rendered_by_the_library()

    assert theirs.keys() == {name for name in ours if not name.startswith("pulse_")}
    for name, family in theirs.items():
        assert ours[name].type == family.type
        assert [(sample.name, sample.labels) for sample in ours[name].samples] == [
            (sample.name, sample.labels) for sample in family.samples
        ]
    for steady in ("process_start_time_seconds", "process_max_fds", "python_info"):
        assert ours[steady].samples[0].value == theirs[steady].samples[0].value
    # What a test before left to threads of gRPC may be closed meanwhile.
    before, now, after = (found["process_open_fds"].samples[0].value for found in (theirs, ours, later))
    assert min(before, after) <= now <= max(before, after)
    for moving in ("process_resident_memory_bytes", "process_virtual_memory_bytes", "process_cpu_seconds"):
        assert ours[moving].samples[0].value == pytest.approx(theirs[moving].samples[0].value, rel=0.5)


def test_every_family_has_a_help_and_stands_once() -> None:
    found = list(parse_plain(text_of(Metrics()).body.decode()))

    assert all(family.documentation for family in found)
    assert len({family.name for family in found}) == len(found)


def test_names_follow_the_conventions() -> None:
    for instrument in Metrics():
        assert re.fullmatch(r"pulse(_[a-z]+)+", instrument.name)
        assert not instrument.name.endswith(("_total", "_count", "_sum", "_bucket"))
        assert instrument.help.endswith(".")


def test_topics_past_the_bound_share_a_label() -> None:
    metrics = Metrics()
    flood = [f"topic-{number:05}" for number in range(MOST_TOPICS + 5)]
    for topic in [*flood, "topic-00000", "another"]:
        metrics.count_and_observe(metrics.claimed, metrics.queue_wait, topic, [0.1])

    found = samples(metrics, "pulse_jobs_claimed")

    assert len(found) == MOST_TOPICS + 1
    assert found["pulse_jobs_claimed_total", OTHER_TOPICS] == 6
    assert found["pulse_jobs_claimed_total", "topic-00000"] == 2


def test_flood_of_topics_without_workers_leaves_the_others_their_names() -> None:
    metrics = Metrics()
    metrics.count_topics(metrics.submitted, ["known"])
    metrics.count_topics(metrics.submitted, [f"made-up-{number:05}" for number in range(10 * MOST_TOPICS)])
    for topic in ("real", "known"):
        metrics.count_and_observe(metrics.claimed, metrics.queue_wait, topic, [0.1])
    metrics.count_topics(metrics.submitted, ["real", "known"])

    found = samples(metrics, "pulse_jobs_submitted")

    assert len(found) == MOST_UNWORKED_TOPICS + 2  # those, the one with a worker, and the rest
    assert found["pulse_jobs_submitted_total", "known"] == 2
    assert found["pulse_jobs_submitted_total", "real"] == 1

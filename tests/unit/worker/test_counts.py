from __future__ import annotations

from jobqueue.worker.counts import Counts, Histogram
from jobqueue.worker.metrics import Metrics


def test_histogram_counts_up_to_and_including_each_bound() -> None:
    histogram = Histogram((1.0, 2.0))
    for value in (0.5, 1.0, 1.5, 2.0, 9.0):
        histogram.observe(value)
    assert histogram.drain() == [[2, 2, 1], 14.0]
    assert histogram.drain() == [[0, 0, 0], 0.0]


def test_every_series_starts_at_zero_and_adds_up() -> None:
    metrics = Metrics("ns", "q", "c")
    metrics.know(["a"])
    labels = 'class="c",namespace="ns",queue="q"'
    text = metrics.text().decode()
    assert f"jobqueue_claims_total{{{labels}}} 0.0" in text
    assert 'outcome="retry"' in text
    assert 'kind="a"' in text
    assert "_created" not in text
    counts = Counts()
    counts.claims = 3
    counts.firsts = 2
    counts.attempts.observe(4)
    counts.fresh, counts.fresh_total = 3, 0.1
    counts.acked("done", 2)
    counts.acked("retry")
    counts.processed("a").observe(0.02)
    counts.gave_back("drain", 5)
    for _ in range(2):
        metrics.add(counts.drain())
    text = metrics.text().decode()
    assert f"jobqueue_claims_total{{{labels}}} 3.0" in text
    samples = {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in text.splitlines() if line[0] != "#"}
    assert samples[f"jobqueue_attempts_count{{{labels}}}"] == 3
    assert samples[f"jobqueue_attempts_sum{{{labels}}}"] == 6
    assert samples[f"jobqueue_lease_used_ratio_count{{{labels}}}"] == 3
    assert samples['jobqueue_acks_total{class="c",namespace="ns",outcome="done",queue="q"}'] == 2
    assert samples['jobqueue_released_total{class="c",namespace="ns",queue="q",reason="drain"}'] == 5

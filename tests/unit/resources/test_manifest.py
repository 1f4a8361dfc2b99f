from pathlib import Path

import pytest

from jobqueue.errors import ConfigurationError
from jobqueue_operator.manifest import ManifestError, load_manifests, parse_manifests
from jobqueue_operator.resources import DownstreamCapacity, JobQueue

FULL = Path(__file__).with_name("full.yaml")


def refused(text: str) -> list[str]:
    with pytest.raises(ManifestError) as caught:
        parse_manifests(text, name="jobqueue.yaml")
    assert isinstance(caught.value, ConfigurationError)
    assert str(caught.value).splitlines() == list(caught.value.problems)
    return [line.removeprefix("jobqueue.yaml: ") for line in caught.value.problems]


def queue(class_: str = "", spec: str = "") -> str:
    lines = "\n".join("    " + line for line in class_.splitlines())
    return f"""
apiVersion: jobqueue.dev/v1alpha1
kind: JobQueue
metadata: {{name: shop}}
spec:
  app: shop.jobs:app
{spec}
  classes:
  - name: email
    timeout: 30s
{lines}
"""


def test_every_field_of_the_full_example_is_read() -> None:
    job_queue, downstream = load_manifests(FULL)
    assert isinstance(job_queue, JobQueue)
    assert isinstance(downstream, DownstreamCapacity)
    written = job_queue.model_dump(by_alias=True, mode="json", exclude_none=True)
    (class_,) = written["spec"]["classes"]
    assert class_["lease"] == {"duration": "1m"}
    assert class_["schedule"] == [{"cron": "0 8 * * 1-5", "timeZone": "Europe/Oslo", "for": "2h", "min": 4}]
    assert class_["capacity"]["ref"] == {"name": "orders-db"}
    assert downstream.spec.units == 40
    assert JobQueue.model_validate(written) == job_queue, "what is written is read back"


def test_what_is_not_said_has_a_default() -> None:
    (job_queue,) = load_manifests(queue())
    assert isinstance(job_queue, JobQueue)
    (class_,) = job_queue.spec.classes
    assert (class_.concurrency, class_.replicas.min, class_.retry.max_attempts) == (10, 1, 10)
    assert class_.capacity is None
    assert not class_.paused


def test_null_is_the_same_as_not_said() -> None:
    assert load_manifests(queue("lease:\nreplicas: {min: null}\npaused: null")) == load_manifests(queue())


def test_a_max_that_is_not_said_follows_min() -> None:
    (job_queue,) = load_manifests(queue("replicas: {min: 30}"))
    assert isinstance(job_queue, JobQueue)
    assert job_queue.spec.classes[0].replicas.max == 30


@pytest.mark.parametrize(
    ("class_", "line"),
    [
        (
            "lease: {duration: 10 parsecs}",
            'spec.classes[0].lease.duration: "10 parsecs" is not a duration; write e.g. 30s, 2m, 1h',
        ),
        ("drain: {timeout: 5}", "spec.classes[0].drain.timeout: 5 is not a duration; write e.g. 30s, 2m, 1h"),
        ("target: {oldestMessageAge: 8d}", 'spec.classes[0].target.oldestMessageAge: "8d" is too long; the most is 7d'),
        ("timout: 3s", "spec.classes[0].timout: is not a field; did you mean timeout?"),
        ("max_attempts: 3", "spec.classes[0].max_attempts: is not a field; the fields here are name, concurrency, "),
        (
            "lease: {lenght: 3s}",
            "spec.classes[0].lease.lenght: is not a field; the fields here are duration, heartbeat",
        ),
        ('concurrency: "16"', 'spec.classes[0].concurrency: "16" is not a whole number; write e.g. 16, without quotes'),
        ("concurrency: 1.5", "spec.classes[0].concurrency: 1.5 is not a whole number; write e.g. 16, without quotes"),
        ("concurrency: true", "spec.classes[0].concurrency: true is not a whole number; "),
        ("concurrency: 0", "spec.classes[0].concurrency: 0 is too small; the least is 1"),
        ("concurrency: 1001", "spec.classes[0].concurrency: 1001 is too large; the most is 1000"),
        ("paused: yes", 'spec.classes[0].paused: "yes" is not true or false; write one of them, without quotes'),
        ("paused: 0", "spec.classes[0].paused: 0 is not true or false; "),
        (
            "lease: 60s",
            'spec.classes[0].lease: "60s" is not a mapping; write the fields below it (duration, heartbeat)',
        ),
        ("schedule: {}", "spec.classes[0].schedule: a mapping is not a list; start each entry with '- '"),
        ("capacity: {}", "spec.classes[0].capacity.ref: is missing"),
        ("capacity: {ref: {}}", "spec.classes[0].capacity.ref.name: is missing; write e.g. orders-db"),
        ("replicas: {min: 5, max: 2}", "spec.classes[0].replicas: min 5 is above max 2; lower min or raise max"),
        (
            "retry: {backoff: {initial: 1h}}",
            "spec.classes[0].retry.backoff: initial 1h is above max 10m; lower initial or raise max",
        ),
        ("retry: {backoff: {factor: .nan}}", 'spec.classes[0].retry.backoff.factor: ".nan" is not a number; '),
        (
            'schedule: [{cron: "8 8", for: 2h, min: 1}]',
            'spec.classes[0].schedule[0].cron: "8 8" is not a cron expression of five fields; write e.g. "0 8 * * 1-5"',
        ),
        (
            'schedule: [{cron: "0 8 * * *", timeZone: Mars, for: 2h, min: 1}]',
            'spec.classes[0].schedule[0].timeZone: "Mars" is not a time zone; write e.g. Europe/Oslo or UTC',
        ),
        ("podTemplate: []", "spec.classes[0].podTemplate: a list is not a mapping; "),
        (
            "lease: {duration: 5s, heartbeat: 2s}",
            (
                "spec.classes[0].lease.duration: 5s is shorter than 3 heartbeats (3 x 2s = 6s); "
                "lengthen lease.duration or shorten lease.heartbeat"
            ),
        ),
        (
            "drain: {timeout: 15m}",
            (
                "spec.classes[0].drain.timeout: the grace period (drain.timeout 15m + flush 5s + CLI start 3s "
                "+ margin 5s = 15m13s) is above drain.maxGrace 10m; "
                "state drain.timeout of at most 9m47s or raise drain.maxGrace"
            ),
        ),
    ],
)
def test_a_wrong_class_is_told_field_reason_and_remedy(class_: str, line: str) -> None:
    (found,) = refused(queue(class_))
    assert found.startswith(line) if line.endswith((" ", "missing")) else found == line


@pytest.mark.parametrize(
    ("spec", "line"),
    [
        ("  imge: x", "spec.imge: is not a field; did you mean image?"),
        ("  image: ''", "spec.image: has 0; the least is 1"),
        ("  wakeup: {type: Pigeon}", 'spec.wakeup.type: "Pigeon" is not known here; write Notify, Polling, RabbitMQ'),
        (
            "  wakeup: {type: RabbitMQ}",
            "spec.wakeup: type RabbitMQ needs rabbitmq.secretRef; add it, or use type Notify",
        ),
        ("  database: {workerSecretRef: {name: a}}", "spec.database.operatorSecretRef: is missing"),
        ("  retention: {done: 1s}", 'spec.retention.done: "1s" is too short; the least is 1m'),
    ],
)
def test_a_wrong_spec_is_told_field_reason_and_remedy(spec: str, line: str) -> None:
    assert refused(queue(spec=spec)) == [line]


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", "is empty; write a JobQueue (apiVersion: jobqueue.dev/v1alpha1, kind: JobQueue)"),
        ("- 1", "is not an object; write apiVersion, kind, metadata and spec"),
        ("kind: Deployment", "kind: 'Deployment' is not a kind this reads; write one of JobQueue, DownstreamCapacity"),
        ("kind: [x]", "kind: is missing or not a kind this reads; write one of JobQueue, DownstreamCapacity"),
        ("a: 1\nb: {c: 2, c: 3}", "line 2, column 11: key 'c' appears twice; keep one"),
        ("a: [", "line 1, column 5: expected the node content, but found '<stream end>'"),
        ("a: &x [*x]", "line 1: an alias holds itself; write the value out"),
        ("? [a]\n: b", "line 1, column 3: a key is not plain text; quote it"),
        ("1: a", "line 1, column 1: a key is not plain text; quote it"),
        ("\x00", "holds characters that YAML does not allow; save it as UTF-8 text"),
        ("[" * 5000, "is nested more than 64 levels deep; flatten it"),
        ("[" * 70 + "]" * 70, "is nested more than 64 levels deep; flatten it"),
        ("a: !!timestamp 2001-99-99", "holds a value that cannot be read: month must be in 1..12; quote it"),
        ("a: " + "x" * 2_000_000, "has more than 1048576 bytes; split it"),
    ],
)
def test_what_is_no_manifest_is_said_so(text: str, line: str) -> None:
    assert refused(text) == [line]


def test_no_tag_builds_an_object() -> None:
    (line,) = refused("a: !!python/object/apply:os.system ['true']")
    assert "could not determine a constructor" in line


def test_a_bomb_of_aliases_is_refused_before_it_is_built() -> None:
    levels = "".join(f"- &{chr(98 + i)} [{','.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(9))
    assert refused("- &a [1,1,1,1,1,1,1,1,1]\n" + levels) == ["holds more than 50000 values; split it"]


def test_everything_wrong_is_said_at_once_and_names_the_object() -> None:
    text = (
        queue("timeout: 5s", spec="  nonsense: 1").replace("    timeout: 30s\n", "")
        + "  - {name: slow, timeout: 1h}\n  - {name: B, timeout: 1}\n"
        + "---\nkind: Pod\n---\n"
        + "apiVersion: v1\nkind: DownstreamCapacity\nmetadata: {name: db}\nspec: {units: 0}\n"
    )
    lines = refused(text)
    assert [line.split(": ")[:2] for line in lines] == [
        ["JobQueue shop", "spec.classes[2].name"],
        ["JobQueue shop", "spec.classes[2].timeout"],
        ["JobQueue shop", "spec.nonsense"],
        ["JobQueue shop", "spec.classes[1].drain.timeout"],
        ["document 2", "kind"],
        ["DownstreamCapacity db", "apiVersion"],
        ["DownstreamCapacity db", "spec.units"],
    ]


def test_two_classes_of_one_name_are_refused() -> None:
    assert refused(queue() + "  - {name: email, timeout: 1s}") == [
        "spec: classes: email appears more than once; give each class its own name"
    ]


DOWNSTREAM = """---
apiVersion: jobqueue.dev/v1alpha1
kind: DownstreamCapacity
metadata: {name: db}
spec: {units: 10}
"""


def test_minimums_above_the_limit_are_refused_with_the_sum() -> None:
    text = (
        queue("capacity: {ref: {name: db}, minUnits: 6}")
        + "  - {name: slow, timeout: 1s, capacity: {ref: {name: db}, minUnits: 5}}\n"
    )
    assert refused(text + DOWNSTREAM) == [
        (
            "DownstreamCapacity db: spec.units: the classes reserve email 6 + slow 5 = 11 units, above 10; "
            "lower minUnits or replicas.min, or raise units"
        )
    ]


def test_workers_kept_whatever_the_demand_are_reserved_too_but_for_idle_slots_of_the_last() -> None:
    def three(slots: int) -> str:
        more = f"capacity: {{ref: {{name: db}}}}, replicas: {{min: 3}}, concurrency: {slots}"
        return queue() + f"  - {{name: slow, timeout: 1s, {more}}}\n" + DOWNSTREAM

    assert refused(three(5)) == [
        (
            "DownstreamCapacity db: spec.units: the classes reserve slow 11 = 11 units, above 10; "
            "lower minUnits or replicas.min, or raise units"
        )
    ]
    assert parse_manifests(three(4), name="jobqueue.yaml")


def test_a_job_that_can_never_run_is_refused() -> None:
    (line,) = refused(queue("capacity: {ref: {name: db}, unitsPerJob: 8, unitsPerPod: 3}") + DOWNSTREAM)
    assert "unitsPerJob 8 + unitsPerPod 3 = 11 units, above the 10 of db" in line


def test_one_object_twice_is_refused() -> None:
    assert refused(DOWNSTREAM + DOWNSTREAM) == ["metadata.name: DownstreamCapacity default/db appears twice; keep one"]


def test_a_file_that_is_not_there_or_not_text(tmp_path: Path) -> None:
    with pytest.raises(ManifestError, match="cannot be read: No such file or directory"):
        load_manifests(tmp_path / "nothing.yaml")
    (tmp_path / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(ManifestError, match="is not UTF-8 text"):
        load_manifests(tmp_path / "binary.yaml")


def test_many_problems_are_bounded() -> None:
    classes = "".join(f"  - {{name: c{i}, timeout: 1, paused: 1}}\n" for i in range(40))
    with pytest.raises(ManifestError) as caught:
        parse_manifests(queue() + classes)
    assert len(caught.value.problems) == 80
    assert str(caught.value).splitlines()[-1] == "… and 30 more"

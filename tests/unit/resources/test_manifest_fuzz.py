"""Whatever is written, the answer is objects or a ManifestError that names fields: never another exception."""

import copy
import random
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from jobqueue_operator.manifest import ManifestError, parse_manifests
from services.nested import places

FULL = Path(__file__).with_name("full.yaml").read_text()
DOCUMENTS = [d for d in yaml.safe_load_all(FULL) if d]
ODD: list[Any] = [
    *(None, True, False, 0, -1, 1.5, 10**17, float("inf"), float("nan")),
    *("", " ", "x", "30s", "-1s", "1e9d", "\ud83d\ude00", "a" * 5000, "0 8 * * *", "Mars", "null", "~", "<<"),
    *([], {}, [[]], [None], {"name": None}, {"": 0}, [1, "x", {}], {"min": "1"}),
]


def spoil(document: Any, rng: random.Random) -> Any:
    """Change one to four places of a manifest: another value, a field removed, renamed or added, an entry repeated."""
    document = copy.deepcopy(document)
    for _ in range(rng.randint(1, 4)):
        choices = places(document)
        if not choices:
            break
        *way, last = rng.choice(choices)
        holder = document
        for key in way:
            holder = holder[key]
        match rng.randrange(5):
            case 0:
                del holder[last]
            case 1 if isinstance(holder, dict):
                holder[f"{last}x"] = holder.pop(last)
            case 2 if isinstance(holder, dict):
                holder[rng.choice(["extra", "spec", "min", "name", "timeout"])] = rng.choice(ODD)
            case 3 if isinstance(holder, list):
                holder.append(copy.deepcopy(holder[last]))
            case _:
                holder[last] = copy.deepcopy(rng.choice(ODD))
    return document


def judge(text: str) -> bool:
    try:
        found = parse_manifests(text)
    except ManifestError as error:
        problems = error.problems
    else:
        assert found
        return True
    assert problems
    for line in problems:
        assert line.startswith("manifest: ")
        assert "\n" not in line
        assert len(line) < 1500
    return False


@pytest.mark.parametrize("seed", range(10))
def test_a_thousand_spoilt_manifests(seed: int) -> None:
    rng = random.Random(seed)  # noqa: S311 - to be repeated, not to be secret
    accepted = sum(
        judge(yaml.safe_dump_all([spoil(rng.choice(DOCUMENTS), rng) for _ in range(rng.randint(1, 2))]))
        for _ in range(100)
    )
    assert 0 < accepted < 100, "both answers must occur, or nothing was tried"


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(max_size=200))
def test_any_text(text: str) -> None:
    assert not judge(text)


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(st.text(alphabet="ab:-[]{},&*!|>'\"#?%@ \n\t012.<~", max_size=60))
def test_any_text_that_looks_like_yaml(text: str) -> None:
    assert not judge(text)

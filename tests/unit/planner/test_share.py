from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jobqueue_operator.planner.share import Claimant, divide


def claimant(key: str, wanted: int, charge: int = 1, **more: float) -> Claimant:
    return Claimant(key=key, charge=charge, wanted=wanted, **more)  # type: ignore[arg-type]


claimants = st.lists(
    st.builds(
        Claimant,
        key=st.text("abcdefgh", min_size=1, max_size=4),
        charge=st.integers(1, 20),
        wanted=st.integers(0, 40),
        minimum=st.integers(0, 5),
        weight=st.integers(1, 1000).map(float),
        priority=st.integers(0, 3),
        lateness=st.floats(0, 1e6),
    ),
    max_size=6,
    unique_by=lambda c: c.key,
)
units = st.integers(0, 400)


def used(got: dict[str, int], asked: list[Claimant]) -> int:
    return sum(got[c.key] * c.charge for c in asked)


@pytest.mark.parametrize(
    ("limit", "asked", "got"),
    [
        (10, [claimant("a", 4), claimant("b", 4)], {"a": 4, "b": 4}),
        (10, [claimant("a", 20), claimant("b", 20)], {"a": 5, "b": 5}),
        (10, [claimant("a", 2), claimant("b", 20)], {"a": 2, "b": 8}),
        (12, [claimant("a", 20, weight=3), claimant("b", 20)], {"a": 9, "b": 3}),
        # A minimum is kept although nobody wants it, and counts within the share.
        (10, [claimant("a", 0, minimum=4), claimant("b", 20)], {"a": 4, "b": 6}),
        (10, [claimant("a", 20, minimum=4), claimant("b", 20)], {"a": 5, "b": 5}),
        # A higher tier first, and what it leaves.
        (10, [claimant("a", 7, priority=1), claimant("b", 20)], {"a": 7, "b": 3}),
        (10, [claimant("a", 20, priority=1), claimant("b", 20, minimum=2)], {"a": 8, "b": 2}),
        # Twice as late weighs twice; eight times at most.
        (12, [claimant("a", 20, lateness=2), claimant("b", 20, lateness=0.5)], {"a": 8, "b": 4}),
        (18, [claimant("a", 40, lateness=100), claimant("b", 40)], {"a": 16, "b": 2}),
        # Whole workers; the rest goes to the latest that it is enough for.
        (10, [claimant("a", 9, 4), claimant("b", 9, 2)], {"a": 1, "b": 3}),
        (7, [claimant("a", 9, 2, lateness=0.1), claimant("b", 9, 2, lateness=0.9)], {"a": 1, "b": 2}),
        (0, [claimant("a", 3), claimant("b", 0)], {"a": 0, "b": 0}),
    ],
)
def test_division(limit: int, asked: list[Claimant], got: dict[str, int]) -> None:
    assert divide(limit, asked) == got


@given(units, claimants)
def test_never_more_than_there_is_and_never_more_than_wanted_or_reserved(limit: int, asked: list[Claimant]) -> None:
    got = divide(limit, asked)
    assert used(got, asked) <= limit
    assert all(0 <= got[c.key] <= max(c.wanted, c.minimum) for c in asked)


@given(units, claimants)
def test_a_minimum_that_fits_is_kept(limit: int, asked: list[Claimant]) -> None:
    if sum(c.minimum * c.charge for c in asked) <= limit:
        got = divide(limit, asked)
        assert all(got[c.key] >= c.minimum for c in asked)


@given(units, claimants)
def test_nothing_is_left_over_that_somebody_wants(limit: int, asked: list[Claimant]) -> None:
    got = divide(limit, asked)
    left = limit - used(got, asked)
    assert not [c for c in asked if got[c.key] < c.wanted and c.charge <= left]


@given(units, claimants.filter(lambda found: len(found) <= 4))
def test_the_order_of_the_claimants_says_nothing(limit: int, asked: list[Claimant]) -> None:
    first = divide(limit, asked)
    assert all(divide(limit, order) == first for order in permutations(asked))


@given(units, claimants, st.integers(1, 10))
def test_a_heavier_weight_never_costs(limit: int, asked: list[Claimant], factor: int) -> None:
    if not asked or any(c.charge != asked[0].charge for c in asked):
        return  # with unequal workers, rounding may turn a unit's gain into a worker's loss
    heavier = [
        Claimant(
            key=c.key,
            charge=c.charge,
            wanted=c.wanted,
            minimum=c.minimum,
            weight=c.weight * (factor if c is asked[0] else 1),
            priority=c.priority,
            lateness=c.lateness,
        )
        for c in asked
    ]
    assert divide(limit, heavier)[asked[0].key] >= divide(limit, asked)[asked[0].key] - 1


@given(units, claimants)
def test_a_lower_tier_takes_nothing_that_a_higher_one_could_use(limit: int, asked: list[Claimant]) -> None:
    plain = [c for c in asked if not c.minimum]
    got = divide(limit, plain)
    for high in plain:
        below = sum(got[c.key] * c.charge for c in plain if c.priority < high.priority)
        if got[high.key] < high.wanted:
            assert below + limit - used(got, plain) < high.charge

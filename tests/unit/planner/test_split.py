from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from jobqueue_operator.planner.split import Held, Split, step


def test_one_database_has_it_all_at_once() -> None:
    assert step(40, {"a": 3}, {"a": Held(10, 5)}).limits == {"a": 40}


def test_units_move_only_when_they_have_been_given_up() -> None:
    wanted = {"a": 10, "b": 30}
    told = step(40, wanted, {"a": Held(40, 35), "b": Held(0, 0)})
    assert told.limits == {"a": 10, "b": 0}  # under the old limit there may be 40 in flight by now
    told = step(40, wanted, {"a": Held(10, 25), "b": Held(0, 0)}, told)
    assert told.limits == {"a": 10, "b": 15}
    assert step(40, wanted, {"a": Held(10, 10), "b": Held(15, 15)}, told).limits == {"a": 10, "b": 30}


def test_what_cannot_be_read_keeps_what_it_was_told() -> None:
    told = step(40, {"a": 10, "b": 30}, {"a": None, "b": Held(10, 10)}, Split({"a": 30, "b": 10}, {"a": 30, "b": 10}))
    assert told.limits == {"a": 30, "b": 10}
    # Never told, never read: it may hold to anything.
    assert step(40, {"a": 10, "b": 30}, {"a": None, "b": Held(0, 0)}).limits == {"a": 0, "b": 0}


def test_what_nobody_wants_is_spread() -> None:
    assert step(9, {"a": 0, "b": 0}, {"a": Held(0, 0), "b": Held(0, 0)}).limits == {"a": 5, "b": 4}


moves = st.lists(
    st.tuples(
        st.just(0) | st.integers(0, 60),  # the downstream's limit; 0: as it was
        st.lists(st.integers(0, 60), min_size=3, max_size=3),  # what each database wants
        st.lists(st.integers(0, 60), min_size=3, max_size=3),  # how many of its jobs end
        st.lists(st.integers(0, 60), min_size=3, max_size=3),  # how many it tries to claim
        st.lists(st.booleans(), min_size=3, max_size=3),  # whether it can be read
    ),
    max_size=12,
)


@given(st.integers(1, 60), moves)
def test_in_flight_over_all_databases_never_exceeds_the_limit(first: int, sequence: list[Any]) -> None:
    """Claims hold to the limit of their own database, at any moment between two looks; jobs end when they like."""
    names = ("a", "b", "c")
    limits = dict.fromkeys(names, 0)
    running = dict.fromkeys(names, 0)
    told = Split(dict(limits), dict(limits))
    limit = first
    for changed, wants, ends, claims, readable in sequence:
        limit = changed or limit
        # A limit that falls is only reached when jobs have ended: until then each database may have in flight what it
        # has, and claim up to what it was told.
        ceiling = max(limit, sum(max(running[n], limits[n]) for n in names))
        seen = {n: Held(limits[n], running[n]) if r else None for n, r in zip(names, readable, strict=True)}
        for n, c in zip(names, claims, strict=True):  # after the look, before the new limits are told
            running[n] += max(min(c, limits[n] - running[n]), 0)
        told = step(limit, dict(zip(names, wants, strict=True)), seen, told)
        for n in names:
            if seen[n] is not None:
                limits[n] = told.limits[n]
        for n, e, c in zip(names, ends, claims, strict=True):
            running[n] -= min(e, running[n])
            running[n] += max(min(c, limits[n] - running[n]), 0)
        assert sum(running.values()) <= ceiling
        assert sum(told.limits.values()) <= max(ceiling, limit)

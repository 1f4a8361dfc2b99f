"""Hypothesis strategies for facts, plans and specs: anything that their types allow."""

from __future__ import annotations

from hypothesis import strategies as st

from jobqueue_operator.planner.facts import (
    Arrivals,
    Attempts,
    ClassFacts,
    DownstreamFacts,
    Facts,
    Phase,
    Span,
    WorkerFacts,
)
from jobqueue_operator.planner.plan import Allocation, Bound, Decision, Plan, Pool, Reason, Remark, Share, Terms
from jobqueue_operator.planner.wanted import PoolSpec, Wanted
from unit.planner.world import spec

numbers = st.floats(allow_nan=False) | st.floats(0, 1e6, allow_nan=False)
counts = st.integers(-5, 10**12)
text = st.text(st.characters(exclude_categories=["Cs"]), max_size=8)
keys = st.sampled_from(["email", "invoice"]) | text
spans = st.builds(Span, numbers, numbers, numbers)
attempts = st.builds(
    Attempts, window=numbers, finished=st.tuples(spans), running=st.lists(spans, max_size=3).map(tuple), failed=numbers
)
classes = st.builds(
    ClassFacts,
    ready=counts,
    ages=st.lists(numbers, max_size=8).map(tuple),
    oldest_age=numbers,
    due_soon=st.lists(st.tuples(numbers, counts), max_size=3).map(tuple),
    paused=st.booleans(),
    arrivals=st.builds(Arrivals, tick=numbers, last=numbers, before=numbers, in_20s=numbers, in_60s=numbers),
    attempts=attempts,
    estimated=st.booleans(),
)
workers = st.builds(
    WorkerFacts,
    name=text,
    class_=keys,
    phase=st.sampled_from(Phase),
    revision=text,
    age=numbers,
    busy=counts,
    slots=st.none() | counts,
    admitted=st.booleans(),
    started_in=st.none() | numbers,
    last_error=text,
)
observed = st.builds(
    Facts,
    visible=st.booleans(),
    classes=st.dictionaries(keys, classes, max_size=3),
    downstreams=st.dictionaries(
        text, st.lists(st.builds(DownstreamFacts, limit=counts, database=text), max_size=2).map(tuple), max_size=2
    ),
    workers=st.lists(workers, max_size=3).map(tuple),
    connections=st.dictionaries(text, counts, max_size=2),
)
remarks_ = st.from_type(Remark)
terms = st.builds(Terms, target=numbers, slots=counts, service=numbers, up=counts, catch_up=numbers)
decisions = st.builds(
    Decision,
    counts,
    st.sampled_from(Reason),
    text,
    st.none() | terms,
    st.lists(st.from_type(Bound), max_size=2).map(tuple),
    st.lists(remarks_, max_size=2).map(tuple),
)
plans = st.builds(
    Plan,
    st.lists(st.builds(Pool, keys, text, decisions, take_back=st.lists(text, max_size=2).map(tuple)), max_size=2).map(
        tuple
    ),
    st.lists(
        st.builds(
            Allocation,
            downstream=text,
            in_use=st.none() | counts,
            shares=st.lists(st.builds(Share, pool=text, held_back_by=st.tuples(text)), max_size=2).map(tuple),
            limits=st.dictionaries(text, counts, max_size=2),
            remarks=st.tuples(remarks_),
        ),
        max_size=2,
    ).map(tuple),
)
specs = st.builds(
    spec,
    concurrency=st.integers(1, 1000),
    target=st.integers(100, 10**8).map(lambda ms: {"oldestMessageAge": f"{ms}ms"}),
    replicas=st.integers(0, 9).map(lambda least: {"min": least}),
    paused=st.booleans(),
)
wanteds = st.builds(
    Wanted, pools=st.lists(st.builds(PoolSpec, key=keys, spec=specs, revision=text), max_size=3).map(tuple)
)

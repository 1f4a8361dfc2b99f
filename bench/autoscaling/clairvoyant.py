"""A lower bound on the pod-seconds of any policy that keeps every wait at or below the target, as far as pods can.

What is computed is a linear program, of which every such policy's run is a feasible point of at most its own cost:

- Work may be split and shared out freely, as long as a job is worked on no sooner and no faster than one attempt from
  when it is due, and no later than one that starts after waiting T. With A(t) the work that is possible by t, the sum
  of min(S, (t - due)+), and D(t) what must be done by t, the sum of min(S, (t - due - T)+), any run that keeps the
  promise has done between D(t) and A(t) at each t. (A retry becomes due when all attempts before it began at once, at
  the earliest, and when each waited T, at the latest.)
- Pods are fractions: u(t) ready ones do at most c x u(t) work a second; at most the cap of them; those beyond the ones
  given at the start cost tau more each time their number rises, and there are none of them before tau.
- Cost: the integral of u, plus tau for every rise.

Time is cut into steps; the conditions are asked for at their ends only, with u averaged over a step, which leaves out
conditions and adds none. Where the cap makes the promise impossible, work above it is late by as little as it can be
(a slack whose price is far above a pod's). What the bound does not see makes it lower: whole pods, whole jobs in whole
slots, deaths of workers, a downstream that slows down, not knowing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
from scipy.optimize import linprog
from scipy.sparse import bmat, eye, identity

if TYPE_CHECKING:
    from bench.autoscaling.load import Floats, Load

STEP = 5.0
LATE_PRICE = 1000.0
"""Pod-seconds for each second of work that is late at the end of a step."""


def bound(load: Load, delay: float, *, step: float = STEP) -> float:
    """Return the bound in pod-seconds; `delay` is tau, the shortest that any pod has."""
    edges = np.arange(step, load.horizon + step / 2, step)
    earliest, latest, work = _attempts(load)
    possible = _done(edges, earliest, work)
    must = np.minimum(_done(edges, latest, work), possible)
    many = len(edges)
    most = np.full(many, float(load.cap))
    most[edges <= delay] = min(load.first, load.cap)
    one, none = identity(many), None
    rise = eye(many) - eye(many, k=-1)
    # Unknowns: u, rises of u, work done, work late.
    conditions = bmat(
        [
            [rise, -one, none, none],
            [-load.slots * step * one, none, rise, none],
            [none, none, -rise, none],
            [none, none, -one, -one],
        ],
        format="csr",
    )
    limits = np.concatenate([np.eye(1, many)[0] * load.first, np.zeros(many), np.zeros(many), -must])
    price = np.concatenate([np.full(many, step), np.full(many, delay), np.zeros(many), np.full(many, LATE_PRICE)])
    top = np.concatenate([most, np.full(many, np.inf), possible, np.full(many, np.inf)])
    solve: Any = linprog  # its stubs know of no sparse matrix
    found = solve(price, conditions, limits, bounds=np.column_stack([np.zeros(4 * many), top]), method="highs")
    if found.status != 0:
        raise RuntimeError(f"{load.name}: the bound's linear program was not solved: {found.message}")
    return float(price[: 2 * many] @ found.x[: 2 * many])


def _attempts(load: Load) -> tuple[Floats, Floats, Floats]:
    """Return when each attempt may begin at the earliest and at the latest, and its length."""
    if load.failures is None:
        return load.due, load.due + load.target, load.service
    earliest, latest, work = [load.due], [load.due + load.target], [load.service]
    at = load.due.copy()
    for attempt in range(1, int(load.failures.max(initial=0)) + 1):
        again = load.failures >= attempt
        waits = np.array([load.wait_before(attempt, job) for job in np.flatnonzero(again).tolist()])
        at[again] += load.service[again] + waits
        earliest.append(at[again])
        latest.append(at[again] + (attempt + 1) * load.target)
        work.append(load.service[again])
    return np.concatenate(earliest), np.concatenate(latest), np.concatenate(work)


def _done(edges: Floats, begin: Floats, work: Floats) -> Floats:
    """Return the work done by each edge when all attempts begin at these moments."""
    return _ramps(edges, begin) - _ramps(edges, begin + work)


def _ramps(edges: Floats, begin: Floats) -> Floats:
    ordered = np.sort(begin)
    sums = np.concatenate([[0.0], np.cumsum(ordered)])
    count = np.searchsorted(ordered, edges, side="right")
    return np.asarray(edges * count - sums[count])

"""`python -m bench.reliability CAMPAIGN|all [--seed N] [--jobs N] [--faults N]`."""

from __future__ import annotations

import argparse
import importlib
import sys
import time
from dataclasses import dataclass

from bench.reliability.stage import Stage


@dataclass(frozen=True)
class Campaign:
    """The full size of one campaign, and the lease its class has, in seconds."""

    jobs: int
    faults: int
    lease: float


CAMPAIGNS = {
    "kills": Campaign(jobs=10_000, faults=50, lease=3),
    "restarts": Campaign(jobs=4_000, faults=15, lease=10),
    "freezes": Campaign(jobs=2_000, faults=50, lease=2),
    "terminations": Campaign(jobs=5_000, faults=100, lease=10),
    "rollouts": Campaign(jobs=6_000, faults=30, lease=10),
    "leaks": Campaign(jobs=100_000, faults=0, lease=30),
}


def main() -> int:
    """Run one campaign or all; 1 when a figure does not hold."""
    parser = argparse.ArgumentParser(prog="python -m bench.reliability", description=__doc__)
    parser.add_argument("campaign", choices=[*CAMPAIGNS, "all"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, help="jobs instead of the campaign's own number")
    parser.add_argument("--faults", "--kills", type=int, help="faults instead of the campaign's own number")
    given = parser.parse_args()
    held = True
    for name in CAMPAIGNS if given.campaign == "all" else [given.campaign]:
        size = CAMPAIGNS[name]
        print(f"{name}: seed {given.seed} …", file=sys.stderr, flush=True)
        began = time.monotonic()
        with Stage(given.seed, lease=size.lease) as stage:
            run = importlib.import_module(f"bench.reliability.{name}").run
            faults = size.faults if given.faults is None else given.faults
            verdict = run(stage, given.seed, jobs=given.jobs or size.jobs, faults=faults)
        verdict.tell("seconds", round(time.monotonic() - began, 1))
        print(verdict.table(), f"\nwritten to {verdict.write()}\n", sep="\n", flush=True)
        held = held and verdict.holds
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())

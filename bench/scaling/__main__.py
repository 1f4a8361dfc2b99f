"""`python -m bench.scaling SCENE…|all [--seed N]`: scale real workers on this machine, and judge and draw it."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from bench.scaling import plot
from bench.scaling.scenes import SCENES


def main() -> int:
    """Run one scene or all; 1 when a figure does not hold."""
    parser = argparse.ArgumentParser(prog="python -m bench.scaling", description=__doc__)
    parser.add_argument("scenes", nargs="+", choices=[*SCENES, "all"])
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--output", type=Path, default=Path("bench/results"), help="folder for pictures")
    given = parser.parse_args()
    held = True
    for name in SCENES if "all" in given.scenes else given.scenes:
        print(f"{name}: seed {given.seed} …", file=sys.stderr, flush=True)
        began = time.monotonic()
        verdict, theatre = SCENES[name](given.seed)
        verdict.tell("seconds", round(time.monotonic() - began, 1))
        picture = given.output / f"{verdict.campaign}.png"
        plot.draw(theatre, f"{(SCENES[name].__doc__ or name).splitlines()[0]} (seed {given.seed})", picture)
        print(verdict.table(), f"\nwritten to {verdict.write()} and {picture}\n", sep="\n", flush=True)
        held = held and verdict.holds
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())

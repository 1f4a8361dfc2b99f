"""Reliability campaigns: real workers under load, hurt at seeded random moments, and judged by the queue's record."""

import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

# Servers, databases and processes come from the tests' own services.
for _folder in (ROOT / "tests", ROOT / "worker_image"):
    if str(_folder) not in sys.path:
        sys.path.append(str(_folder))

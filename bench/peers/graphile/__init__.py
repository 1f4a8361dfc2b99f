"""graphile-worker (node): the fastest peer in PostgreSQL, measured with its own performance test's settings.

Its log is silenced. It deletes a finished job's row; we keep a record.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from bench.server import Server

HERE = Path(__file__).resolve().parent
CONCURRENCY = 24
LOCAL_QUEUE = 500


def install() -> Path | None:
    """Install the npm package into a cache folder; return it, or None where there is no node or no registry."""
    if not shutil.which("node") or not shutil.which("npm"):
        return None
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "jobqueue-bench" / "graphile"
    cache.mkdir(parents=True, exist_ok=True)
    for file in ("package.json", "drain.mjs", "migrate.mjs", "enqueue.mjs"):
        if (HERE / file).exists():
            shutil.copy(HERE / file, cache / file)
    wanted = json.loads((HERE / "package.json").read_text())["dependencies"]["graphile-worker"]
    manifest = cache / "node_modules" / "graphile-worker" / "package.json"
    if not manifest.exists() or json.loads(manifest.read_text())["version"] != wanted:
        done = subprocess.run(["npm", "install", "--no-audit", "--no-fund", "--silent"], cwd=cache, check=False)
        if done.returncode:
            return None
    return cache


def version(folder: Path) -> str:
    """Return the installed version."""
    return str(json.loads((folder / "node_modules" / "graphile-worker" / "package.json").read_text())["version"])


def node(folder: Path, script: str, *args: str) -> str:
    """Run one of the scripts; return what it printed."""
    return subprocess.run(
        ["node", script, *args],
        cwd=folder,
        check=True,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "NODE_ENV": "production", "NO_LOG_SUCCESS": "1"},
    ).stdout


def prepare(server: Server, folder: Path, database: str, jobs: int) -> None:
    """Make its schema with `jobs` due rows, added with its own bulk function."""
    server.create(database)
    node(folder, "migrate.mjs", server.url(database))
    with server.connect(database) as conn:
        for start in range(0, jobs, 10_000):
            conn.execute(
                "SELECT count(*) FROM graphile_worker.add_jobs(ARRAY("
                "SELECT json_populate_record(null::graphile_worker.job_spec,"
                " json_build_object('identifier', 'noop', 'payload', json_build_object('n', n)))"
                " FROM generate_series(%s::int, %s::int) AS g(n)))",
                [start + 1, min(start + 10_000, jobs)],
            )
    server.settle(database)


def drain(
    server: Server, folder: Path, database: str, jobs: int, *, local_queue: int = LOCAL_QUEUE
) -> dict[str, float]:
    """Work everything off with one node process; return jobs a second, and the process's time for one."""
    answer = json.loads(
        node(folder, "drain.mjs", server.url(database), str(jobs), str(CONCURRENCY), str(local_queue)).splitlines()[-1]
    )
    return {"rate": jobs / answer["seconds"], "client_us": answer["cpu_seconds"] / jobs * 1e6}


def enqueue(server: Server, folder: Path, database: str, jobs: int, batch: int) -> float:
    """Add jobs with addJobs, `batch` a call; return jobs a second."""
    answer = json.loads(node(folder, "enqueue.mjs", server.url(database), str(jobs), str(batch)).splitlines()[-1])
    return jobs / float(answer["seconds"])

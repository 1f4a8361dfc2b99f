"""What the rest of the runner hears of acknowledgements."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from jobqueue.worker.acks import Acks
from jobqueue.worker.counts import Counts
from jobqueue.worker.workload import Workload

if TYPE_CHECKING:
    from jobqueue.worker.link import Link
    from jobqueue.worker.pipe import Pipe
    from jobqueue.worker.workload import Held


class Told:
    """A pipe that only remembers."""

    def __init__(self) -> None:
        self.numbers: list[list[int]] = []

    def send_numbers(self, _kind: int, numbers: list[int]) -> None:
        self.numbers.append(numbers)


class Job:
    token = 7


def test_a_job_that_its_own_transaction_ended_makes_room_under_a_limit_at_once() -> None:
    workload, pipe = Workload(1), Told()
    job: Any = Job()
    workload.held[job.token] = job
    acks = Acks(cast("Link", None), workload, Counts(), cast("Pipe", pipe), "jobqueue", log_jobs=False)
    looks = []
    acks.on_answer = lambda: looks.append(len(workload.held))
    acks.forget(cast("Held", job))
    assert looks == [0], "the claim looks again, after the job is no longer held"
    assert pipe.numbers == [[7]]

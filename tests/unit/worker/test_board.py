from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from jobqueue.worker.board import CURRENT, CURRENT_DEADLINE, RING, Board

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def boards() -> Iterator[tuple[Board, Board]]:
    """The runner's and the supervisor's."""
    ours = Board.create(3)
    theirs = Board(os.dup(ours.descriptor), 3)
    yield ours, theirs
    ours.close()
    theirs.close()


def test_what_one_side_writes_the_other_reads(boards: tuple[Board, Board]) -> None:
    runner, supervisor = boards
    assert supervisor.glance().current is None
    runner.cells[CURRENT_DEADLINE] = 5_000_000_000
    runner.cells[CURRENT] = 77
    runner.thread_started(2, 88, 6.5)
    glance = supervisor.glance()
    assert glance.current == (77, 5.0)
    assert glance.threads == ((88, 6.5),)
    runner.thread_ended(2)
    assert supervisor.glance().threads == ()


def test_finished_and_started_are_kept_apart_and_the_last_ones_win(boards: tuple[Board, Board]) -> None:
    runner, supervisor = boards
    assert supervisor.finished_tokens() == supervisor.started_tokens() == set()
    for token in range(1, RING + 11):
        runner.started(token)
    runner.finished(2**63 - 1)
    assert supervisor.finished_tokens() == {2**63 - 1}
    assert supervisor.started_tokens() == set(range(11, RING + 11))
    runner.thread_started(2, 5, 1.0)
    assert supervisor.finished_tokens() == {2**63 - 1}


def test_a_board_of_another_size_is_refused(boards: tuple[Board, Board]) -> None:
    runner, _ = boards
    with pytest.raises((ValueError, OSError)):
        Board(runner.descriptor, 4_000)

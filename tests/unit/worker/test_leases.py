from __future__ import annotations

from array import array

from jobqueue.worker.leases import Leases


def held() -> Leases:
    leases = Leases(duration=30)
    leases.hold(array("q", [100_000_000_000, 1, 11, 2, 12]))
    leases.hold(array("q", [110_000_000_000, 3, 13]))
    return leases


def test_holds_by_token_from_when_the_claim_was_sent() -> None:
    leases = held()
    assert len(leases) == 3
    assert leases.pairs() == [(1, 11), (2, 12), (3, 13)]
    assert leases.pairs({12, 99}) == [(2, 12)]
    assert leases.end(11) == 130
    assert leases.end(99) is None


def test_only_those_renewed_long_ago_are_due() -> None:
    leases = held()
    assert leases.due(before=105) == [(1, 11), (2, 12)]
    leases.renewed([11, 99], sent=120)
    assert leases.due(before=115) == [(2, 12), (3, 13)]
    assert leases.end(11) == 150


def test_lost_ones_are_held_but_never_renewed() -> None:
    leases = held()
    leases.lose([12, 99])
    assert leases.due(before=1000) == [(1, 11), (3, 13)]
    assert 12 in leases
    leases.drop([12])
    assert 12 not in leases


def test_dropping_what_is_not_held_is_nothing() -> None:
    leases = held()
    leases.drop(array("q", [11, 11, 99]))
    assert leases.pairs() == [(2, 12), (3, 13)]

"""What a database may send: so much an answer, so much in a second, so much beside others."""

from __future__ import annotations

from jobqueue_operator.queues.allowance import MIB, MOST, SMALL, TOGETHER_MOST, WORK_MOST, Allowance, UnderWay


def test_each_answer_has_the_whole_allowance_and_not_a_byte_more() -> None:
    allowance = Allowance(100)
    assert allowance.spend(60, 0.0)
    assert allowance.spend(40, 1.0)
    allowance.renew()
    assert allowance.spend(100, 2.0)
    assert not allowance.spend(1, 1_000.0)


def test_whoever_sent_too_much_once_is_not_read_any_more() -> None:
    allowance = Allowance(100)
    assert not allowance.spend(101, 0.0)
    allowance.renew()
    assert not allowance.spend(1, 1.0)
    assert not allowance.work(0.0)


def test_a_listener_may_be_sent_a_rate_for_ever_but_no_more() -> None:
    allowance = Allowance(100, per_second=10.0)
    assert all(allowance.spend(10, float(second)) and allowance.work(0.4) for second in range(1_000))
    assert not all(allowance.spend(15, 1_000.0 + second) for second in range(30))


def test_reading_may_keep_the_process_busy_for_so_long_an_answer() -> None:
    allowance = Allowance()
    for _ in range(3):
        assert allowance.work(WORK_MOST * 0.9)
        allowance.renew()
    assert allowance.work(WORK_MOST * 0.9)
    assert not allowance.work(WORK_MOST * 0.2)
    assert "to read" in allowance.refusal


def test_small_answers_pass_while_large_ones_of_many_are_under_way() -> None:
    together = UnderWay()
    large = [Allowance(together=together) for _ in range(TOGETHER_MOST // MOST)]
    assert all(each.spend(MOST, 0.0) for each in large)
    small, another = Allowance(together=together), Allowance(together=together)
    assert small.spend(SMALL, 0.0)
    assert not another.spend(SMALL + 1, 0.0)
    assert "all databases together" in another.refusal
    for each in (*large, small, another):
        each.renew()
    assert together.size == 0
    assert Allowance(together=together).spend(10 * MIB, 0.0)

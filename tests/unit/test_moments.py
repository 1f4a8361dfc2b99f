"""Times as people type them: what is refused comes with a hint that is accepted."""

from __future__ import annotations

import pytest

from jobqueue.cli.failure import Refused
from jobqueue.cli.moments import moment


@pytest.mark.parametrize("text", ["2026-12-01", "20261201", "2026-12-01T00:00", "2026-12-01 00:00:00"])
def test_the_hint_for_a_time_without_a_zone_is_a_time(text: str) -> None:
    with pytest.raises(Refused, match="has no time zone") as refused:
        moment(text, option="--run-after")
    assert refused.value.hint == "write 2026-12-01T00:00:00Z or 2026-12-01T00:00:00+01:00"
    for hinted in refused.value.hint.removeprefix("write ").split(" or "):
        assert moment(hinted, option="--run-after").tzinfo is not None

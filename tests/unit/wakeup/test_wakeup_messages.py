"""What counts as a wake-up message."""

import pytest

pytest.importorskip("aio_pika")

from jobqueue.wakeup.rabbitmq import names_a_job


@pytest.mark.parametrize("body", [b'{"job_id": 1}', b'{"job_id": 9223372036854775807, "more": []}'])
def test_a_job_id_is_enough(body: bytes) -> None:
    assert names_a_job(body)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"7",
        b"null",
        b"{}",
        b"{",
        b"\x00",
        b"\xed\xa0\x80",
        b'{"job_id": 0}',
        b'{"job_id": -1}',
        b'{"job_id": 1.0}',
        b'{"job_id": 1e3}',
        b'{"job_id": true}',
        b'{"job_id": null}',
        b'{"job_id": 9223372036854775808}',
        b'{"job_id": NaN}',
        b'{"job_id": ' + b"1" * 200 + b"}",
        b'{"job_id": ' + b"1" * 5000 + b"}",
        b"[" * 250,
        b'{"job_id": 1, "more": "' + b"x" * 300 + b'"}',
    ],
)
def test_everything_else_is_not(body: bytes) -> None:
    assert not names_a_job(body)

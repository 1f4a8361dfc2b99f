"""An order and its jobs, in one transaction: all of it exists, or none.

Run it against a database with a class `email`::

    jobqueue migrate --class email
    python examples/producer_in_transaction.py        # JOBQUEUE_DSN says where
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import Any

import psycopg

import jobqueue
from jobqueue.errors import KeyConflict

TABLE = "CREATE TABLE IF NOT EXISTS orders (id bigint PRIMARY KEY, customer text NOT NULL)"


class OutOfStock(Exception):  # noqa: N818 - reads as a fact
    """The order cannot be taken."""


def place_order(conn: psycopg.Connection[Any], order: int, customer: str, *, in_stock: bool = True) -> int:
    """Take an order; return its job's id. Nothing is written, and no job exists, when it raises OutOfStock."""
    with conn.transaction():
        conn.execute("INSERT INTO orders VALUES (%s, %s) ON CONFLICT DO NOTHING", [order, customer])
        # A reference, not the data: what the handler reads later is what is true then. The key makes a repeated call
        # (a form sent twice, a request whose answer was lost) find the job that is there.
        made = jobqueue.enqueue(
            conn, "email", "order.confirm", {"order": order}, key=f"order-{order}", correlation_id=f"order-{order}"
        )
        if not in_stock:
            raise OutOfStock(order)
    return made.id


def main() -> None:
    """Place an order, again, and one that fails."""
    with psycopg.connect(os.environ.get("JOBQUEUE_DSN", ""), autocommit=True) as conn:
        conn.execute(TABLE)
        first = place_order(conn, 1, "ada")
        print("an order and its job, committed together")
        again = place_order(conn, 1, "ada")
        print("the same again:", "the same job" if again == first else "another job")
        with suppress(OutOfStock):
            place_order(conn, 2, "bob", in_stock=False)
        count = conn.execute("SELECT count(*) FROM jobqueue.jobs WHERE correlation_id = 'order-2'").fetchone()
        print("an order that was rolled back:", *(count or ()), "jobs")
        try:
            jobqueue.enqueue(conn, "email", "order.confirm", {"order": 3}, key="order-1")
        except KeyConflict as conflict:
            print("the same key with another payload:", conflict)


if __name__ == "__main__":
    main()

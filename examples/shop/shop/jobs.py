"""The shop's jobs: `shop.jobs:app`, in an image made by the Dockerfile beside this package.

Its table stands in for whatever the shop keeps: CREATE TABLE mail (invoice bigint, address text).
"""

from __future__ import annotations

import pydantic

from jobqueue import App, Job

app = App()


class Invoice(pydantic.BaseModel):
    """What to send to whom."""

    invoice_id: int
    address: str


@app.handler("invoice.email", timeout=30)
async def email(job: Job[Invoice]) -> None:
    """Record that an invoice was sent: once, in the transaction that also ends the job."""
    invoice = job.payload
    async with job.transaction() as tx:
        if await tx.once(f"invoice-email:{invoice.invoice_id}"):
            await tx.execute("INSERT INTO mail VALUES (%s, %s)", [invoice.invoice_id, invoice.address])

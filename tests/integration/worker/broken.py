"""An application with a mistake."""

from jobqueue import App, Job

app = App()


@app.handler("twice")
async def first(job: Job[None]) -> None:
    del job


@app.handler("twice")
async def second(job: Job[None]) -> None:
    del job

"""The worker: a supervisor that holds no user code, and a runner that holds nothing else.

supervisor    PID 1: registers, spawns the runner, renews leases, enforces deadlines, kills, reaps, drains
runner        imports the app; claims, dispatches and acknowledges; replaced whenever it dies or is stuck
child         one process for one slot of `process=True` handlers, and for suspects

They talk over a socket pair (`pipe`) and a page of shared memory (`board`) that stays readable when the
runner's interpreter is frozen.
"""

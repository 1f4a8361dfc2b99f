"""Facts in, plan out: pure functions of what is observed, what is asked for, what was decided before, and now.

No I/O, no clock, no globals, so that every decision can be printed, recorded and replayed.
"""

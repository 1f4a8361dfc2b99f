"""Benchmarks: the queue next to others, in one run on one PostgreSQL. See README.md in this folder."""

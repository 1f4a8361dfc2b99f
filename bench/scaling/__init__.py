"""Campaigns of scaling on the local platform: real workers, a real PostgreSQL, a downstream that counts its callers."""

from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]

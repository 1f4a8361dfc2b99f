"""A job queue that lives in your PostgreSQL."""

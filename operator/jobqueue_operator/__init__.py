"""Runs a job queue's workers: reads manifests, watches the queue, plans, and acts on a platform."""

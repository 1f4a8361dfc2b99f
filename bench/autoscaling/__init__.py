"""A seeded simulator of one job class: the planner beside other autoscalers, on the same arrivals."""

"""Who decides how many pods there are: the planner, and others from their published formulas."""

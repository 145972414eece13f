"""A deterministic world in memory that executes the decisions of `symphony.plan.decide`."""

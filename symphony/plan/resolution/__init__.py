"""The parts of `symphony.plan.resolve`, such as addresses, variables and ranks."""

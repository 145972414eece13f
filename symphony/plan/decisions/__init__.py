"""The parts of `symphony.plan.decide`. All of them are pure."""

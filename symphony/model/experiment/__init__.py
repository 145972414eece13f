"""The mutable classes that describe an experiment, and what follows from their values."""

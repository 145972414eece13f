"""What a backend's own tests inherit: the behaviour that every backend promises.

Needs pytest. See `symphony.testing.contract.BackendContract` and docs/writing-a-backend.md.
"""

from symphony.testing.contract import BackendContract, until

__all__ = ["BackendContract", "until"]

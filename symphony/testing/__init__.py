"""Contract tests for backend authors. The tests require pytest.

See `symphony.testing.contract.BackendContract` and docs/writing-a-backend.md.
"""

from symphony.testing.contract import BackendContract, until

__all__ = ["BackendContract", "until"]

"""Tests for authors of backends. They need pytest.

See `symphony.testing.contract.BackendContract` and docs/writing-a-backend.md.
"""

from symphony.testing.contract import BackendContract, until

__all__ = ["BackendContract", "until"]

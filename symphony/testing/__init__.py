"""Tools for the tests of experiments and of backends. They require pytest.

* `symphony.testing.running`: a fixture that runs an experiment during a test.
* `symphony.testing.contract.BackendContract`: the tests that every backend must pass; see
  docs/writing-a-backend.md.
"""

from symphony.testing.contract import BackendContract, until
from symphony.testing.running import running

__all__ = ["BackendContract", "running", "until"]

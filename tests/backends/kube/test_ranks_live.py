"""Ranks on a real cluster, as far as the contract does not test them."""

from symphony.status import ReasonCode
from symphony.testing import programs


def test_ranks_that_share_pods(shared, name):
    """All ranks meet, and the failure of one restarts all of them and then stops them."""
    exp = shared.new_experiment(name)
    command = ["python3", "-u", "-c", programs.RANK]
    for process in exp.new_ranks("unit", 4, command=command):
        process.per_pod(2).restart_policy("OnFailure", max_restarts=1)
        process.termination_grace_period(1)
    shared.launch(exp)
    first, second = shared.wait(name, timeout=60)
    assert [first.name, second.name] == ["unit-0", "unit-2"]
    assert (first.exit_code, first.restarts, second.restarts) == (3, 1, 1)
    assert second.reason_code is ReasonCode.UNIT_FAILED
    numbers = {first.name: (0, 1), second.name: (2, 3)}
    for process, ranks in numbers.items():
        expected = [f"rank {rank} of 4" for rank in ranks] * 2
        if process == first.name:
            expected += ["rank 1 exited with 3"] * 2
        lines = shared.get_log(name, process).splitlines()
        assert sorted(lines) == sorted(expected)
    shared.delete(name)

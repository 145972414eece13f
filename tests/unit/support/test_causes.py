"""Messages about many names, grouped by their causes."""

from symphony.commandline.output.views import failure_lines
from symphony.status import ExperimentStatus, ProcessStatus, State
from symphony.support.causes import group_by_cause


def grouped(*causes):
    return [(str(group), group.cause) for group in group_by_cause(causes)]


def test_a_group_names_three_and_counts_the_rest():
    many = [(f"agent-{number}", "it failed") for number in range(1000)]
    assert grouped(*many, ("db", "no disk")) == [
        ("agent-0, agent-1, agent-2 and 997 more", "it failed"),
        ("db", "no disk"),
    ]
    assert grouped(*many[:3]) == [("agent-0, agent-1, agent-2", "it failed")]
    assert grouped() == []


def test_causes_that_differ_only_in_the_name_are_the_same():
    causes = [(name, f"no log of '{name}' (pod e-{name})") for name in ("a", "b", "a.c")]
    assert grouped(*causes) == [("a, b, a.c", "no log of 'a' (pod e-a)")]
    # The name is a part of another word.
    assert len(grouped(("a", "a bad disk"), ("b", "b bad disk"))) == 1
    assert len(grouped(("a", "last"), ("l", "last"))) == 1
    assert len(grouped(("disk", "no disk"), ("b", "no disk"))) == 2


def test_many_processes_that_failed_in_the_same_way_share_a_line():
    codes = [9, 1, 7, 1, 1, 1, 7]
    processes = [
        ProcessStatus(name=f"p{number}", state=State.FAILED, exit_code=code, ended=number + 1.0)
        for number, code in enumerate(codes)
    ]
    status = ExperimentStatus(name="e", backend="paper", processes=tuple(processes))
    assert failure_lines(status) == [
        "p0 failed: exit code 9",
        "p1, p3, p4 and 1 more failed: exit code 1",
        "p2 failed: exit code 7",
        "p6 failed: exit code 7",
    ]

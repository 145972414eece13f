"""The names of the Pods and Jobs of further attempts."""

import pytest

from symphony import Experiment
from symphony.errors import SpecError
from symphony_kube.render.attempt_names import attempt_name, first_name
from tests.backends.kube.render.test_render import rendered


@pytest.mark.parametrize("length", [1, 55, 58, 59, 60, 63])
def test_names_of_attempts_are_labels_and_unique(length):
    first = "a" * length
    names = {attempt_name(first, number) for number in (2, 3, 12, 123456)}
    assert len(names) == 4
    assert all(len(name) <= 63 and "." not in name for name in names)
    assert attempt_name("a" * 63, 2) != attempt_name("a" * 62 + "b", 2)


@pytest.mark.parametrize("name", ["a", "a--2", "a.2", "a--12345"])
def test_first_name(name):
    assert first_name(name) == "a"


@pytest.mark.parametrize("name", ["a-2", "a--b", "a--2-x", "agent-0"])
def test_names_of_first_attempts(name):
    assert first_name(name) == name


def test_name_of_a_restarted_process_is_refused():
    exp = Experiment("e")
    exp.new_process("a--2", command="c")
    rendered(exp)
    exp.new_process("a", command="c")
    with pytest.raises(
        SpecError, match="'a--2' is the name of a restarted 'a' on Kubernetes"
    ) as refusal:
        rendered(exp)
    assert refusal.value.path == ("processes", "a--2")

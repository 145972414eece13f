"""Which cluster options lead to, as completion tells them apart."""

import os

import pytest

from symphony.cluster.plugins import find_backend
from symphony_kube.api.cluster_identity import place


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return tmp_path


def test_options_that_lead_elsewhere_are_another_place(home):
    same = place({"image": "x"})
    assert same == place({})
    others = [
        place({"namespace": "a"}),
        place({"context": "a"}),
        place({"kubeconfig": str(home / "a")}),
    ]
    assert all(other != same for other in others)
    assert len({repr(other) for other in others}) == 3


def test_the_kubeconfig_of_the_user_is_that_of_kubectl(home, monkeypatch):
    at_home = place({})
    file = home / ".kube" / "config"
    file.parent.mkdir()
    file.write_text("one")
    there = place({})
    assert there != at_home
    assert there == place({"kubeconfig": str(file)})
    monkeypatch.setenv("KUBECONFIG", f"{file}{os.pathsep}{home}/b")
    assert place({}) != there
    assert place({"kubeconfig": str(file)}) == there


def test_a_kubeconfig_that_was_written_to_is_another_place(home):
    file = home / "config"
    file.write_text("current-context: one")
    before = place({"kubeconfig": str(file)})
    os.utime(file, (1, 1))
    assert place({"kubeconfig": str(file)}) != before


def test_the_record_names_it():
    assert find_backend("kube").place == "symphony_kube.api.cluster_identity:place"

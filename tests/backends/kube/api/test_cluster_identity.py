"""The key of the cluster that options select. Completion caches names by this key."""

import os

import pytest

from symphony.cluster.plugins import find_backend
from symphony_kube.api.cluster_identity import place


@pytest.fixture(autouse=True)
def home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.delenv("KUBECONFIG", raising=False)
    return tmp_path


def test_options_that_select_a_cluster_change_the_key(home):
    same = place({"image": "x"})
    assert same == place({})
    others = [
        place({"namespace": "a"}),
        place({"context": "a"}),
        place({"kubeconfig": str(home / "a")}),
    ]
    assert all(other != same for other in others)
    assert len({repr(other) for other in others}) == 3


def test_default_kubeconfig_is_that_of_kubectl(home, monkeypatch):
    without_file = place({})
    file = home / ".kube" / "config"
    file.parent.mkdir()
    file.write_text("one")
    with_file = place({})
    assert with_file != without_file
    assert with_file == place({"kubeconfig": str(file)})
    monkeypatch.setenv("KUBECONFIG", f"{file}{os.pathsep}{home}/b")
    assert place({}) != with_file
    assert place({"kubeconfig": str(file)}) == with_file


def test_modified_kubeconfig_changes_the_key(home):
    file = home / "config"
    file.write_text("current-context: one")
    before = place({"kubeconfig": str(file)})
    os.utime(file, (1, 1))
    assert place({"kubeconfig": str(file)}) != before


def test_backend_info_names_the_function():
    assert find_backend("kube").place == "symphony_kube.api.cluster_identity:place"

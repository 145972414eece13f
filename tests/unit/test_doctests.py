"""The examples in docstrings have the documented results."""

from __future__ import annotations

import doctest
import importlib
import pkgutil

import pytest

import symphony
import symphony_kube
import symphony_local
import symphony_slurm
import symphony_tmux

MODULES = [
    info.name
    for package in (symphony, symphony_kube, symphony_local, symphony_slurm, symphony_tmux)
    for info in pkgutil.walk_packages(package.__path__, f"{package.__name__}.")
    # Programs cannot be imported, and symphony.testing needs pytest.
    if not info.name.endswith(("__main__", "host.supervise"))
    and not info.name.startswith("symphony.testing")
]
WITH_EXAMPLES = {
    "symphony.cluster.matching",
    "symphony.cluster.since",
    "symphony.status",
    "symphony_kube.node_pools.gke_reserve",
    "symphony_kube.node_pools.gpu_types",
    "symphony_tmux.keeper",
}


def examples(name: str) -> list[doctest.DocTest]:
    module = importlib.import_module(name)
    return [test for test in doctest.DocTestFinder().find(module) if test.examples]


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_a_module(name: str) -> None:
    found = examples(name)
    runner = doctest.DocTestRunner()
    for test in found:
        runner.run(test)
    assert runner.summarize(verbose=False).failed == 0
    assert found or name not in WITH_EXAMPLES

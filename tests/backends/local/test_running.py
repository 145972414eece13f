"""Experiments that run as long as a block of a Python program."""

from __future__ import annotations

import subprocess
import sys

import pytest

from symphony import AlreadyExists, Cluster, LaunchFailed, NotFound, State
from symphony.testing import running

from .conftest import eventually

__all__ = ["running"]


@pytest.fixture(autouse=True)
def _own_records(monkeypatch, tmp_path):
    """Keep the records of other tests out of the list of runs."""
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path / "records"))


OWNER = """
import sys
from symphony import Cluster, Experiment
cluster = Cluster.new("local", state_dir=sys.argv[1])
experiment = Experiment("exp")
experiment.new_process("p", command=["sleep", "1000"])
with cluster.running(experiment):
    print("running", flush=True)
    sys.stdin.read()
"""


def sleeping(experiment):
    experiment.new_process("p", command=["sleep", "1000"])
    return experiment


def test_an_experiment_runs_during_the_block(cluster, experiment):
    server = "import http.server, os; http.server.HTTPServer(('127.0.0.1', int(os.environ['PORT'])"
    server += "), http.server.SimpleHTTPRequestHandler).serve_forever()"
    experiment.new_process(
        "web",
        command=[sys.executable, "-c", server],
        env={"PORT": "${web.port}"},
        binds="web",
        ready={"http": ["web", "/"]},
    )
    with cluster.running(experiment) as service:
        assert all(process.ready for process in service.status)
        assert service.url("web", "/x") == f"http://{service.address('web')}/x"
        assert service.address("web").startswith("127.0.0.1:")
        assert service.exec("web", ["true"]).exit_code == 0
        with pytest.raises(NotFound):
            service.address("other")
    assert cluster.list_experiments() == []
    assert [run.experiment for run in cluster.list_runs()] == ["exp"]


def test_an_error_in_the_block_deletes_the_experiment(cluster, experiment):
    with pytest.raises(ZeroDivisionError), cluster.running(sleeping(experiment)):
        raise ZeroDivisionError
    assert cluster.list_experiments() == []


def test_a_process_that_fails_is_reported_with_its_log(cluster, experiment):
    experiment.new_process("p", cmd="echo broken; exit 3")
    experiment.new_process("q", command=["sleep", "1000"]).starts_after("p", "succeeded")
    with pytest.raises(LaunchFailed, match=r"'p' of experiment 'exp' has failed: [^\n]*\nbroken$"):
        with cluster.running(experiment):
            pytest.fail("the block must not begin")
    assert cluster.list_experiments() == []


def test_an_experiment_that_exists_is_not_deleted(cluster, experiment):
    cluster.launch(sleeping(experiment))
    with pytest.raises(AlreadyExists), cluster.running(experiment):
        pytest.fail("the block must not begin")
    assert cluster.describe_experiment("exp").state is State.RUNNING


def test_a_deleted_experiment_is_no_error(cluster, experiment):
    with cluster.running(sleeping(experiment)):
        cluster.delete("exp")


def test_the_experiment_of_a_killed_program_is_deleted(cluster, state):
    owner = subprocess.Popen(
        [sys.executable, "-c", OWNER, str(state)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert owner.stdout.readline() == "running\n"
    (run,) = cluster.list_runs()
    owner.kill()
    owner.communicate()

    eventually(lambda: cluster.list_experiments() == [] and cluster.list_runs()[0].is_archived)
    assert [found.name for found in cluster.list_runs()] == [run.name]


def test_the_fixture_runs_an_experiment_file_with_parameters(running, tmp_path):
    path = tmp_path / "e.yml"
    path.write_text(
        "name: e\nparameters: {word: hello}\nprocesses: {p: {cmd: 'echo ${word}; sleep 1000'}}\n"
    )
    service = running(path, parameters={"word": "good-bye"})
    eventually(lambda: service.log("p") == "good-bye\n")
    assert service.name in service.cluster.list_experiments()
    assert service.cluster.given_options["state_dir"] == tmp_path / "symphony"
    assert isinstance(service.cluster, Cluster)

"""Options of a backend on the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from symphony.cluster import Cluster
from tests.cli.conftest import Program


@pytest.mark.parametrize(
    "words", [("-b", "kube", "ls"), ("ls", "-b", "kube"), ("ls", "--backend=k8s")]
)
def test_help_has_the_options_of_the_chosen_backend(
    program: Program, words: tuple[str, ...]
) -> None:
    shown = program.ok(*words, "--help")
    assert "options for the kube backend:" in shown
    assert "--namespace NAMESPACE" in shown
    assert "options for the kube backend:" not in program.ok("ls", "--help")


def test_the_variable_chooses_the_backend(program: Program) -> None:
    assert "--namespace NAMESPACE" in program.ok("ls", "--help", SYMPHONY_BACKEND="kube")


@pytest.mark.parametrize("words", [("--namespace", "x"), ("--namespace=x",), ("more", "-n", "x")])
def test_an_option_of_another_backend(program: Program, words: tuple[str, ...]) -> None:
    done = program("ls", *words)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "it is an option of the kube backend: add -b kube" in done.stderr


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--expose", "x"), "unknown --expose 'x'; choose from LoadBalancer, NodePort, none"),
        (("--namspace", "x"), "did you mean '--namespace'?"),
        (("--namespace", "Team_A"), "a namespace consists of a-z, 0-9 and '-'"),
        (("--jobs-only",), "requires a namespace"),
    ],
)
def test_invalid_options(program: Program, words: tuple[str, ...], error: str) -> None:
    done = program("ls", "-b", "kube", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert error in done.stderr


def test_options_reach_the_cluster(program: Program, tmp_path: Path) -> None:
    done = program("ls", "-b", "kube", "--kubeconfig", str(tmp_path / "none"))
    assert done.returncode == 3
    assert f"no kubeconfig: there is no file {tmp_path}/none" in done.stderr


@pytest.mark.parametrize("form", ["--dry-run=server", "--dry-run-server"])
def test_a_backend_without_a_server_refuses_a_server_side_dry_run(
    program: Program, form: str
) -> None:
    path = program.file("rl", {"worker": "true"})
    done = program("launch", str(path), form)
    assert done.returncode == 2
    assert "the local backend has no server that can check 'rl'" in done.stderr
    assert program.json("ls") == []


def test_a_client_side_dry_run_is_a_dry_run(program: Program) -> None:
    path = program.file("rl", {"worker": "true"})
    shown = program.ok("launch", str(path), "--dry-run=client")
    assert shown == program.ok("launch", str(path), "--dry-run")


def test_ls_says_where_there_are_no_experiments(program: Program) -> None:
    done = program("ls")
    assert done.returncode == 0
    assert done.stderr == f"symphony: there are no experiments in {program.state}/local\n"
    assert program("ls", "--json").stderr == ""
    elsewhere = program.directory / "elsewhere"
    cluster = Cluster.new("local", state_dir=elsewhere)
    experiment = cluster.new_experiment("rl")
    experiment.new_process("worker", command=["true"])
    cluster.launch(experiment)
    assert "there are no experiments in" in program("ps", "rl").stderr
    options = ["-b", "local", "--state-dir", elsewhere]
    assert [status["name"] for status in program.json("ls", *options)] == ["rl"]
    cluster.delete("rl")

"""Commands and readiness tests in the environment of a process, after its preamble."""

import pytest

from symphony import SpecError, State
from symphony.testing import until
from symphony.testing.programs import FOREVER

from .conftest import kill_supervision, marked, python, run_id_of

# bash replaces itself with the first kind of command, and remains the parent of the others.
KINDS = [{"command": ["sleep", "600"]}, {"cmds": ["true", "sleep 600"]}, {"cmd": "sleep 600 | cat"}]
CANNOT_RUN = "cannot run the command {!r} in the environment of 'p': "


@pytest.fixture
def activate(tmp_path):
    (tmp_path / "act.sh").write_text("export VIRTUAL_ENV=/my/venv P=$P,more\n")
    return "source ./act.sh"


def output(cluster, *argv, name="p"):
    done = cluster.exec_command("exp", name, list(argv))
    assert done.exit_code == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("kind", KINDS)
def test_command_runs_after_the_preamble(cluster, experiment, tmp_path, activate, kind):
    (tmp_path / "deep").mkdir()
    preamble = [activate, "cd deep"]
    env = {"P": "a b"}
    experiment.new_process("p", preamble_cmds=preamble, start_dir=str(tmp_path), env=env, **kind)
    cluster.launch(experiment)
    found = output(cluster, "sh", "-c", 'echo "$VIRTUAL_ENV $P $SYMPHONY_ROLE"; pwd')
    assert found == f"/my/venv a b,more p\n{tmp_path}/deep\n"


def test_command_runs_after_the_supervisor_was_killed(cluster, experiment, tmp_path, activate):
    kind = {"cmds": ["true", "sleep 600"], "start_dir": str(tmp_path)}
    experiment.new_process("p", preamble_cmds=activate, **kind)
    cluster.launch(experiment)
    kill_supervision(cluster)
    assert output(cluster, "sh", "-c", "echo $VIRTUAL_ENV $SYMPHONY_ROLE") == "/my/venv p\n"


def test_preamble_sees_the_secrets_and_no_argument_shows_them(cluster, tmp_path):
    (tmp_path / "token").write_text("swordfish")
    experiment = cluster.new_experiment("exp", secrets={"token": str(tmp_path / "token")})
    preamble = ['export SEEN="<$TOKEN>"', "tr '\\0' ' ' </proc/$$/cmdline"]
    process = experiment.new_process("p", preamble_cmds=preamble, cmds=["true", "sleep 600"])
    process.set_env_secret("TOKEN", "token")
    cluster.launch(experiment)
    done = cluster.exec_command("exp", "p", ["sh", "-c", "echo $SEEN"])
    assert done.stdout == "<swordfish>\n"
    assert "echo $SEEN" in done.stderr, "the arguments of the shell that runs the preamble"
    assert "swordfish" not in done.stderr


@pytest.mark.parametrize("interactive", [False, True])
def test_preamble_that_fails_the_second_time_is_an_error(
    cluster, experiment, tmp_path, interactive
):
    flag = tmp_path / "fine"
    flag.touch()
    preamble = f"test -e {flag} || {{ echo no flag >&2; false; }}"
    process = experiment.new_process("p", preamble_cmds=preamble, cmd="echo up; sleep 600; :")
    process.ready(log="up")
    cluster.launch(experiment)
    until(cluster, "exp", lambda now: now.processes[0].ready)
    assert output(cluster, "echo", "fine") == "fine\n"
    flag.unlink()
    message = CANNOT_RUN.format("echo") + "its preamble failed with exit code 1"
    with pytest.raises(SpecError) as refusal:
        cluster.exec_command("exp", "p", ["echo", "never"], interactive=interactive)
    # The error output of an interactive command goes to the terminal.
    assert str(refusal.value) == (message if interactive else f"{message}: no flag")


def test_missing_program_differs_from_a_program_that_exits_with_127(cluster, experiment):
    experiment.new_process("p", preamble_cmds="true", command=["sleep", "600"])
    cluster.launch(experiment)
    with pytest.raises(SpecError, match=CANNOT_RUN.format("no-such-thing") + "it was not found"):
        cluster.exec_command("exp", "p", "no-such-thing")
    assert cluster.exec_command("exp", "p", ["sh", "-c", "no-such-thing"]).exit_code == 127
    assert cluster.exec_command("exp", "p", ["sh", "-c", "kill -9 $$"]).exit_code == 137


def test_delete_stops_background_children_of_a_command(cluster, experiment):
    experiment.new_process("p", preamble_cmds="true", cmds=["true", "sleep 600"])
    cluster.launch(experiment)
    pid = int(output(cluster, "sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"))
    run_id = run_id_of(cluster)
    assert pid in marked(run_id)
    cluster.delete("exp")
    assert marked(run_id) == []


def test_command_runs_in_the_environment_of_a_process_that_does_not_run(
    cluster, experiment, tmp_path, monkeypatch, activate
):
    monkeypatch.setenv("LAUNCHED", "yes")
    options = {"start_dir": str(tmp_path), "preamble_cmds": activate, "env": {"P": "a"}}
    experiment.new_process("p", cmd="exit 3", **options)
    experiment.new_process("later", command="true", **options).starts_after("p", "succeeded")
    sleeper = experiment.new_process("sleeper", command=["sleep", "600"])
    cluster.launch(experiment)
    cluster.wait("exp", processes=["p", "later"], timeout=20)
    monkeypatch.setenv("LAUNCHED", "no")
    show = ["sh", "-c", 'echo "$SYMPHONY_ROLE $P $VIRTUAL_ENV $LAUNCHED $(pwd) $PWD"']
    for name in ("p", "later"):
        assert output(cluster, *show, name=name) == (
            f"{name} a,more /my/venv yes {tmp_path} {tmp_path}\n"
        )
    # The environment of the launcher is not recorded any more.
    cluster.stop("exp")
    assert output(cluster, *show) == f"p a,more /my/venv no {tmp_path} {tmp_path}\n"
    assert output(cluster, "printenv", "SYMPHONY_ROLE", name=sleeper.name) == "sleeper\n"


# --- readiness ---


def test_readiness_command_runs_after_the_preamble(cluster, experiment, tmp_path):
    tool = tmp_path / "bin2" / "mytool"
    tool.parent.mkdir()
    tool.write_text('#!/bin/sh\nexec sleep "$1"\n')
    tool.chmod(0o755)
    options = {"preamble_cmds": "export PATH=$PWD/bin2:$PATH", "start_dir": str(tmp_path)}
    process = experiment.new_process("p", command=["mytool", "60"], **options)
    process.ready(command=["mytool", "0"])
    cluster.launch(experiment)
    status = until(cluster, "exp", lambda now: now.processes[0].ready or now.processes[0].reason)
    assert status.processes[0].ready


# The output of a readiness test is a pipe without a name: only the preamble of the test fails.
FAILS_IN_TESTS = "case $(readlink /proc/$$/fd/2) in pipe:*) false;; esac"


@pytest.mark.parametrize(
    ("preamble", "test", "reason"),
    [
        ("true", "mytool", "cannot run 'mytool': it was not found on the PATH of the process"),
        (FAILS_IN_TESTS, "true", "cannot run 'true': its preamble failed with exit code 1"),
    ],
)
def test_readiness_command_that_cannot_run_is_explained(
    cluster, experiment, preamble, test, reason
):
    process = python(experiment, "p", FOREVER, preamble_cmds=preamble)
    process.ready(command=[test], timeout=0.5)
    experiment.new_process("next", command="true").starts_after("p")
    cluster.launch(experiment)
    now = until(cluster, "exp", lambda now: now.processes[1].state is State.FAILED)
    assert now.processes[0].reason == f"not ready within 0.5 s: {reason}"
    assert now.processes[1].reason == f"never started: p was not ready within 0.5 s: {reason}"

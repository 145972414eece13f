"""What runs beside a process, a command or a test of its readiness, behind the same preamble as the process."""

import pytest

from symphony import SpecError, State
from symphony.testing import until
from symphony.testing.programs import FOREVER

from .conftest import kill, marked, python, run_id_of, supervisor_of

# However a process is run: bash replaces itself with the first, and stays above the others.
WAYS = [{"command": ["sleep", "600"]}, {"cmds": ["true", "sleep 600"]}, {"cmd": "sleep 600 | cat"}]


@pytest.fixture
def activate(tmp_path):
    (tmp_path / "act.sh").write_text("export VIRTUAL_ENV=/my/venv P=$P,more\n")
    return "source ./act.sh"


def said(cluster, *argv, name="p"):
    done = cluster.exec_command("exp", name, list(argv))
    assert done.exit_code == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("way", WAYS)
def test_a_command_is_where_the_preamble_led(cluster, experiment, tmp_path, activate, way):
    (tmp_path / "deep").mkdir()
    experiment.new_process(
        "p", preamble_cmds=[activate, "cd deep"], start_dir=str(tmp_path), env={"P": "a b"}, **way
    )
    cluster.launch(experiment)
    assert said(cluster, "sh", "-c", 'echo "$VIRTUAL_ENV $P $SYMPHONY_ROLE"; pwd') == (
        f"/my/venv a b,more p\n{tmp_path}/deep\n"
    )


def test_what_the_supervisor_would_know_is_found_without_it(
    cluster, experiment, tmp_path, activate
):
    experiment.new_process(
        "p", preamble_cmds=activate, start_dir=str(tmp_path), cmds=["true", "sleep 600"]
    )
    cluster.launch(experiment)
    kill(supervisor_of(cluster))
    assert said(cluster, "sh", "-c", "echo $VIRTUAL_ENV $SYMPHONY_ROLE") == "/my/venv p\n"


def test_what_a_preamble_prints_is_no_output_of_the_command(cluster, experiment):
    experiment.new_process("p", preamble_cmds=["echo hello", "cat"], command=["sleep", "600"])
    cluster.launch(experiment)
    done = cluster.exec_command("exp", "p", ["echo", "two  words", "$HOME", ""])
    assert (done.stdout, done.stderr, done.exit_code) == ("two  words $HOME \n", "hello\n", 0)


def test_a_preamble_sees_the_secrets_and_no_argument_shows_them(cluster, tmp_path):
    (tmp_path / "token").write_text("swordfish")
    experiment = cluster.new_experiment("exp", secrets={"token": str(tmp_path / "token")})
    preamble = ['export SEEN="<$TOKEN>"', "tr '\\0' ' ' </proc/$$/cmdline"]
    process = experiment.new_process("p", preamble_cmds=preamble, cmds=["true", "sleep 600"])
    process.set_env_secret("TOKEN", "token")
    cluster.launch(experiment)
    done = cluster.exec_command("exp", "p", ["sh", "-c", "echo $SEEN"])
    assert done.stdout == "<swordfish>\n"
    assert "echo $SEEN" in done.stderr, "the arguments of the shell that has the preamble"
    assert "swordfish" not in done.stderr


def test_a_preamble_that_fails_now_is_said(cluster, experiment, tmp_path):
    flag = tmp_path / "fine"
    flag.touch()
    preamble = f"test -e {flag} || {{ echo no flag >&2; false; }}"
    experiment.new_process("p", preamble_cmds=preamble, cmd="echo past it; sleep 600; :").ready(
        log="past it"
    )
    cluster.launch(experiment)
    until(cluster, "exp", lambda now: now.processes[0].ready)
    assert said(cluster, "echo", "fine") == "fine\n"
    flag.unlink()
    with pytest.raises(
        SpecError,
        match="cannot run 'echo' in the environment of 'p': its preamble .* exit code 1: no flag$",
    ):
        cluster.exec_command("exp", "p", ["echo", "never"])
    with pytest.raises(
        SpecError, match="cannot run 'echo' in the environment of 'p': its preamble .* exit code 1"
    ):
        cluster.exec_command("exp", "p", ["echo", "never"], interactive=True)


def test_a_program_that_is_not_there_is_told_from_one_that_ends_so(cluster, experiment, tmp_path):
    experiment.new_process(
        "p", preamble_cmds="true", command=["sleep", "600"], start_dir=str(tmp_path)
    )
    cluster.launch(experiment)
    (tmp_path / "plain").touch()
    for argv, why in (
        ("no-such-thing", "was not found on the PATH of the process"),
        ("./none", "No such file or directory"),
        ("./plain", "Permission denied"),
        ("/tmp", "is a directory"),
    ):
        with pytest.raises(
            SpecError, match=f"cannot run '{argv}' in the environment of 'p': .*{why}"
        ):
            cluster.exec_command("exp", "p", argv)
    assert cluster.exec_command("exp", "p", ["sh", "-c", "no-such-thing"]).exit_code == 127
    assert cluster.exec_command("exp", "p", ["sh", "-c", "kill -9 $$"]).exit_code == 137


def test_a_command_beside_carries_the_mark(cluster, experiment, tmp_path):
    """Delete finds what it leaves behind."""
    experiment.new_process("p", preamble_cmds="true", cmds=["true", "sleep 600"])
    cluster.launch(experiment)
    pid = int(said(cluster, "sh", "-c", "sleep 600 >/dev/null 2>&1 & echo $!"))
    run_id = run_id_of(cluster)
    assert pid in marked(run_id)
    cluster.delete("exp")
    assert marked(run_id) == []


# --- readiness ---


@pytest.fixture
def tool(tmp_path):
    folder = tmp_path / "bin2"
    folder.mkdir()
    (folder / "mytool").write_text('#!/bin/sh\nexec sleep "$1"\n')
    (folder / "mytool").chmod(0o755)
    return "export PATH=$PWD/bin2:$PATH"


def test_a_test_of_readiness_sees_the_preamble(cluster, experiment, tmp_path, tool):
    process = experiment.new_process(
        "p", command=["mytool", "60"], preamble_cmds=tool, start_dir=str(tmp_path)
    )
    process.ready(command=["mytool", "0"])
    cluster.launch(experiment)
    assert (
        until(cluster, "exp", lambda now: now.processes[0].ready or now.processes[0].reason)
        .processes[0]
        .ready
    )


# What a test of readiness says is of no interest: that tells it from the process.
ONLY_FIRST = "! test /dev/stderr -ef /dev/null"


@pytest.mark.parametrize(
    ("preamble", "test", "why"),
    [
        (None, ["mytool", "0"], "cannot run 'mytool': it was not found on the PATH of the process"),
        (
            "true",
            ["mytool", "0"],
            "cannot run 'mytool': it was not found on the PATH of the process",
        ),
        (None, ["/tmp"], "cannot run '/tmp': it is a directory"),
        (ONLY_FIRST, ["true"], "cannot run 'true': its preamble failed with exit code 1"),
    ],
)
def test_a_test_that_cannot_run_says_why(cluster, experiment, tmp_path, preamble, test, why):
    options = {"preamble_cmds": preamble} if preamble else {}
    process = python(experiment, "p", FOREVER, start_dir=str(tmp_path), **options)
    process.ready(command=test, timeout=0.5)
    experiment.new_process("next", command="true").starts_after("p")
    cluster.launch(experiment)
    now = until(cluster, "exp", lambda now: now.processes[1].state is State.FAILED)
    assert now.processes[0].reason == f"not ready within 0.5 s: {why}"
    assert now.processes[1].reason == f"never started: p was not ready within 0.5 s: {why}"


def test_a_test_that_could_run_in_the_end_is_just_late(cluster, experiment, tmp_path):
    fails_once = "if test /dev/stderr -ef /dev/null && mkdir seen; then exit 1; fi"
    process = python(experiment, "p", FOREVER, start_dir=str(tmp_path), preamble_cmds=fails_once)
    process.ready(command=["false"], timeout=2)
    cluster.launch(experiment)
    assert (
        until(cluster, "exp", lambda now: now.processes[0].reason).processes[0].reason
        == "not ready within 2 s"
    )
    assert (tmp_path / "seen").is_dir()

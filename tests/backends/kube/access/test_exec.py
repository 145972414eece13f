"""Commands in containers: exit codes, streams, terminals, and commands that cannot run."""

import json
import os
import signal
import socket
import subprocess
import sys

import pytest

from symphony.errors import BackendError, NotFound, SpecError, Unreachable, Unsupported
from symphony_kube.access import exec, exec_stream
from symphony_kube.access.exec_stream import ExecStream
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.api.retries import Timeouts
from symphony_kube.api.streams import channels
from symphony_kube.api.streams.spdy import Spdy
from symphony_kube.state.pod_status import ContainerRef
from tests.backends.kube.module_experiment import (
    FOREVER,
    launched,
    python,
    through,
    until_succeeded,
)
from tests.cli.terminal import Terminal


@pytest.fixture(scope="module")
def worker(kube_session):
    def build(exp):
        group = exp.new_process_group("team").termination_grace_period(0)
        for name in ("worker", "other"):
            group.new_process(
                name,
                command=["python3", "-u", "-c", FOREVER],
                start_dir="/tmp",
                env={"COLOUR": "teal"},
            )
        group.new_process("no-shell", command=["/usr/bin/sleep", "1000"], env={"PATH": "/none"})
        python(exp, "ended", "pass")
        python(exp, "later", "pass").starts_after("ended", "ready")

    with launched(kube_session, build) as (cluster, name):
        cluster.wait(name, timeout=60, until="ready")
        until_succeeded(cluster, name, "ended", "later")
        yield Worker(cluster, name, kube_session)


class Worker:
    def __init__(self, cluster, name, session):
        self.cluster, self.name, self.session = cluster, name, session

    def run(self, *command, process="worker", group=None):
        return self.cluster.exec_command(self.name, process, list(command), group)

    def argv(self, *command, process="worker"):
        """Return the command that runs a command or, if there is none, opens a shell."""
        verb = "exec" if command else "attach"
        where = ["--kubeconfig", str(self.session.cluster.kubeconfig), "--namespace", self.name]
        words = ["symphony", verb, "-b", "kube", *where, self.name, process]
        return [sys.executable, "-m", *words, *(["--", *command] if command else [])]

    def piped(self, *command, process="worker", **options):
        options = {"timeout": 60, "capture_output": True, **options}
        return subprocess.run(self.argv(*command, process=process), **options)


def test_exit_code_output_and_environment(worker):
    for code in (0, 7, 255):
        done = worker.run("sh", "-c", f"echo out; echo err >&2; exit {code}")
        assert (done.exit_code, done.stdout, done.stderr) == (code, "out\n", "err\n")
    done = worker.run(
        "sh", "-c", "pwd; echo $COLOUR $SYMPHONY_ROLE; kill -9 $$", process="other", group="team"
    )
    assert (done.exit_code, done.stdout) == (137, "/tmp\nteal other\n")
    words = ["", "two words", "new\nline", "$HOME", "naïve 日本", "--", "-c"]
    done = worker.run("python3", "-c", "import sys, json; print(json.dumps(sys.argv[1:]))", *words)
    assert json.loads(done.stdout) == words
    write = "import sys; print(('y' * 99 + '\\n') * 10**4, end=''); sys.stderr.write('e' * 10**6)"
    done = worker.run("python3", "-c", write)
    assert done.stdout == ("y" * 99 + "\n") * 10_000
    assert done.stderr == "e" * 1_000_000


IMPOSSIBLE = [
    (
        "worker",
        ["no-such-program"],
        NotFound,
        "'no-such-program' in 'worker': its image has no such program",
    ),
    (
        "worker",
        ["/etc/hostname"],
        SpecError,
        "cannot run '/etc/hostname' in 'worker': permission denied",
    ),
    (
        "ended",
        ["true"],
        NotFound,
        r"process 'ended' is not running \(succeeded\)",
    ),
    ("later", ["true"], NotFound, r"process 'later' is not running \(.*\)"),
    ("wroker", ["true"], NotFound, "did you mean 'worker'"),
]


def test_command_that_cannot_run(worker):
    for process, command, error, message in IMPOSSIBLE:
        with pytest.raises(error, match=message):
            worker.run(*command, process=process)


def test_input_from_a_pipe_or_a_file(worker, tmp_path):
    data = os.urandom(200_000)
    (tmp_path / "data").write_bytes(data)
    assert worker.piped("cat", input=data).stdout == data
    # An image without a shell.
    assert worker.piped("/usr/bin/cat", process="no-shell", input=data).stdout == data
    with (tmp_path / "data").open("rb") as file:
        file.seek(1000)
        done = worker.piped("sh", "-c", "cat; echo err >&2; exit 4", stdin=file)
    assert (done.returncode, done.stdout, done.stderr) == (4, data[1000:], b"err\n")
    for given in ({"input": b""}, {"stdin": subprocess.DEVNULL}):
        assert worker.piped("sh", "-c", "cat; echo done", **given).stdout == b"done\n"


def test_input_that_is_not_read(worker):
    for command, code, message in (
        (["sh", "-c", "echo err >&2; exit 3"], 3, b"err\n"),
        (["no-such-program"], 127, None),
    ):
        done = worker.piped(*command, input=os.urandom(3_000_000))
        assert done.returncode == code
        assert b"[symphony" not in done.stderr
        assert message is None or done.stderr == message
    with subprocess.Popen(["yes"], stdout=subprocess.PIPE) as endless:
        done = worker.piped("sh", "-c", "head -c 4; echo '[symphony ' >&2", stdin=endless.stdout)
        endless.stdout.close()
        endless.wait()
    assert (done.returncode, done.stdout, done.stderr) == (0, b"y\ny\n", b"[symphony \n")


def test_ctrl_c_ends_a_command_without_a_terminal(worker):
    words = worker.argv("sh", "-c", "echo up; sleep 100")
    with subprocess.Popen(
        words, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as run:
        assert run.stdout.readline() == b"up\n"
        run.send_signal(signal.SIGINT)
        assert run.communicate(timeout=20)[1] == b"symphony: interrupted\n"
    assert run.returncode == 130


def test_sender_does_not_wait_for_messages(monkeypatch):
    monkeypatch.setattr(exec_stream, "SEND_BUFFER_BYTES", 10)
    monkeypatch.setattr(exec_stream, "PING_INTERVAL_SECONDS", 0.2)
    ours, theirs = socket.socketpair()
    with theirs, ExecStream(Spdy(ours)) as stream:
        stream.send(channels.STDIN, bytes(100))
        assert stream.full
        assert stream.exchange(None) == ([], set())
        # The wait would have ended with a ping.
        assert len(theirs.recv(1000)) == 8 + 100


@pytest.mark.parametrize("size", [1, 2, 3, 5, 100])
def test_marker_is_removed_from_chunks_of_any_size(size):
    for text, left in (
        (b"a[[end]b", b"a[b"),
        (b"[en[end]", b"[en"),
        (b"[en", b"[en"),
        (b"none", b"none"),
    ):
        word = exec._MarkerFilter(b"[end]")
        found = b"".join(
            word.filter(text[start : start + size]) for start in range(0, len(text), size)
        )
        assert found + word.flush() == left
        assert word.found == (b"[end]" in text)


def test_terminal_is_passed_to_the_command_and_restored(worker, tmp_path):
    # The size has its own channel, so it may arrive after the keys.
    sized = "until stty size | grep -x 24.93; do sleep 0.1; done"
    argv = worker.argv("sh", "-c", f"echo ready; read x; echo got $x; {sized}; exit 5")
    shell = [
        "sh",
        "-c",
        '"$@"; echo code $?; stty -a | tr " ;" "\\n\\n" | grep -x -e icanon -e echo',
        "sh",
        *argv,
    ]
    terminal = Terminal(shell, env=dict(os.environ), cwd=tmp_path, width=93)
    try:
        terminal.expect("ready")
        terminal.press("hi\r")
        terminal.expect("got hi\n24 93\ncode 5\n")
        assert terminal.finish() == 0
        assert terminal.text.endswith("icanon\necho\n")
    finally:
        terminal.close()


def test_a_shell_receives_keys_and_sizes(worker, tmp_path):
    terminal = Terminal(worker.argv(), env=dict(os.environ), cwd=tmp_path, width=80)
    try:
        # Ctrl-C is meant for a program that has the terminal, not for the shell that starts it.
        terminal.press("sh -c 'echo [$COLOUR]; exec sleep 100'\r")
        terminal.expect("[teal]")
        terminal.press("\x03")
        terminal.resize(40, 101)
        terminal.press("until stty size | grep -x 40.101; do sleep 0.1; done; exit 3\r")
        terminal.expect("40 101")
        terminal.finish()
    finally:
        terminal.close()
    assert b"login requires a terminal" in worker.piped(stdin=subprocess.DEVNULL).stderr
    with pytest.raises(Unsupported):
        exec.login(KubeExperiment(None, worker.cluster.scope(worker.name)), "worker")


def test_lost_connection_missing_right_and_slow_server(worker, kube_faults, kube_session):
    cluster = through(kube_faults.kubeconfig, kube_session, worker.name)
    kube_faults.reset(path="/exec")
    with pytest.raises(Unreachable):
        cluster.exec_command(worker.name, "worker", ["true"])
    kube_faults.clear()
    kube_faults.answer(403, path="/exec", times=2)
    with pytest.raises(BackendError, match="it requires the right to get and create pods/exec"):
        cluster.exec_command(worker.name, "worker", ["true"])
    cluster.api.timeouts = Timeouts(connect=0.5)
    kube_faults.delay(1.0, path="/exec")
    assert cluster.exec_command(worker.name, "worker", ["echo", "up"]).stdout == "up\n"
    cluster.api.close()


@pytest.mark.parametrize(
    ("status", "code", "reason"),
    [
        (b'{"metadata":{},"status":"Success"}', 0, ""),
        (b'{"status":"Failure","details":{"causes":[{"reason":"ExitCode","message":"3"}]}}', 3, ""),
        (b'{"status":"Failure","message":"no\\nsuch"}', None, "no such"),
        (b"plain words", None, "plain words"),
    ],
)
def test_parse_status(status, code, reason):
    end = exec_stream.parse_status(status)
    assert (end.exit_code, end.reason) == (code, reason)


@pytest.mark.parametrize(
    ("reason", "error"),
    [
        ('exec failed: exec: "sh": executable file not found in $PATH: unknown', NotFound),
        ('exec failed: exec: "sh": stat sh: no such file or directory: unknown', NotFound),
        # The container exits at the same time.
        ("exec failed: open /proc/12/ns/ipc: no such file or directory: unknown", BackendError),
    ],
)
def test_a_missing_file_of_an_exiting_container_is_no_missing_program(reason, error):
    ref = ContainerRef(process="worker", unit="worker", pod="worker", uid="1")
    with pytest.raises(error) as caught:
        exec.check_exit(exec_stream.CommandExit(exit_code=None, reason=reason), ref, ["sh"])
    assert caught.type is error

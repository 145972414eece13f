"""The scripts that stop the program of a container and send signals, in process namespaces."""

import contextlib
import json
import os
import re
import select
import shutil
import signal
import subprocess
import sys
import time

import pytest

from symphony import Experiment
from symphony.cluster.backend import LaunchRequest
from symphony_kube.api.labels import Scope
from symphony_kube.cluster import KubeCluster
from symphony_kube.render.container_scripts import (
    STOP_PATH,
    STOPPED_MESSAGE,
    UNHANDLED_CODE,
    SignalMode,
    is_starter,
    shell_command,
    signal_command,
    stop_command,
    with_first_process,
)
from symphony_kube.render.stop_script import scripts_object
from tests.backends.kube.namespaces import Pod, are_available, child_of

SHELLS = [
    shell for shell in (["dash"], ["bash", "--posix"], ["busybox", "sh"]) if shutil.which(shell[0])
]
# Save for a moment after the first signal. A second signal interrupts this.
SAVES = """
import os, signal, sys, time
def note(text): os.write(1, text.encode() + b"\\\\n")
def stop(number, _):
    note(signal.Signals(number).name)
    for each in (2, 10, 15): signal.signal(each, lambda *_: os._exit(note("lost") or 1))
    time.sleep(0.3)
    os._exit(note("saved") or 5)
for each in (2, 10, 15): signal.signal(each, stop)
note("up")
while True: time.sleep(100)
"""
PYTHON = f"{sys.executable} -I -S -c"
SAVER = f"{PYTHON} '{SAVES}'".replace("\\\\n", "\\n")
# Start the program given as the argument, and handle TERM in this way.
STARTS = "import os, signal, subprocess, sys, time; signal.signal(15, lambda *_: {}); "
STARTS += "child = subprocess.Popen(sys.argv[1:]); {}"
EXITS = STARTS.format("os._exit(7)", "time.sleep(1000)")
WAITS = STARTS.format("None", "sys.exit(child.wait())")
GRACE = 3
TERMINATION_LOG = "/dev/termination-log"


class Container:
    """The first process of a container, which is stopped as Kubernetes does it."""

    def __init__(self, pod, shell, command, script_path):
        self.pod, self.shell, self.script_path = pod, shell, script_path
        self.first = pod.start(*command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.pid = None
        self.output = ""

    def read(self, expected, seconds=30):
        """Read the output until it contains a line as often as expected."""
        line, times = expected
        end = time.monotonic() + seconds
        while self.output.count(f"{line}\n") < times:
            ready, _, _ = select.select([self.first.stdout], [], [], end - time.monotonic())
            data = os.read(self.first.stdout.fileno(), 4096) if ready else b""
            assert data, self.output
            self.output += data.decode()
        self.pid = child_of(self.first.pid)

    def run(self, command):
        """Run a command as exec does, with this container's shell."""
        return self.pod.start(
            *self.shell, *command[1:], stdout=subprocess.PIPE, stderr=subprocess.STDOUT
        )

    def run_hook(self, number, **options):
        """Run the script that stops the program, which is a file in the container."""
        shell, _, *arguments = stop_command(number, GRACE, **options, mounted=True)
        return self.run([shell, str(self.script_path), *arguments])

    def stop(self, number=signal.SIGTERM, **options):
        """Run the hook, send TERM to the first process, and return the exit code of the latter."""
        hook = self.run_hook(number, **options)
        while hook.poll() is None and self.first.poll() is None:
            time.sleep(0.01)
        if self.first.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            self.first.wait(GRACE + 2)
        # The runtime kills all processes when the first one has exited.
        self.pod.kill()
        self.output += self.first.stdout.read().replace("Terminated\n", "")
        return self.first.wait()


@pytest.fixture(scope="module")
def _namespaces():
    if not are_available():
        pytest.skip("this user cannot create process namespaces")


@pytest.fixture(params=SHELLS, ids=lambda shell: shell[0])
def start(request, tmp_path, _namespaces):
    """Start containers whose first process and hooks run in one of the shells."""
    pods = []
    script_path = tmp_path / STOP_PATH.lstrip("/")
    script_path.parent.mkdir(parents=True)
    stop = scripts_object(Scope(experiment="e", namespace="e"))["data"]["stop"]
    message = str(tmp_path / "termination-log")
    script_path.write_text(stop.replace(TERMINATION_LOG, message))

    def start(*command, first_process=True, ready=("up", 1)):
        pods.append(Pod(tmp_path))
        if first_process:
            first = [word.replace(TERMINATION_LOG, message) for word in with_first_process(command)]
            command = [*request.param, *first[1:]]
        container = Container(pods[-1], request.param, command, script_path)
        if ready:
            container.read(ready)
        return container

    yield start
    for pod in pods:
        pod.end()


SAVED = "up\nSIGTERM\nsaved\n"
# The commands, and the exit codes with and without a first process of symphony.
COMMANDS = [
    ([*SAVER.split(" ", 3)[:3], "-c", SAVER.split("-c ", 1)[1].strip("'")], 5, 5),
    (["sh", "-c", f"{SAVER}; echo after"], 143, 143),
    (["bash", "-c", f"{SAVER} && {SAVER}"], 143, 143),
    (["sh", "-c", f"{SAVER} | cat"], 143, 143),
    (["bash", "-c", f"setsid {SAVER} & wait"], 143, 143),
    (["sh", "-c", f"(setsid {SAVER} &); sleep 1000"], 143, 143),
    (["sh", "-c", f"sh -c \"sleep 1000; {PYTHON} ''\" & {SAVER}"], 143, 143),
]


@pytest.mark.parametrize("first_process", [True, False])
def test_the_program_receives_the_signal_once_and_saves(start, first_process):
    containers = [start(*command, first_process=first_process) for command, *_ in COMMANDS]
    for container, (_, with_first, without) in zip(containers, COMMANDS, strict=True):
        code = container.stop()
        assert (container.output, code) == (SAVED, with_first if first_process else without)


def test_programs_that_a_starter_leaves_behind_save_as_well(start):
    container = start(*PYTHON.split(), EXITS, "sh", "-c", f"{SAVER} | cat")
    assert container.stop() == 7
    assert container.output == SAVED


# The same as SAVES. `go run` builds and starts it, and leaves it behind when it receives TERM.
SAVES_IN_GO = """
package main

import (
	"os"
	"os/signal"
	"syscall"
	"time"
)

func main() {
	signals := make(chan os.Signal, 2)
	signal.Notify(signals, syscall.SIGTERM)
	os.Stdout.WriteString("up\\n")
	<-signals
	os.Stdout.WriteString("SIGTERM\\n")
	select {
	case <-signals:
		os.Stdout.WriteString("lost\\n")
	case <-time.After(300 * time.Millisecond):
		os.Stdout.WriteString("saved\\n")
	}
}
"""


# Other tests run the scripts in all shells, and with a starter that exits like that of Go.
@pytest.mark.timeout(300)  # Go may have to compile its standard library.
@pytest.mark.parametrize("start", SHELLS[:1], ids=lambda shell: shell[0], indirect=True)
@pytest.mark.parametrize("starter", ["npm", pytest.param("go", marks=pytest.mark.long)])
def test_programs_of_real_starters_receive_the_signal_once(start, tmp_path, starter):
    if shutil.which(starter) is None:
        pytest.skip(f"{starter} is not installed")
    (tmp_path / "saves.py").write_text(SAVES.replace("\\\\", "\\"))
    scripts = {"saves": f"{sys.executable} -I -S saves.py; echo after"}
    (tmp_path / "package.json").write_text(json.dumps({"name": "saves", "scripts": scripts}))
    (tmp_path / "saves.go").write_text(SAVES_IN_GO)
    command = {
        "npm": ["npm", "--silent", "--prefix", str(tmp_path), "run", "saves"],
        "go": ["go", "run", str(tmp_path / "saves.go")],
    }[starter]
    container = start(*command, ready=None)
    container.read(("up", 1), seconds=240)
    container.stop()
    assert container.output == SAVED


def test_a_program_below_one_that_only_waits_is_asked_in_time(start):
    container = start(*PYTHON.split(), WAITS, "sh", "-c", f"exec {SAVER}")
    begin = time.monotonic()
    assert container.stop() == 5
    assert container.output == SAVED
    assert time.monotonic() - begin >= GRACE * 2 / 3


def test_all_processes_receive_a_signal_that_none_handles(start):
    container = start("sh", "-c", "echo up; sleep 1000; echo after")
    assert container.stop() == 143
    assert container.output == "up\n"
    container = start("sh", "-c", "echo up; exec sleep 1000", first_process=False)
    assert container.stop() == 143


def test_another_signal_can_stop_the_program(start):
    container = start("sh", "-c", f"{SAVER}; echo after")
    assert container.stop(signal.SIGINT) == 143
    # The program is the first process, whose exit interrupts the hook.
    direct = start("sh", "-c", f"exec {SAVER}", first_process=False)
    assert direct.stop(signal.SIGINT) == 5
    assert container.output == direct.output == SAVED.replace("TERM", "INT")


def test_a_suspended_program_continues_before_it_is_stopped(start):
    container = start("sh", "-c", f"{SAVER}; echo after")
    container.run(signal_command(signal.SIGSTOP, SignalMode.EVERY)).wait(30)
    assert container.stop() == 143
    assert container.output == SAVED


def test_a_shell_with_a_trap_does_not_wait_for_a_suspended_program(start):
    program = "sh -c 'trap \"echo late\" TERM; sleep 0.1; :'"
    script = f"trap 'echo saved; exit 3' TERM; echo up; while :; do {program}; done"
    container = start("sh", "-c", script)
    container.run(signal_command(signal.SIGSTOP, SignalMode.EVERY)).wait(30)
    assert container.stop() == 3
    assert container.output == "up\nsaved\n"


def test_a_command_can_stop_the_program(start):
    command = ["sh", "-c", f"echo stopping; pkill -INT -n -f '^{PYTHON}'"]
    container = start("sh", "-c", f"{SAVER}; echo after")
    assert container.stop(command=command) == 143
    assert container.output == "up\nstopping\nSIGINT\nsaved\n"
    # The signal is sent if the command fails.
    container = start("sh", "-c", f"{SAVER}; echo after")
    assert container.stop(command=["false"]) == 143
    assert container.output == SAVED


def test_all_processes_can_receive_the_signal_at_once(start):
    container = start(*PYTHON.split(), WAITS, *PYTHON.split(), SAVES.replace("\\\\", "\\"))
    begin = time.monotonic()
    assert container.stop(group=True) == 5
    assert container.output == SAVED
    assert time.monotonic() - begin < GRACE * 2 / 3


def test_the_containers_of_a_pod_are_stopped_separately(start):
    container = start("sh", "-c", f"{SAVER}; echo after")
    other = container.pod.start("sh", "-c", f"exec {SAVER}", stdout=subprocess.PIPE)
    assert other.stdout.readline() == "up\n"
    container.pod.move_to_other_container(other)
    assert container.stop() == 143
    assert container.output == SAVED
    assert other.wait() == 137


def test_the_hook_keeps_no_pipe_open_while_a_process_watches_the_program(start):
    """A node sends TERM only when the pipes of the hook are closed."""
    container = start("sh", "-c", f"exec {SAVER}", first_process=False)
    hook = container.run_hook(signal.SIGTERM)
    read_to_end(hook.stdout)
    assert hook.wait(30) == 0
    watching = subprocess.run(["pgrep", "-f", str(container.script_path)], capture_output=True)
    assert len(watching.stdout.split()) == 1
    assert container.output == "up\n"
    os.kill(container.pid, signal.SIGTERM)
    assert container.first.wait(30) == 5


@pytest.mark.parametrize(
    ("options", "code", "expected", "reports"),
    [
        ({"report": True, "failure": True}, 0, 143, f"{STOPPED_MESSAGE}; exit code 0 becomes 143"),
        ({"report": True, "failure": True}, 4, 4, f"{STOPPED_MESSAGE}; exit code 0 becomes 143"),
        ({"report": True}, 0, 0, STOPPED_MESSAGE),
        ({"failure": True}, 0, 0, ""),
    ],
)
def test_a_program_that_kubernetes_stops_has_not_succeeded(
    start, tmp_path, options, code, expected, reports
):
    message = tmp_path / "termination-log"
    message.write_text("from the program")
    container = start("sh", "-c", f"trap 'exit {code}' TERM; echo up; while :; do sleep 0.01; done")
    assert (container.stop(**options), message.read_text().strip()) == (
        expected,
        f"from the program{reports}",
    )


def test_a_program_that_exits_by_itself_or_starts_again_in_place_can_succeed(start, tmp_path):
    message = tmp_path / "termination-log"
    message.write_text("")
    assert start("sh", "-c", "exit 0", ready=None).first.wait(30) == 0
    container = start("sh", "-c", "trap 'exit 0' TERM; echo up; while :; do sleep 0.01; done")
    _, _, *arguments = stop_command(15, GRACE, report=True, failure=True, mounted=True)
    shell = ["env", "SYMPHONY_RESTARTS=yes", *container.shell]
    container.pod.start(*shell, str(container.script_path), *arguments).wait(30)
    assert container.first.wait(30) == 0
    assert not message.read_text()


def read_to_end(pipe, seconds=30):
    """Read a pipe until all of its writers have closed it. Fail if this takes too long."""
    data = b"..."
    while data:
        ready, _, _ = select.select([pipe], [], [], seconds)
        assert ready, "a process keeps the pipe open"
        data = os.read(pipe.fileno(), 4096)


def test_a_second_hook_waits_for_the_first(start):
    container = start("sh", "-c", f"{SAVER}; echo after")
    first = container.run(stop_command(signal.SIGTERM, GRACE))
    container.read(("SIGTERM", 1))
    assert container.stop() == 143
    assert first.wait() == 0
    assert container.output == SAVED


def test_a_signal_reaches_the_programs_that_handle_it(start):
    container = start("bash", "-c", f"{SAVER} | cat; sleep 1000")
    assert container.run(signal_command(signal.SIGUSR1, SignalMode.CHECK)).wait(30) == 0
    assert container.run(signal_command(signal.SIGUSR1, SignalMode.REFUSE)).wait(30) == 0
    container.read(("saved", 1))
    assert container.output == SAVED.replace("TERM", "USR1")
    assert container.run(signal_command(signal.SIGHUP, SignalMode.REFUSE)).wait(30) == (
        UNHANDLED_CODE
    )
    assert container.first.poll() is None
    assert container.run(signal_command(signal.SIGHUP, SignalMode.ALL)).wait(30) == 0
    assert container.first.wait(30) == 129


@pytest.mark.parametrize("shell", SHELLS, ids=lambda shell: shell[0])
def test_the_first_process_exits_with_the_code_of_the_program(shell):
    codes = []
    for line in (
        "cat; exit 3",
        "kill -KILL $$",
        "kill -INT $$",
        "trap '' TERM; kill $PPID; exit 4",
    ):
        command = [*shell, *with_first_process(["sh", "-c", line])[1:]]
        done = subprocess.run(command, input="input", capture_output=True, text=True)
        assert done.stderr == ""
        codes.append(done.returncode)
    assert codes == [3, 137, 130, 4]
    missing = subprocess.run(
        [*shell, *with_first_process(["/nosuch"])[1:]], capture_output=True, text=True
    )
    assert missing.returncode == 127
    assert re.search("/nosuch: (not found|No such file)", missing.stderr)


def test_a_shell_line_runs_in_bash_if_there_is_one(tmp_path):
    line = shell_command(['[ -n "$BASH_VERSION" ] && echo bash; echo $0 $1', "name", "argument"])
    done = subprocess.run(line, capture_output=True, text=True)
    assert done.stdout == "bash\nname argument\n"
    done = subprocess.run(line, capture_output=True, text=True, env={"PATH": str(tmp_path)})
    assert done.stdout == "name argument\n"


def test_programs_that_start_others_are_known():
    assert all(is_starter(words) for words in (["npm", "run", "x"], ["/bin/bash", "-c", "x"]))
    assert not any(is_starter(words) for words in ([], ["python3"], ["./train"]))


# --- rendering ---


def hook_of(**settings):
    options = settings.pop("options", {})
    settings = {"container_image": "i", "command": ["p"], "termination_grace_period": 9, **settings}
    experiment = Experiment.load_dict({"name": "e", "processes": {"p": settings}})
    (pod,) = [item for item in KubeCluster(**options).manifest(experiment) if item["kind"] == "Pod"]
    lifecycle = pod["spec"]["containers"][0].get("lifecycle", {})
    return lifecycle.get("preStop", {}).get("exec", {}).get("command")


def stop_signal_of(minor="37+", **settings):
    """Return the signal and the system of a Pod, and the requests to a server with a version."""
    requests = []

    class Server:
        def call(self, _, path):
            requests.append(path)
            return {"major": "1", "minor": minor}

    settings = {"container_image": "i", "command": ["p"], "stop_signal": "INT", **settings}
    experiment = Experiment.load_dict({"name": "e", "processes": {"p": settings}})
    cluster = KubeCluster()
    backend = cluster.implementation
    vars(backend.options.connection)["api"] = Server()
    request = LaunchRequest(experiment=experiment, defaults=cluster.defaults, options={})
    description = backend.planner.describe(request, None)
    (body,) = description.manifest.units
    spec = body["spec"].get("template", body)["spec"]
    lifecycle = spec["containers"][0].get("lifecycle", {})
    return lifecycle.get("stopSignal"), spec.get("os"), requests


LINUX = {"name": "linux"}
BY_USER = {"preStop": {"exec": {"command": ["mine"]}}}


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ("SIGINT", LINUX)),
        ({"job": True, "restart_policy": "Never"}, ("SIGINT", LINUX)),
        ({"minor": "33"}, ("SIGINT", LINUX)),
        ({"minor": "32"}, (None, None)),
        ({"minor": ""}, (None, None)),
        ({"stop_signal": "TERM"}, (None, None)),
        # The program is not the first process.
        ({"command": ["npm", "start"]}, (None, None)),
        ({"command": ["sh", "-c", "p"]}, (None, None)),
        # Overrides of the user.
        ({"container_yml": {"lifecycle": BY_USER}}, ("SIGINT", LINUX)),
        ({"container_yml": {"lifecycle": {"stopSignal": "SIGHUP"}}}, ("SIGHUP", None)),
        ({"pod_yml": {"spec": {"os": {"name": "windows"}}}}, (None, {"name": "windows"})),
        ({"pod_yml": {"spec": {"hostPID": True}}}, ("SIGINT", LINUX)),
    ],
)
def test_the_node_knows_the_signal_of_the_first_process(settings, expected):
    signal, system, requests = stop_signal_of(**settings)
    assert (signal, system) == expected
    assert requests == ["/version"]


def test_a_server_is_asked_only_if_a_process_has_a_signal():
    assert stop_signal_of(stop_signal=None) == (None, None, [])


def mounted_stop(*arguments, **options):
    return stop_command(*arguments, **options, mounted=True)


def test_the_hook_depends_on_the_settings():
    assert hook_of() == mounted_stop(15, 9)
    assert hook_of(stop_signal="INT", signal_group=True) == mounted_stop(2, 9, group=True)
    assert hook_of(stop_command=["a", "$(b)"]) == mounted_stop(15, 9, command=["a", "$(b)"])
    line = shell_command(["a | b"])
    assert hook_of(stop_command="a | b") == mounted_stop(15, 9, command=line)
    in_directory = hook_of(stop_command="a | b", start_dir="deep")
    assert in_directory[-len(line) :] == line
    assert in_directory != hook_of(stop_command="a | b")


def test_overrides_can_replace_and_prevent_the_hook():
    pod_yml = {"spec": {"terminationGracePeriodSeconds": 60}}
    assert hook_of(pod_yml=pod_yml) == hook_of(options={"pod_yml": pod_yml}) == mounted_stop(15, 60)
    own = {"lifecycle": {"preStop": {"exec": {"command": ["mine"]}}}}
    assert hook_of(container_yml=own) == ["mine"]
    assert hook_of(container_yml={"lifecycle": {"postStart": {}}}) == mounted_stop(15, 9)
    assert hook_of(termination_grace_period=0) is None
    assert hook_of(pod_yml={"spec": {"hostPID": True}}) is None

"""``--dry-run`` of every command: it changes nothing, and refuses what the command refuses."""

from __future__ import annotations

import argparse
import contextlib
import shlex
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from symphony.cluster import Cluster
from symphony.commandline import SymphonyParser
from symphony.supervised.processes.process_groups import wait_for_exit
from symphony.supervised.record.directory import RunDirectory
from tests.cli.conftest import TIMEOUT, Program

# The calls of each command. LIVE-FILE describes the running experiment, FILE another one.
CALLS: dict[str, list[str]] = {
    "launch": [
        "launch FILE",
        "launch FILE --force --wait ready",
        "launch FILE --follow --json",
        "launch LIVE-FILE --force",
    ],
    "render": ["render FILE", "render FILE --json", "render LIVE-FILE"],
    "check": ["check FILE --target local"],
    "submit": ["submit --name live --force -- touch made", "submit --follow -- touch made"],
    "init": ["init made", "init made --json"],
    "import": ["import Procfile -o made.yml", "import Procfile --json"],
    "ls": ["ls", "ls --json"],
    "ps": ["ps live", "ps live server"],
    "graph": ["graph live", "graph live -o made.svg", "graph FILE -o made.txt"],
    "describe": ["describe live server"],
    "logs": ["logs live", "logs live --save made", "logs live server --save made --follow"],
    "events": ["events live", "events ended a --json"],
    "wait": ["wait ended", "wait ended a"],
    "history": ["history", "history ended --json"],
    "show": ["show live", "show ended --json"],
    "compare": ["compare live ended"],
    "up": ["up FILE", "up LIVE-FILE --name live --deadline 6h --json"],
    "diff": ["diff LIVE-FILE"],
    "scale": ["scale live pool=2 --json"],
    "stop": ["stop live", "stop live server --json"],
    "start": ["start live"],
    "restart": ["restart live server"],
    "signal": ["signal live server -s HUP"],
    "debug": ["debug live server", "debug live server --stack"],
    "exec": ["exec live server -- touch made", "exec live s* --all -- touch made"],
    "attach": ["attach live server"],
    "cp": ["cp live server:ended.yml made", "cp live other.yml server:made"],
    "forward": ["forward live db"],
    "visit": ["visit live web"],
    "top": ["top", "top live"],
    "ui": ["ui", "ui live --json"],
    "down": ["down live", "down live --json"],
    "delete": [
        "delete live",
        "delete -f live ended",
        "delete -f live nowhere --json",
        "delete --all",
        "delete 'l*' -f",
    ],
    "rerun": ["rerun ended", "rerun live --force --json", "rerun deleted --name again"],
    "resume": ["resume", "resume --json"],
    "install": ["install --user-unit"],
    "prune": ["prune --keep 0", "prune --max-size 0 --json"],
    "backends": ["backends"],
    "completion": ["completion bash"],
    "config": ["config show", "config path", "config schema"],
}
# The calls that the local backend refuses, with their errors.
REFUSED = {
    "debug live server": "which does not begin with Python and one program",
    "attach live server": "process 'server' has no terminal: set tty: true on it",
}
# Calls that change something without --dry-run. They show that the comparison detects changes.
CHANGING = (
    "launch FILE",
    "submit --name once -- touch submitted",
    "init made",
    "import Procfile -o made.yml",
    "graph live -o made.svg",
    "logs live --save made",
    "exec live server -- touch made",
    "cp live server:ended.yml made-too",
    "rerun ended --name again",
    "scale live pool=1",
    "delete -f live",
    "prune --keep 0",
)


class Environment:
    """A directory with two experiments, one of which is running, and a snapshot of its state."""

    def __init__(self, program: Program, backend: str) -> None:
        self.program = program
        self.backend = backend
        xdg = str(program.directory / "xdg")
        program.env.update(SYMPHONY_BACKEND=backend, XDG_STATE_HOME=xdg, XDG_RUNTIME_DIR=xdg)
        self.file = program.file("other", {"a": "true"})
        exposes = {"web": None, "board": free_port()}
        live = {
            "server": {**ready_process("server"), "binds": "db", "exposes": exposes},
            "client": ready_process("client"),
            "pool": {"cmd": "true", "replicas": 0},
        }
        self.live_file = program.file("live", live)
        program.ok("launch", self.live_file, "--wait", "ready")
        program.ok("launch", program.file("ended", {"a": "true"}))
        program.ok("wait", "ended")
        program.ok("launch", program.file("deleted", {"a": "true"}))
        program.ok("delete", "-f", "deleted")
        # The supervisor may still write files until it has exited.
        supervisor = RunDirectory(program.state / backend / "ended").supervisor()
        assert supervisor is None or wait_for_exit(supervisor, TIMEOUT)
        (program.directory / "started").mkdir()
        (program.directory / "started" / "worker.py").touch()
        (program.directory / "Procfile").write_text("web: true")

    def words(self, call: str) -> list[str]:
        files = {"FILE": str(self.file), "LIVE-FILE": str(self.live_file)}
        return [files.get(word, word) for word in shlex.split(call)]

    def dry_run(self, call: str, *options: str, **env: str) -> subprocess.CompletedProcess[str]:
        """Run a call with ``--dry-run`` and other options before ``--``."""
        words = self.words(call)
        end = words.index("--") if "--" in words else len(words)
        return self.program(*words[:end], "--dry-run", *options, *words[end:], **env)

    def snapshot(self) -> dict[str, object]:
        """Return each file with its content and times, all processes, and the windows of tmux."""
        found: dict[str, object] = {}
        for path in sorted(self.program.directory.rglob("*")):
            # A supervisor that exits removes files.
            with contextlib.suppress(FileNotFoundError):
                stat = path.lstat()
                content = path.read_bytes() if path.is_file() else b""
                found[str(path)] = (stat.st_mode, stat.st_ino, stat.st_mtime_ns, content)
        cluster = Cluster.new(self.backend, state_dir=self.program.state / self.backend)
        for name in cluster.list_experiments():
            found[name] = cluster.describe_experiment(name)
        if self.backend == "tmux":
            sockets = Path(self.program.env["TMUX_TMPDIR"]).rglob("*")
            found.update({str(path): tmux_panes(path) for path in sockets})
        return found


def tmux_panes(socket_path: Path) -> str:
    pane = "#S #I #W #{pane_pid} #{session_attached}"
    done = subprocess.run(
        ["tmux", "-S", socket_path, "list-panes", "-a", "-F", pane],
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
        check=False,
    )
    return done.stdout


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Environment]:
    """One environment for all tests, because no dry run changes it."""
    program = Program(tmp_path_factory.mktemp("dry"))
    yield Environment(program, "local")
    cluster = program.cluster
    for name in cluster.list_experiments():
        cluster.stop(name, at_once=True)
        cluster.delete(name)


def test_every_command_has_a_dry_run() -> None:
    """A new command on which the option has an effect must have an entry in the table above."""
    parser = SymphonyParser(prog="symphony")
    options = {
        verb: parser.get_subparser(verb)._option_string_actions["--dry-run"]
        for verb in parser.verbs
    }
    shown = {verb for verb, option in options.items() if option.help != argparse.SUPPRESS}
    assert shown <= CALLS.keys() <= options.keys()
    for verb, calls in CALLS.items():
        assert all(call.split()[0] == verb for call in calls)


def test_a_dry_run_changes_nothing(environment: Environment) -> None:
    before = environment.snapshot()
    for calls in CALLS.values():
        for call in calls:
            done = environment.dry_run(call)
            if call in REFUSED:
                assert done.returncode == 2, call
                assert REFUSED[call] in done.stderr
            else:
                assert done.returncode == 0, (call, done.stderr)
            assert environment.snapshot() == before, call


def test_a_dry_run_changes_nothing_in_tmux(program: Program, tmux_sockets: Path) -> None:
    pytest.importorskip("libtmux")
    program.env.update(TMUX_TMPDIR=str(tmux_sockets), TMUX="")
    environment = Environment(program, "tmux")
    before = environment.snapshot()
    verbs = (
        "launch",
        "submit",
        "render",
        "exec",
        "attach",
        "cp",
        "delete",
        "logs",
        "rerun",
        "graph",
    )
    for verb in verbs:
        for call in CALLS[verb]:
            assert environment.dry_run(call).returncode == 0, call
    assert environment.snapshot() == before
    assert program.ok("delete", "-f", "live", "ended") != ""


def test_the_same_calls_without_dry_run_change_something(program: Program) -> None:
    environment = Environment(program, "local")
    for call in CHANGING:
        before = environment.snapshot()
        assert program(*environment.words(call)).returncode == 0, call
        assert environment.snapshot() != before, call


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("init made", "would write made/experiment.yml\nwould write made/collector.py\n"),
        ("graph live -o made.svg", "would write made.svg as svg\n"),
        ("logs live --save made", "would write made/server.log\nwould write made/client.log\n"),
        (
            "exec live server -- touch 'it is made'",
            "would run in the environment of server of live: touch 'it is made'\n",
        ),
        ("delete -f live nowhere", "would delete live running: 2 running\n"),
        ("visit live web", "would print http://127.0.0.1:"),
        ("forward live db", "would print the address of port "),
        ("cp live server:ended.yml made", "would copy server:ended.yml to made (live)\n"),
    ],
)
def test_the_message_of_a_dry_run(environment: Environment, call: str, message: str) -> None:
    done = environment.dry_run(call)
    assert done.returncode == 0, done.stderr
    assert message in done.stderr


@pytest.mark.parametrize(
    ("call", "message"),
    [
        ("init started", "these files exist: started/worker.py"),
        ("visit live db", "does not expose 'db'; for its address, use: symphony forward live db"),
        ("visit live nowhere", "does not expose 'nowhere'"),
        ("exec live missing -- true", "no process 'missing'"),
        ("attach live missing", "no process 'missing'"),
        ("cp live missing:page here", "no process 'missing'"),
        (
            "cp live server:page here",
            "cannot copy 'server:page': no such file or directory: ",
        ),
        ("cp live nothing server:", "cannot copy 'nothing': no such file or directory: nothing"),
        ("cp live server:other.yml .", "they are the same file"),
        ("cp live other.yml made", "are both local paths"),
        ("launch LIVE-FILE", "experiment 'live' is running and was not changed"),
        ("launch LIVE-FILE --json", "experiment 'live' is running and was not changed"),
        ("launch FILE --name live", "experiment 'live' is running and was not changed"),
        (
            "submit --name live -- true",
            "job 'live' already exists (running) and cannot be changed",
        ),
        (
            "submit --name ended --json -- true",
            "job 'ended' already exists (succeeded) and cannot be changed",
        ),
        ("rerun live", "experiment 'live' is running and was not changed"),
        ("rerun nowhere", "there is no run 'nowhere'"),
        ("graph live -o made.png", "the format of made.png is not known"),
        ("logs live missing --save made", "no process 'missing'"),
        ("delete live nowhere", "no experiment 'nowhere'"),
        ("render FILE --with-secrets made", "contains no values of secrets on this backend"),
    ],
)
def test_a_dry_run_has_the_errors_of_the_command(
    environment: Environment, call: str, message: str
) -> None:
    done = environment.dry_run(call)
    assert done.returncode == 2, done.stderr
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("call", ["launch FILE --name saved", "submit --name saved -- true"])
def test_a_saved_name_needs_force(environment: Environment, call: str, tmp_path: Path) -> None:
    (tmp_path / "saved").mkdir()
    saved = {"SYMPHONY_EXPERIMENT_FOLDER": str(tmp_path)}
    error = f"is saved in {tmp_path}/saved already"
    launched = environment.program(*environment.words(call), **saved)
    for done in (
        launched,
        environment.dry_run(call, **saved),
        environment.dry_run(call, "--json", **saved),
    ):
        assert (done.returncode, done.stdout) == (2, "")
        assert error in done.stderr
    forced = environment.dry_run(call, "--force", **saved)
    assert (forced.returncode, forced.stderr) == (0, "")
    # A saved name does not matter to render.
    environment.program.ok("render", str(environment.file), "--name", "saved", **saved)


def ready_process(name: str) -> dict[str, object]:
    """Return a process that is ready as soon as its command runs.

    In tmux, its log exists by then, but not when its window is created.
    """
    return {
        "cmd": f"touch begun-{name}; exec sleep 1000",
        "ready": {"command": ["test", "-e", f"begun-{name}"]},
    }


def free_port() -> int:
    """Return a port that is not in use."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])

"""``--dry-run`` changes nothing, whatever the command: each of them, on an experiment that runs."""

from __future__ import annotations

import shlex
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from symphony.cluster import Cluster
from symphony.commandline import SymphonyParser
from symphony.host.run.directory import RunDirectory
from symphony.host.processes.control import wait_for_exit
from tests.cli.conftest import TIMEOUT, Program

# By command, how it is called; every command of the parser is here. LIVE runs, FILE describes another experiment.
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
    "ls": ["ls", "ls --json"],
    "ps": ["ps live"],
    "graph": ["graph live", "graph live -o made.svg", "graph FILE -o made.txt"],
    "describe": ["describe live server"],
    "logs": ["logs live", "logs live --save made", "logs live server --save made --follow"],
    "wait": ["wait ended"],
    "exec": ["exec live server -- touch made", "exec live server --json -- touch made"],
    "attach": ["attach live server"],
    "cp": ["cp live server:ended.yml made", "cp live other.yml server:made"],
    "forward": ["forward live db"],
    "visit": ["visit live web"],
    "delete": ["delete live", "delete -f live ended", "delete -f live nowhere --json"],
    "delete-batch": ["delete-batch --all", "delete-batch 'l*' -f"],
    "switch-experiment": ["switch-experiment ended", "switch-experiment live --json"],
    "backends": ["backends"],
    "completion": ["completion bash"],
    "config": ["config show", "config path", "config schema"],
}
# What each of them refuses, dry or not.
REFUSED = {
    "attach live server": "the local backend cannot attach a terminal",
    "forward live db": "cannot forward ports",
}
# What would show that the comparison sees a change: each of these makes one when it is not dry.
CHANGING = (
    "launch FILE",
    "submit --name once -- touch submitted",
    "init made",
    "graph live -o made.svg",
    "logs live --save made",
    "exec live server -- touch made",
    "cp live server:ended.yml made-too",
    "switch-experiment ended",
    "delete -f live",
)


class Running:
    """A folder with two experiments, one that runs and one that has ended, and all that there is of them."""

    def __init__(self, program: Program, backend: str) -> None:
        self.program = program
        self.backend = backend
        program.env["SYMPHONY_BACKEND"] = backend
        program.env["XDG_STATE_HOME"] = program.env["XDG_RUNTIME_DIR"] = str(program.folder / "xdg")
        self.file = program.file("other", {"a": "true"})
        live = {
            "server": {
                **begun("server"),
                "binds": "db",
                "exposes": {"web": None, "board": free_port()},
            },
            "client": begun("client"),
        }
        self.live_file = program.file("live", live)
        program.ok("launch", self.live_file, "--wait", "ready")
        program.ok("launch", program.file("ended", {"a": "true"}))
        program.ok("wait", "ended")
        supervisor = RunDirectory(program.state / backend / "ended").supervisor()
        assert supervisor is None or wait_for_exit(
            supervisor, TIMEOUT
        )  # until then it has something to write
        program.ok("switch-experiment", "live")
        (program.folder / "started").mkdir()
        (program.folder / "started" / "worker.py").touch()

    def words(self, call: str) -> list[str]:
        files = {"FILE": str(self.file), "LIVE-FILE": str(self.live_file)}
        return [files.get(word, word) for word in shlex.split(call)]

    def dry(self, call: str) -> subprocess.CompletedProcess[str]:
        """Run a command with ``--dry-run``, which stands before what is another's."""
        words = self.words(call)
        place = words.index("--") if "--" in words else len(words)
        return self.program(*words[:place], "--dry-run", *words[place:])

    def everything(self) -> dict[str, object]:
        """Each file with its content and times, the processes, and what tmux has."""
        found: dict[str, object] = {}
        for path in sorted(self.program.folder.rglob("*")):
            told = path.lstat()
            content = path.read_bytes() if path.is_file() else b""
            found[str(path)] = (told.st_mode, told.st_ino, told.st_mtime_ns, content)
        cluster = Cluster.new(self.backend, state_dir=self.program.state / self.backend)
        found.update(
            {name: cluster.describe_experiment(name) for name in cluster.list_experiments()}
        )
        if self.backend == "tmux":
            folder = Path(self.program.env["TMUX_TMPDIR"])
            for socket in folder.rglob("*"):
                words = [
                    "tmux",
                    "-S",
                    socket,
                    "list-panes",
                    "-a",
                    "-F",
                    "#S #I #W #{pane_pid} #{session_attached}",
                ]
                found[str(socket)] = subprocess.run(
                    words, capture_output=True, text=True, timeout=TIMEOUT, check=False
                ).stdout
        return found


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory, cache: Path) -> Iterator[Running]:
    """One for all tests: none of them changes it."""
    program = Program(tmp_path_factory.mktemp("dry"), cache)
    yield Running(program, "local")
    cluster = program.cluster
    for name in cluster.list_experiments():
        cluster.stop(name, at_once=True)
        cluster.delete(name)


def test_every_command_takes_it() -> None:
    """A new command comes with a dry run, and with a line in the table above."""
    parser = SymphonyParser(prog="symphony")
    assert list(CALLS) == parser.verbs
    for verb in parser.verbs:
        assert "--dry-run" in parser.get_subparser(verb)._option_string_actions, verb
    for verb, calls in CALLS.items():
        assert all(call.split()[0] == verb for call in calls)


def test_nothing_is_changed(running: Running) -> None:
    before = running.everything()
    for calls in CALLS.values():
        for call in calls:
            done = running.dry(call)
            if call in REFUSED:
                assert (done.returncode, REFUSED[call] in done.stderr) == (2, True), call
            else:
                assert done.returncode == 0, (call, done.stderr)
            assert running.everything() == before, call


def test_nothing_is_changed_in_tmux(program: Program, tmux_sockets: Path) -> None:
    pytest.importorskip("libtmux")
    program.env.update(TMUX_TMPDIR=str(tmux_sockets), TMUX="")
    running = Running(program, "tmux")
    before = running.everything()
    for verb in (
        "launch",
        "submit",
        "render",
        "exec",
        "attach",
        "cp",
        "delete",
        "delete-batch",
        "switch-experiment",
        "logs",
        "graph",
    ):
        for call in CALLS[verb]:
            assert running.dry(call).returncode == 0, call
    assert running.everything() == before
    assert program.ok("delete", "-f", "live", "ended") != ""


def test_without_it_the_same_does_change_something(program: Program) -> None:
    running = Running(program, "local")
    for call in CHANGING:
        before = running.everything()
        assert running.program(*running.words(call)).returncode == 0, call
        assert running.everything() != before, call


@pytest.mark.parametrize(
    ("call", "said"),
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
        ("cp live serv:ended.yml made", "would copy server:ended.yml to made (live)\n"),
    ],
)
def test_it_says_what_would_be_done(running: Running, call: str, said: str) -> None:
    done = running.dry(call)
    assert (done.returncode, said in done.stderr) == (0, True), done.stderr


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("init started", "these files exist: started/worker.py"),
        ("visit live db", "binds but does not expose 'db'"),
        ("visit live nowhere", "does not expose 'nowhere'"),
        ("exec live nobody -- true", "no process 'nobody'"),
        ("attach live nobody", "no process 'nobody'"),
        ("cp live nobody:page here", "no process 'nobody'"),
        (
            "cp live serv:page here",
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
        ("graph live -o made.png", "the format of made.png is not known"),
        ("logs live nobody --save made", "no process 'nobody'"),
        ("delete live nowhere", "no experiment 'nowhere'"),
        ("render FILE --with-secrets made", "contains no values of secrets on this backend"),
    ],
)
def test_it_refuses_what_would_be_refused(running: Running, call: str, said: str) -> None:
    done = running.dry(call)
    assert (done.returncode, said in done.stderr) == (2, True), done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("call", ["launch FILE --name saved", "submit --name saved -- true"])
def test_a_name_that_is_saved_is_refused(running: Running, call: str, tmp_path: Path) -> None:
    """The same as by the launch itself, and shown with --force; ``render`` shows in any case."""
    (tmp_path / "saved").mkdir()
    saved = {"SYMPHONY_EXPERIMENT_FOLDER": str(tmp_path)}
    place = ("--force", "--dry-run")
    words = running.words(call)
    cut = words.index("--") if "--" in words else len(words)
    for options in ((), ("--dry-run",), ("--dry-run", "--json")):
        done = running.program(*words[:cut], *options, *words[cut:], **saved)
        assert (done.returncode, done.stdout) == (2, "")
        assert f"is saved in {tmp_path}/saved already" in done.stderr
    done = running.program(*words[:cut], *place, *words[cut:], **saved)
    assert (done.returncode, done.stderr) == (0, "")
    assert running.program("render", str(running.file), "--name", "saved", **saved).returncode == 0


def begun(name: str) -> dict[str, object]:
    """A process that is ready once its command runs: in tmux it has a log by then, which comes after its window."""
    return {
        "cmd": f"touch begun-{name}; exec sleep 1000",
        "ready": {"command": ["test", "-e", f"begun-{name}"]},
    }


def free_port() -> int:
    """A port that nobody has."""
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])

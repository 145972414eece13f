"""Test the keeper: the shell of a window, which exits when the output of its process was read."""

import os
import signal
from pathlib import Path

import psutil
import pytest

from symphony.status import State
from symphony.supervised.read import log_files
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.record.status import StatusReader
from symphony.testing import until
from symphony.testing.contract import all_running
from symphony.testing.programs import FOREVER
from symphony_tmux import keeper
from tests.backends.tmux.conftest import (
    eventually,
    first_process,
    python,
    run_directory,
    tmux,
    windows,
)
from tests.supervision import kill, kill_supervision
from tests.unit.scan_cost import LOG, passes

MARK = "\x1b]5379;symphony;7\x1b\\"
# A program that prints INT for each SIGINT.
COUNT_INTERRUPTS = (
    "import signal, time; signal.signal(2, lambda *_: print('INT', flush=True))\n"
    "print('up', flush=True)\n"
    "while True: time.sleep(100)"
)
READ_LINE = "print('up'); print('got', input())"
IGNORE_HANGUP = (
    "import signal; signal.signal(1, signal.SIG_IGN); print('up', flush=True); signal.pause()"
)


def press(*keys):
    tmux("send-keys", "-t", "=exp:0", *keys)


def wait_for_log(cluster, text):
    eventually(lambda: text in cluster.get_log("exp", "p"))


def read_logs(cluster, *arguments, **options):
    return [line.text for line in cluster.iter_logs("exp", *arguments, **options)]


@pytest.fixture
def launch(cluster, experiment):
    """Return a function that launches one process and returns its id when it has printed ``up``."""

    def launch(program, **options):
        python(experiment, "p", program, **options).ready(log="^up$").termination_grace_period(5)
        cluster.launch(experiment)
        return until(cluster, "exp", lambda now: now.processes[0].ready).processes[0].pid

    return launch


def wait_for_exit(cluster):
    status = until(cluster, "exp", lambda now: now.processes[0].state is not State.RUNNING)
    return status.processes[0]


# --- the mark in the log ---


def test_mark_is_removed_from_output():
    assert keeper.mark(7) == MARK
    assert keeper.clean(f"one\r\ntwo{MARK}again\r\n{MARK}") == "one\ntwoagain\n"
    assert keeper.clean("\x1b]5379;other\x1b\\\r") == "\x1b]5379;other\x1b\\\r"


@pytest.mark.parametrize("size", [1, 2, 3, 7, 100])
def test_mark_is_removed_from_pieces_of_any_size(size):
    text = f"one\r\ntwo\r{MARK}\r\n\x1b]0;x\x07{'three' * 20}{MARK * 2}\r\nfour\x1b{MARK}"
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    assert "".join(keeper.clean_pieces(pieces)) == keeper.clean(text)


def test_mark_is_found_fast_in_a_long_log():
    text = LOG.replace("\n", "\r\n")
    assert passes(lambda log: list(keeper.clean_pieces([log])), text) < 2


def test_mark_is_not_shown(cluster, experiment):
    experiment.new_process("p", cmd="echo one; echo two")
    experiment.new_process("q", cmd="echo one; printf two")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=30)
    assert MARK[:4] in (run_directory(cluster) / "logs" / "p.log").read_text()
    expected = [(name, text) for name in "pq" for text in ("one", "two")]
    for tail in (None, 2):
        lines = list(cluster.iter_logs("exp", tail=tail))
        assert sorted((line.process, line.text) for line in lines) == expected
    assert [cluster.get_log("exp", name, tail=1) for name in "pq"] == ["two\n", "two"]
    assert read_logs(cluster, ["p"], follow=True, tail=1) == ["two"]
    output, _, _ = tmux("capture-pane", "-p", "-S", "-", "-t", "=exp:0").partition("Pane is dead")
    assert output.split() == ["one", "two"]


def test_log_is_limited(cluster, experiment):
    program = "for number in range(20_000): print('line', number)"
    python(experiment, "p", program).log_limit("64Ki")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=30)
    # The limit is applied for the last time after the exit has been recorded.
    eventually(lambda: len(cluster.get_log("exp", "p")) <= 2**16)
    assert cluster.get_log("exp", "p").startswith("line ")
    assert cluster.get_log("exp", "p", tail=1) == "line 19999\n"


# One line with the characters that other programs accept as the end of a line.
LINE = "{}\r{} done\f\v\x1c\x85\u2028end"


def lines_of(processes, numbers):
    return [LINE.format(process, number) for process in processes for number in numbers]


def add_writer(experiment, name, directory=None):
    """Add a process that writes six lines.

    If a directory is given, it waits after three lines until the directory has a file ``go``.
    """
    program = f"import os, time\nfor n in range(6):\n    print({LINE!r}.format('{name}', n))\n"
    if directory:
        program += "    while n == 2 and not os.path.exists('go'): time.sleep(0.02)\n"
    return python(experiment, name, program, start_dir=directory)


@pytest.mark.parametrize("tail", [0, 1, 2, 5, 9])
def test_tail_of_finished_processes(cluster, experiment, tail):
    for name in "pq":
        add_writer(experiment, name)
    cluster.launch(experiment)
    cluster.wait("exp", timeout=30)
    numbers = range(max(0, 6 - tail), 6)
    for name in "pq":
        log = "".join(f"{line}\n" for line in lines_of(name, numbers))
        assert cluster.get_log("exp", name, tail=tail) == log
        for follow in (False, True):
            lines = read_logs(cluster, [name], tail=tail, follow=follow)
            assert lines == lines_of(name, numbers)
    for follow in (False, True):
        lines = read_logs(cluster, tail=tail, follow=follow)
        assert sorted(lines) == lines_of("pq", numbers)


@pytest.mark.parametrize("tail", [1, 2])
def test_tail_of_running_processes(cluster, experiment, tmp_path, tail):
    for name in "pq":
        add_writer(experiment, name, str(tmp_path))
    cluster.launch(experiment)
    eventually(lambda: all(cluster.get_log("exp", name).count("\n") == 3 for name in "pq"))
    numbers = range(3 - tail, 3)
    assert read_logs(cluster, ["p"], tail=tail) == lines_of("p", numbers)
    followed = cluster.iter_logs("exp", tail=tail, follow=True)
    first = [next(followed).text for _ in range(2 * tail)]
    assert sorted(first) == lines_of("pq", numbers)
    (tmp_path / "go").touch()
    assert sorted(line.text for line in followed) == lines_of("pq", (3, 4, 5))


def test_tail_of_a_log_that_grows_while_it_is_opened(cluster, launch, monkeypatch):
    """The keeper appends its mark at that moment, so the last line is not the last in the file."""
    launch("print('same'); print('up'); print('same'); input()")
    wait_for_log(cluster, "up\nsame\n")
    read_merged = log_files.read_merged

    def append_and_read(run, *args, **options):
        with run.log("p").open("a") as log:
            log.write(MARK)
        return read_merged(run, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(log_files, "read_merged", append_and_read)
        assert read_logs(cluster, tail=1) == ["same"]


def test_incomplete_line_counts_as_the_last(cluster, launch):
    launch("print('one'); print('up'); print('beg', end=''); input(); print('un')")
    wait_for_log(cluster, "beg")
    assert read_logs(cluster, tail=1) == ["beg"]
    followed = cluster.iter_logs("exp", tail=2, follow=True)
    assert next(followed).text == "up"
    press("Enter")  # The terminal echoes the key, which completes the line.
    assert [line.text for line in followed] == ["beg", "un"]


def test_mark_is_removed_after_a_restart(cluster, experiment):
    process = python(experiment, "p", "print('up'); raise SystemExit(4)")
    process.restart_policy("OnFailure").ready(log="^up$")
    cluster.launch(experiment)
    until(
        cluster,
        "exp",
        lambda now: now.processes[0].restarts >= 1 and now.processes[0].state is State.PENDING,
    )
    assert cluster.get_log("exp", "p") == "up\nup\n"
    assert read_logs(cluster) == ["up", "up"]


# --- the environment of the process ---


def test_terminal_files_signals_and_directory_of_a_process(cluster, experiment):
    program = """
import os, signal
print(os.getpid() == os.getpgrp() == os.tcgetpgrp(0), os.isatty(1), os.isatty(2))
paths = [f"/proc/self/fd/{number}" for number in os.listdir("/proc/self/fd") if int(number) > 2]
print([os.readlink(path) for path in paths if os.path.exists(path)])
print([s.name for s in signal.Signals if signal.getsignal(s) == signal.SIG_IGN])
print(sorted(key for key in os.environ if "PWD" in key), os.environ["PWD"])
"""
    python(experiment, "p", program, start_dir=str(cluster._root.parent))
    cluster.launch(experiment)
    cluster.wait("exp", timeout=30)
    group, open_files, ignored, directories = cluster.get_log("exp", "p").splitlines()
    assert group == "True True True"
    assert open_files == "[]"
    assert ignored == "['SIGPIPE', 'SIGXFSZ']"  # Python itself ignores these.
    assert directories == f"['OLDPWD', 'PWD'] {cluster._root.parent}"


@pytest.fixture(params=["sh", "bash"])
def shell(request, monkeypatch):
    """Run the keeper with sh, then with bash, which preserves names that a POSIX shell removes."""
    if request.param == "bash":
        monkeypatch.setenv("odd.name%%", "1")


def test_ctrl_c_interrupts_only_the_process(cluster, launch, shell):
    pid = launch(COUNT_INTERRUPTS)
    for count in (1, 2):
        press("C-c")
        eventually(lambda count=count: cluster.get_log("exp", "p").count("INT") == count)
    assert psutil.pid_exists(psutil.Process(pid).ppid())
    assert first_process(cluster).state is State.RUNNING


def test_ctrl_c_kills_the_process_group(cluster, launch, shell):
    launch(
        "import subprocess, time; subprocess.Popen(['sleep', '1000'])\n"
        "print('up'); time.sleep(1000)"
    )
    press("C-c")
    assert wait_for_exit(cluster).exit_code == 130
    assert "KeyboardInterrupt" in cluster.get_log("exp", "p")
    eventually(lambda: windows(format="#{pane_dead} #{pane_dead_status}") == ["1 130"])


def test_ctrl_z_does_not_stop_the_process(cluster, launch, shell):
    pid = launch(READ_LINE)
    for _ in range(3):
        press("C-z")
        eventually(lambda: psutil.Process(pid).status() != psutil.STATUS_STOPPED)
    press("words", "Enter")
    assert wait_for_exit(cluster).exit_code == 0
    assert "got words" in cluster.get_log("exp", "p")


def is_in_foreground(pid):
    """Return whether the terminal of a process belongs to its process group. See proc(5)."""
    _, _, fields = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")
    group, _, _, foreground = fields.split()[2:6]
    return group == foreground


def test_stopped_process_remains_stopped_until_it_is_continued(cluster, launch, tmp_path, shell):
    program = (
        "import os, time; print('up')\n"
        "while not os.path.exists('go'): time.sleep(0.02)\n"
        "print('got', input())"
    )
    process = psutil.Process(launch(program, start_dir=str(tmp_path)))
    process.suspend()
    # The keeper runs sleep when it has noticed the stop.
    eventually(lambda: "sleep" in [child.name() for child in process.parent().children()])
    assert process.status() == psutil.STATUS_STOPPED
    process.resume()
    eventually(lambda: is_in_foreground(process.pid))
    (tmp_path / "go").touch()
    press("words", "Enter")
    assert wait_for_exit(cluster).exit_code == 0, cluster.get_log("exp", "p")
    assert "got words" in cluster.get_log("exp", "p")


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGSEGV, signal.SIGKILL, signal.SIGHUP, signal.SIGPIPE]
)
def test_process_killed_by_a_signal(cluster, experiment, number):
    experiment.new_process("p", command=["sh", "-c", f"echo output; kill -{number.value} $$"])
    cluster.launch(experiment)
    process = cluster.wait("exp", timeout=30).processes[0]
    assert (process.exit_code, process.reason) == (128 + number, f"killed by {number.name}")
    # tmux receives the exit code later than the supervisor.
    eventually(lambda: windows(format="#{pane_dead_status}") == [str(128 + number)])
    assert cluster.get_log("exp", "p") == "output\n"


def test_exit_codes_that_the_shell_reports_for_a_stop(cluster, experiment, shell):
    for code in (147, 148):
        experiment.new_process(f"p-{code}", cmd=f"exit {code}")
    cluster.launch(experiment)
    assert [process.exit_code for process in cluster.wait("exp", timeout=30)] == [147, 148]


# --- the exit of a process does not hang ---


def test_process_exits_without_a_supervisor(cluster, launch):
    pid = launch("print('up'); input(); print('x' * 20_000); raise SystemExit(3)")
    kill_supervision(RunDirectory(cluster._root / "exp"))
    eventually(lambda: cluster.describe_experiment("exp").note != "")
    process = first_process(cluster)
    assert (process.state, process.pid) == (State.RUNNING, pid)
    press("Enter")
    reported = [process]
    while reported[-1].state is State.RUNNING:
        reported.append(first_process(cluster))
    assert {process.pid for process in reported} <= {pid, None}, "the keeper was reported"
    eventually(lambda: windows(format="#{pane_dead} #{pane_dead_status}") == ["1 3"])
    wait_for_log(cluster, "x" * 20_000 + "\n")


def test_guardian_replaces_the_supervisor_with_nothing_typed(cluster, launch):
    """The exit code of a process that has exited in the meantime is known."""
    launch("print('up'); input(); raise SystemExit(3)")
    run = RunDirectory(cluster._root / "exp")
    guardian, supervisor = run.guardian(), run.supervisor()
    os.kill(guardian, signal.SIGSTOP)
    kill(supervisor.pid)
    press("Enter")
    eventually(lambda: windows(format="#{pane_dead}") == ["1"])
    os.kill(guardian, signal.SIGCONT)
    # This reader starts no supervisor.
    reader = StatusReader(run)
    eventually(lambda: reader.read().processes[0].exit_code == 3)
    eventually(lambda: run.guardian() is None)


def test_exit_is_reported_if_a_child_keeps_writing(cluster, experiment, tmp_path):
    """The child is in another session, ignores SIGHUP and writes without a pause."""
    child = "trap '' HUP; echo more; >begun; while echo more; do :; done"
    wait = "until [ -e begun ]; do sleep 0.02; done"
    script = f'echo output; setsid sh -c "{child}" & {wait}; exit 3'
    experiment.new_process("p", command=["sh", "-c", script], start_dir=str(tmp_path))
    cluster.launch(experiment)
    assert cluster.wait("exp", timeout=30).processes[0].exit_code == 3
    log = cluster.get_log("exp", "p")
    assert log.startswith("output\nmore\n")
    assert "5379" not in log


def test_exit_is_reported_if_the_log_writer_was_killed(cluster, launch):
    pid = launch(READ_LINE)
    log_writer = int((run_directory(cluster) / "gates" / "p.pid").read_text())
    os.kill(log_writer, signal.SIGKILL)
    os.kill(pid, signal.SIGTERM)
    assert wait_for_exit(cluster).exit_code == 143


def test_exit_is_reported_if_ctrl_s_stopped_the_output(cluster, launch):
    pid = launch(READ_LINE)
    press("C-s")
    os.kill(pid, signal.SIGTERM)
    assert wait_for_exit(cluster).exit_code == 143
    assert cluster.get_log("exp", "p").startswith("up\n")


def test_process_is_supervised_after_its_keeper_was_killed(cluster, launch):
    process = psutil.Process(launch(IGNORE_HANGUP))
    process.parent().kill()
    eventually(lambda: windows(format="#{pane_dead}") == ["1"])
    assert first_process(cluster).state is State.RUNNING
    process.kill()
    assert wait_for_exit(cluster).state is State.FAILED


def test_process_is_supervised_after_its_window_was_closed(cluster, experiment):
    python(experiment, "p", IGNORE_HANGUP).ready(log="^up$")
    python(experiment, "other", FOREVER)  # Its window keeps the session open.
    cluster.launch(experiment)
    until(cluster, "exp", lambda now: all_running(now) and now.processes[0].ready)
    pid = first_process(cluster).pid
    tmux("kill-window", "-t", "=exp:0")
    assert first_process(cluster).pid == pid
    os.kill(pid, signal.SIGTERM)
    process = wait_for_exit(cluster)
    assert process.state is State.UNKNOWN
    assert process.reason == "exit status unknown: its window was closed"

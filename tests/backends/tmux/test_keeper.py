"""The shell of a window, which runs its process and stays until all that this wrote is read."""

import json
import os
import signal
from pathlib import Path

import psutil
import pytest

from symphony.status import State
from symphony.testing import until
from symphony.testing.contract import all_running
from symphony.testing.programs import FOREVER
from symphony_tmux import keeper
from tests.backends.tmux.conftest import eventually, python, tmux, windows

MARK = "\x1b]5379;symphony;7\x1b\\"
COUNTS = (
    "import signal, time; signal.signal(2, lambda *_: print('INT', flush=True)); print('up', flush=True)\n"
    "while True: time.sleep(100)"
)
ASKS = "print('up'); print('got', input())"


def press(key, window=0):
    tmux("send-keys", "-t", f"=exp:{window}", key)


def said(cluster, text, process="p"):
    return lambda: text in cluster.get_log("exp", process)


@pytest.fixture
def launched(cluster, experiment):
    """Launch one process, and return its id once it has said that it is up."""

    def launch(program):
        python(experiment, "p", program).ready(log="^up$").termination_grace_period(5)
        cluster.launch(experiment)
        return until(cluster, "exp", lambda now: now.processes[0].ready).processes[0].pid

    return launch


def ended(cluster):
    return until(cluster, "exp", lambda now: now.processes[0].state is not State.RUNNING).processes[
        0
    ]


def supervisor(cluster):
    return psutil.Process(
        json.loads((cluster._root / "exp" / "supervisor.json").read_text())["pid"]
    )


# --- what of the log is the keeper's ---


def test_what_a_window_got_is_cleaned():
    assert keeper.mark(7) == MARK
    assert keeper.clean(f"one\r\ntwo{MARK}again\r\n{MARK}") == "one\ntwoagain\n"
    assert keeper.clean("\x1b]5379;other\x1b\\\r") == "\x1b]5379;other\x1b\\\r"
    assert [keeper.is_mark(line) for line in (MARK, MARK * 2, MARK + "x", "", MARK + "\r")] == [
        True,
        True,
        False,
        False,
        False,
    ]
    assert [keeper.last_lines("a\r\n\nb", count) for count in (0, 1, 2, 9)] == [
        "",
        "b",
        "\nb",
        "a\r\n\nb",
    ]


def test_the_mark_is_in_no_log_and_on_no_screen(cluster, experiment):
    experiment.new_process("p", cmd="echo one; echo two")
    experiment.new_process("q", cmd="echo one; printf two")
    cluster.launch(experiment)
    cluster.wait("exp", timeout=30)
    assert MARK[:4] in (cluster._root / "exp" / "logs" / "p.log").read_text()
    for tail in (None, 2):
        lines = list(cluster.iter_logs("exp", tail=tail))
        assert sorted((line.process, line.text) for line in lines) == [
            (name, text) for name in "pq" for text in ("one", "two")
        ]
    assert [cluster.get_log("exp", name, tail=1) for name in "pq"] == ["two\n", "two"]
    assert [line.text for line in cluster.iter_logs("exp", ["p"], follow=True, tail=1)] == ["two"]
    assert tmux("capture-pane", "-p", "-S", "-", "-t", "=exp:0").split("Pane is dead")[
        0
    ].split() == ["one", "two"]


# One line, whatever other places of a computer take for the end of one.
LINE = "{}\r{} done\f\v\x1c\x85\u2028end"


def lines_of(process, *numbers):
    return [LINE.format(process, number) for number in numbers]


def writes(to, name, folder=None):
    """A process that writes three lines and, given a folder, three more once a file ``go`` is in it."""
    program = f"import os, time\nfor n in range(6):\n    print({LINE!r}.format('{name}', n))\n" + (
        "    while n == 2 and not os.path.exists('go'): time.sleep(0.02)\n" if folder else ""
    )
    return python(to, name, program, start_dir=folder)


@pytest.mark.parametrize("tail", [0, 1, 2, 5, 9])
def test_the_last_lines_of_what_has_ended(cluster, experiment, tail):
    for name in "pq":
        writes(experiment, name)
    cluster.launch(experiment)
    cluster.wait("exp", timeout=30)
    last = range(max(0, 6 - tail), 6)
    for name in "pq":
        assert cluster.get_log("exp", name, tail=tail) == "".join(
            f"{line}\n" for line in lines_of(name, *last)
        )
        for follow in (False, True):
            found = [
                line.text for line in cluster.iter_logs("exp", [name], tail=tail, follow=follow)
            ]
            assert found == lines_of(name, *last)
    for follow in (False, True):
        merged = list(cluster.iter_logs("exp", tail=tail, follow=follow))
        assert sorted(line.text for line in merged) == sorted(
            lines_of("p", *last) + lines_of("q", *last)
        )


@pytest.mark.parametrize("tail", [1, 2])
def test_the_last_lines_of_what_goes_on(cluster, experiment, tmp_path, tail):
    for name in "pq":
        writes(experiment, name, str(tmp_path))
    cluster.launch(experiment)
    eventually(lambda: all(cluster.get_log("exp", name).count("\n") == 3 for name in "pq"))
    so_far = range(3 - tail, 3)
    assert [line.text for line in cluster.iter_logs("exp", ["p"], tail=tail)] == lines_of(
        "p", *so_far
    )
    follows = cluster.iter_logs("exp", tail=tail, follow=True)
    begins = [next(follows).text for _ in range(2 * tail)]
    assert sorted(begins) == sorted(lines_of("p", *so_far) + lines_of("q", *so_far))
    (tmp_path / "go").touch()
    assert sorted(line.text for line in follows) == sorted(
        lines_of("p", 3, 4, 5) + lines_of("q", 3, 4, 5)
    )


def test_a_log_that_grows_as_it_is_opened_loses_no_line(cluster, launched, monkeypatch):
    """The process ends at the very moment: where a line was the one before the last, now its mark is the last."""
    launched("print('same'); print('up'); print('same'); input()")
    eventually(said(cluster, "up\nsame\n"))
    from symphony.host import logs

    real = logs.read_merged

    def merged(run, *args, **options):
        with run.log("p").open("a") as log:
            log.write(MARK)
        return real(run, *args, **options)

    with monkeypatch.context() as patch:
        patch.setattr(logs, "read_merged", merged)
        assert [line.text for line in cluster.iter_logs("exp", tail=1)] == ["same"]


def test_a_line_that_is_begun_is_the_last(cluster, launched):
    launched("print('one'); print('up'); print('beg', end=''); input(); print('un')")
    eventually(said(cluster, "beg"))
    assert [line.text for line in cluster.iter_logs("exp", tail=1)] == ["beg"]
    follows = cluster.iter_logs("exp", tail=2, follow=True)
    assert next(follows).text == "up"
    press("Enter")  # its echo ends the line
    assert [line.text for line in follows] == ["beg", "un"]


def test_the_mark_of_one_run_is_not_in_the_next(cluster, experiment):
    python(experiment, "p", "print('up'); raise SystemExit(4)").restart_policy("OnFailure").ready(
        log="^up$"
    )
    cluster.launch(experiment)
    until(
        cluster,
        "exp",
        lambda now: now.processes[0].restarts >= 1 and now.processes[0].state is State.PENDING,
    )
    assert cluster.get_log("exp", "p") == "up\nup\n"
    assert [line.text for line in cluster.iter_logs("exp")] == ["up", "up"]


# --- what the process finds ---


def test_the_process_leads_its_group_to_which_the_terminal_belongs(cluster, experiment):
    program = (
        "import os, signal; print(os.getpid() == os.getpgrp() == os.tcgetpgrp(0), os.isatty(1), os.isatty(2));"
        "print(sorted(os.readlink(f'/proc/self/fd/{n}').split(':')[0] for n in os.listdir('/proc/self/fd')"
        " if os.path.exists(f'/proc/self/fd/{n}') and int(n) > 2));"
        "print([s.name for s in signal.Signals if signal.getsignal(s) == signal.SIG_IGN]);"
        "print(sorted(k for k in os.environ if 'PWD' in k), os.environ['PWD'])"
    )
    python(experiment, "p", program, start_dir=str(cluster._root.parent))
    cluster.launch(experiment)
    cluster.wait("exp", timeout=30)
    group, open_files, ignored, folders = cluster.get_log("exp", "p").splitlines()
    assert group == "True True True"
    assert open_files == "[]"
    assert ignored == "['SIGPIPE', 'SIGXFSZ']"  # Python's own
    assert folders == f"['OLDPWD', 'PWD'] {cluster._root.parent}"


@pytest.fixture(params=["sh", "bash"])
def shell(request, monkeypatch):
    """The keeper is bash where the environment has names that a POSIX shell drops."""
    if request.param == "bash":
        monkeypatch.setenv("odd.name%%", "1")


def test_ctrl_c_reaches_the_process_alone(cluster, launched, shell):
    pid = launched(COUNTS)
    for times in (1, 2):
        press("C-c")
        eventually(lambda times=times: cluster.get_log("exp", "p").count("INT") == times)
    assert psutil.pid_exists(psutil.Process(pid).ppid())
    assert cluster.describe_experiment("exp").processes[0].state is State.RUNNING


def test_ctrl_c_ends_a_process_and_its_group(cluster, launched, shell):
    launched(
        "import subprocess as s; s.Popen(['sleep', '1000']); print('up'); import time; time.sleep(1000)"
    )
    press("C-c")
    process = ended(cluster)
    assert process.exit_code == 130
    assert "KeyboardInterrupt" in cluster.get_log("exp", "p")
    eventually(lambda: windows(what="#{pane_dead} #{pane_dead_status}") == ["1 130"])


def test_ctrl_z_changes_nothing(cluster, launched, shell):
    pid = launched(ASKS)
    for _ in range(3):
        press("C-z")
        eventually(lambda: psutil.Process(pid).status() != psutil.STATUS_STOPPED)
    tmux("send-keys", "-t", "=exp:0", "words", "Enter")
    assert ended(cluster).exit_code == 0
    assert "got words" in cluster.get_log("exp", "p")


def has_the_terminal(pid):
    """By proc(5): its process group is the one in the foreground of its terminal."""
    group, _, _, foreground = Path(f"/proc/{pid}/stat").read_text().rpartition(") ")[2].split()[2:6]
    return group == foreground


def test_a_process_that_is_stopped_on_purpose_stays_so_until_it_is_continued(
    cluster, experiment, tmp_path, shell
):
    program = "import os, time; print('up')\nwhile not os.path.exists('go'): time.sleep(0.02)\nprint('got', input())"
    python(experiment, "p", program, start_dir=str(tmp_path)).ready(log="^up$")
    cluster.launch(experiment)
    process = psutil.Process(
        until(cluster, "exp", lambda now: now.processes[0].ready).processes[0].pid
    )
    process.suspend()
    eventually(
        lambda: "sleep" in [child.name() for child in process.parent().children()]
    )  # its keeper saw it
    assert process.status() == psutil.STATUS_STOPPED
    process.resume()
    eventually(lambda: has_the_terminal(process.pid))
    (tmp_path / "go").touch()
    tmux("send-keys", "-t", "=exp:0", "words", "Enter")
    assert ended(cluster).exit_code == 0, cluster.get_log("exp", "p")
    assert "got words" in cluster.get_log("exp", "p")


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGSEGV, signal.SIGKILL, signal.SIGHUP, signal.SIGPIPE]
)
def test_death_by_a_signal(cluster, experiment, number):
    experiment.new_process("p", command=["sh", "-c", f"echo said; kill -{number.value} $$"])
    cluster.launch(experiment)
    process = cluster.wait("exp", timeout=30).processes[0]
    assert (process.exit_code, process.reason) == (128 + number, f"killed by {number.name}")
    eventually(
        lambda: windows(what="#{pane_dead_status}") == [str(128 + number)]
    )  # tmux learns of it afterwards
    assert cluster.get_log("exp", "p") == "said\n"


def test_a_code_that_looks_like_a_stop(cluster, experiment, shell):
    for code in (147, 148):
        experiment.new_process(f"p-{code}", cmd=f"exit {code}")
    cluster.launch(experiment)
    assert [process.exit_code for process in cluster.wait("exp", timeout=30)] == [147, 148]


# --- nothing hangs ---


def test_without_a_supervisor_a_process_ends_all_the_same(cluster, launched):
    pid = launched("print('up'); input(); print('x' * 20_000); raise SystemExit(3)")
    died = supervisor(cluster)
    died.kill()
    eventually(lambda: cluster.describe_experiment("exp").note != "")
    shown = cluster.describe_experiment("exp").processes[0]
    assert (shown.state, shown.pid) == (State.RUNNING, pid)
    press("Enter")
    eventually(lambda: windows(what="#{pane_dead} #{pane_dead_status}") == ["1 3"])
    eventually(said(cluster, "x" * 20_000 + "\n"))


def test_what_somebody_else_writes_after_the_end_keeps_nobody(cluster, experiment, tmp_path):
    """A process left behind that a hang-up does not end, and that writes without a pause."""
    left = "trap '' HUP; echo more; >begun; while echo more; do :; done"
    ends = f'echo said; setsid sh -c "{left}" & until [ -e begun ]; do sleep 0.02; done; exit 3'
    experiment.new_process("p", command=["sh", "-c", ends], start_dir=str(tmp_path))
    cluster.launch(experiment)
    process = cluster.wait("exp", timeout=30).processes[0]
    assert process.exit_code == 3
    assert cluster.get_log("exp", "p").startswith("said\nmore\n")
    assert "5379" not in cluster.get_log("exp", "p")


def test_a_log_that_nobody_writes_any_more_keeps_nobody(cluster, launched):
    pid = launched(ASKS)
    sink = int((cluster._root / "exp" / "gates" / "p.pid").read_text())
    os.kill(sink, signal.SIGKILL)
    os.kill(pid, signal.SIGTERM)
    assert ended(cluster).exit_code == 143


def test_a_terminal_that_was_stopped_by_ctrl_s_keeps_nobody(cluster, launched):
    pid = launched(ASKS)
    press("C-s")
    os.kill(pid, signal.SIGTERM)
    assert ended(cluster).exit_code == 143
    assert cluster.get_log("exp", "p").startswith("up\n")


def test_a_keeper_that_is_killed_leaves_its_process_supervised(cluster, launched):
    program = (
        "import signal; signal.signal(1, signal.SIG_IGN); print('up', flush=True); signal.pause()"
    )
    process = psutil.Process(launched(program))
    process.parent().kill()
    eventually(lambda: windows(what="#{pane_dead}") == ["1"])
    assert cluster.describe_experiment("exp").processes[0].state is State.RUNNING
    process.kill()
    assert ended(cluster).state is State.FAILED


def test_a_window_that_is_closed_leaves_a_stubborn_process_supervised(cluster, experiment):
    program = (
        "import signal; signal.signal(1, signal.SIG_IGN); print('up', flush=True); signal.pause()"
    )
    python(experiment, "p", program).ready(log="^up$")
    python(experiment, "other", FOREVER)
    cluster.launch(experiment)
    pid = (
        until(cluster, "exp", lambda now: all_running(now) and now.processes[0].ready)
        .processes[0]
        .pid
    )
    tmux("kill-window", "-t", "=exp:0")
    assert cluster.describe_experiment("exp").processes[0].pid == pid
    os.kill(pid, signal.SIGTERM)
    process = ended(cluster)
    assert (process.state, process.reason) == (
        State.UNKNOWN,
        "exit status unknown: its window was closed",
    )

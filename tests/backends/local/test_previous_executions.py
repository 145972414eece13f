"""The programs that an execution of a process leaves behind when it exits."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from symphony.status import State
from symphony.testing import until

from .conftest import eventually, kill, marked, python, run_id_of

# A daemon leaves the process group, ignores SIGTERM and keeps the listening socket.
LEAVES_A_SERVER = """
import os, signal, socket, time
server = socket.create_server(("127.0.0.1", int(os.environ["SYMPH_WEB_PORT"])))
child = os.fork()
if child == 0:
    if os.fork():
        os._exit(0)
    os.setsid()
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    time.sleep(1000)
os.waitpid(child, 0)
server.close()
print("up")
time.sleep(1000)
"""
EXEC = """
import sys
from symphony import Cluster
Cluster.new("local", state_dir=sys.argv[1]).exec_command("exp", "web", ["sleep", "987"])
"""


@pytest.fixture
def web(cluster, experiment):
    process = python(experiment, "web", LEAVES_A_SERVER).binds("web").ready(tcp="web")
    process.restart_policy("Always").termination_grace_period(1)
    cluster.launch(experiment)
    return until(cluster, "exp", lambda now: now.processes[0].ready).processes[0]


def test_left_behind_programs_are_stopped_before_a_restart(cluster, web):
    run_id = run_id_of(cluster)
    (child,) = [pid for pid in marked(run_id) if os.getsid(pid) == pid != web.pid]
    kill(web.pid)
    waiting = until(cluster, "exp", lambda now: now.processes[0].state.value == "pending")
    assert waiting.processes[0].exit_code == 137
    after = until(cluster, "exp", lambda now: now.processes[0].ready).processes[0]
    assert after.restarts == 1
    assert child not in marked(run_id)
    # The next execution could use the port at once.
    assert cluster.get_log("exp", "web") == "up\nup\n"


def test_commands_of_users_survive_a_restart(cluster, state, web):
    run_id = run_id_of(cluster)
    caller = subprocess.Popen([sys.executable, "-c", EXEC, str(state)])
    try:
        eventually(lambda: sleeping(run_id))
        before = sleeping(run_id)
        cluster.restart_processes("exp", ["web"])
        # The request is done only when the next execution has started.
        assert cluster.describe_process("exp", "web").state is State.RUNNING
        after = until(cluster, "exp", lambda now: now.processes[0].ready).processes[0]
        assert after.restarts == 1
        assert cluster.get_log("exp", "web") == "up\nup\n"
        assert sleeping(run_id) == before
    finally:
        caller.kill()
        caller.wait()


def sleeping(run_id):
    return [pid for pid in marked(run_id) if "987" in Path(f"/proc/{pid}/cmdline").read_text()]

"""The supervisor in the batch step."""

import socket
import subprocess
import sys
import threading

import pytest

from symphony_slurm.batch import START_PYTHON, AgentStep
from symphony_slurm.job import accept_agents as accept
from symphony_slurm.job.accept_agents import (
    JobFailed,
    accept_agents,
    missing_agents_message,
    read_messages,
)
from symphony_slurm.job.agent_protocol import Channel

HELLO = {
    "event": "hello",
    "node": "n1",
    "host": "n1",
    "rank": 0,
    "gpus": [],
    "temporary_directory": "/tmp",
}


@pytest.mark.parametrize(
    ("log", "message"),
    [
        (
            "srun: error: Unable to confirm allocation for job 5: Socket timed out on send/recv "
            "operation\nsrun: Check SLURM_JOB_ID environment variable. Expired or invalid job 5\n",
            "Slurm could not start the agents: Unable to confirm allocation for job 5: Socket "
            "timed out on send/recv operation; try again when slurmctld is running ('scontrol "
            "ping')",
        ),
        (
            "srun: error: n2: task 1: Exited with exit code 1\n"
            "node n2: cannot read /run/x: No such file or directory; set state_dir\n",
            "node n2: cannot read /run/x: No such file or directory; set state_dir",
        ),
        ("", "only 0 of 2 nodes (none) have started their agents; see "),
        (
            "slurmstepd-n1: error: TMPDIR [/local] is not writeable\n"
            "srun: error: n1: task 0: Exited with exit code 1\n",
            "only 0 of 2 nodes (none) have started their agents (slurmstepd-n1: error: TMPDIR "
            "[/local] is not writeable); see ",
        ),
        (
            "slurmstepd-n1: error: TMPDIR [/local] is not writeable\n"
            "srun: error: Unable to create step for job 5: Job has expired\n",
            "Slurm could not start the agents: Unable to create step for job 5: Job has expired",
        ),
    ],
)
def test_reason_for_missing_agents_is_that_of_a_node_or_of_slurm(tmp_path, log, message):
    file = tmp_path / "agents.log"
    file.write_text(f"before the job was requeued\n{log}")
    start = len("before the job was requeued\n")
    step = AgentStep([], None, str(file))
    step.log_start = start
    assert missing_agents_message(read_messages(step), step, [], 2).startswith(message)


@pytest.mark.parametrize(
    "line", ["slurmstepd-n1: error: CPU time limit is 3000 seconds", "node n1: welcome"]
)
def test_messages_at_the_start_of_a_step_do_not_fail_it(tmp_path, line):
    log = tmp_path / "agents.log"
    log.write_text(f"{line}\n")
    with socket.create_server(("127.0.0.1", 0)) as server:
        # The agent connects when the message has been read.
        step = AgentStep(["/bin/sleep", "1000"], server, str(log))
        step.start()
        step.log_start = 0
        is_read = threading.Event()
        step.has_ended = is_read.set

        def connect():
            is_read.wait()
            channel = Channel(socket.create_connection(server.getsockname()))
            channel.prove(b"token", "agent", "supervisor")
            channel.send(HELLO)
            channels.append(channel)

        channels, agents = [], []
        agent = threading.Thread(target=connect)
        agent.start()
        accept_agents(step, b"token", 1, agents)
        agent.join()
        assert [found.node for found in agents] == ["n1"]
        channels[0].close()
        agents[0].channel.close()
        del step.has_ended
        step.stop(0.0)


def test_agent_that_exits_before_its_first_message_is_missing(tmp_path):
    log = tmp_path / "agents.log"
    log.touch()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def be_killed():
            channel = Channel(socket.create_connection(server.getsockname()))
            channel.prove(b"token", "agent", "supervisor")
            channel.close()

        agent = threading.Thread(target=be_killed)
        agent.start()
        step = AgentStep(["/bin/true"], server, str(log))
        step.start()
        with pytest.raises(JobFailed, match="only 0 of 1 nodes"):
            accept_agents(step, b"token", 1, [])
        agent.join()


def test_agent_that_is_replaced_before_the_others_are_connected_counts_once(tmp_path):
    step = AgentStep([], None, str(tmp_path / "log"))
    channels, agents = [], []
    with socket.create_server(("127.0.0.1", 0)) as server:
        step.server = server

        def connect():
            # The first agent of rank 0 is killed.
            for rank in (0, 0, 1):
                channel = Channel(socket.create_connection(server.getsockname()))
                channel.prove(b"token", "agent", "supervisor")
                channel.send({**HELLO, "rank": rank, "host": f"h{len(channels)}"})
                channels.append(channel)

        thread = threading.Thread(target=connect)
        thread.start()
        accept_agents(step, b"token", 2, agents)
        thread.join()
    assert [(agent.rank, agent.host) for agent in agents] == [(0, "h1"), (1, "h2")]
    for channel in (*channels, *(agent.channel for agent in agents)):
        channel.close()


def test_agents_are_started_again_if_slurmctld_does_not_answer(tmp_path, monkeypatch):
    monkeypatch.setattr(accept, "RETRY_SECONDS", 0.0)
    monkeypatch.setattr(accept, "ATTEMPT_SECONDS", 0.0)
    # The second attempt waits, and slurmctld answers the third one.
    script = """cd "$0"
        fail() { echo "srun: error: $1" >&2; exit 1; }
        mkdir first 2>/dev/null && fail "Unable to contact slurm controller (connect failure)"
        mkdir second 2>/dev/null && exec sleep 1000
        fail "Job has expired"
    """
    with socket.create_server(("127.0.0.1", 0)) as server:
        step = AgentStep(["/bin/sh", "-c", script, str(tmp_path)], server, str(tmp_path / "log"))
        step.start()
        with pytest.raises(JobFailed, match="could not start the agents: Job has expired"):
            accept_agents(step, b"token", 1, [])


@pytest.mark.parametrize(
    ("python", "program", "message"),
    [
        (sys.executable, "program.py", ""),
        ("/no/python", "program.py", "/no/python does not exist; run symphony with a Python that "),
        (sys.executable, "/no/agent.py", "/no/agent.py does not exist; install symphony in a "),
    ],
)
def test_python_or_symphony_that_a_node_does_not_have_is_reported(
    tmp_path, python, program, message
):
    (tmp_path / "program.py").write_text("import sys; print(sys.argv[1:])")
    command = [*START_PYTHON, python, "-I", "-S", program, "two words", "$x"]
    env = {"SLURMD_NODENAME": "n7"}
    done = subprocess.run(command, capture_output=True, text=True, cwd=tmp_path, env=env)
    if message:
        assert done.stderr.startswith(f"node n7: {message}"), done.stderr
        assert (done.returncode, done.stderr.count("\n")) == (127, 1)
    else:
        assert (done.returncode, done.stdout) == (0, "['two words', '$x']\n")

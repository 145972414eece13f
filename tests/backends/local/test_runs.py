"""The records of runs of the local backend."""

import errno
import json
import secrets
import signal
import subprocess
import sys

import pytest

from symphony import Cluster, SymphonyConfig
from symphony.archive import archive, run_record
from symphony.archive.archived_usage import read_usage
from symphony.errors import BackendError, LaunchFailed
from symphony.supervised.record.directory import RunDirectory
from symphony.supervised.user_requests.requests import open_channel
from symphony.usage import ExperimentUsage
from tests.backends.local.conftest import eventually, kill_supervision, python

pytestmark = pytest.mark.usefixtures("cluster")

# The launcher is killed when the supervisor has taken over.
KILLED_LAUNCHER = """
import os, signal, sys
from symphony import Cluster, SymphonyConfig
from symphony.supervised.supervisor import handover

hand_over = handover.hand_over
kill = lambda: os.kill(os.getpid(), signal.SIGKILL)
handover.hand_over = lambda *args, **options: hand_over(
    *args, **{**options, "while_launching": kill}
)
cluster = Cluster.new("local", state_dir=sys.argv[1])
experiment = cluster.new_experiment("exp")
experiment.new_process("p", command=["sleep", "1000"])
cluster.launch(experiment)
"""


@pytest.fixture(autouse=True)
def no_other_runs(tmp_path, monkeypatch):
    """Hide the records in the default state directory, which other tests may have written."""
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path / "default"))
    yield
    SymphonyConfig().reset()


def finish(cluster, experiment):
    cluster.launch(experiment)
    cluster.wait(experiment.name, timeout=60)


def test_the_record_describes_the_launch_and_contains_no_secrets(cluster, experiment, tmp_path):
    value = secrets.token_hex(16)
    (tmp_path / "token").write_text(value)
    experiment = cluster.new_experiment("exp", secrets={"token": str(tmp_path / "token")})
    python(experiment, "worker", "print(1)")
    finish(cluster, experiment)
    (active,) = cluster.list_runs()
    assert (active.name[:4], active.is_archived) == ("exp-", False)
    cluster.delete("exp")
    (run,) = cluster.list_runs()
    assert (run.name, run.is_archived, run.summary["state"]) == (active.name, True, "succeeded")
    launch = run.load_record()
    assert launch["definition"] == json.loads(json.dumps(experiment.dump_dict()))
    assert launch["backend"] == "local"
    files = [path for path in run.path.rglob("*") if path.is_file()]
    assert not [path for path in files if value.encode() in path.read_bytes()]


def test_a_failed_launch_leaves_no_record(cluster, experiment, tmp_path):
    program = tmp_path / "program"
    program.write_text("#!/there/is/no/interpreter\n")
    program.chmod(0o755)
    python(experiment, "good", "input()")
    experiment.new_process("bad", command=str(program))
    with pytest.raises(LaunchFailed):
        cluster.launch(experiment)
    assert cluster.list_runs() == []


def test_default_directories_of_all_backends_share_one_archive(experiment, tmp_path, monkeypatch):
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path / "shared"))
    cluster = Cluster.new("local")
    python(experiment, "worker", "print(1)")
    finish(cluster, experiment)
    cluster.delete("exp")
    (run,) = Cluster.new("tmux").list_runs()
    assert run.path.parent == tmp_path / "shared" / "runs"


def test_a_record_that_cannot_be_moved_is_reported_and_can_be_purged(
    cluster, experiment, monkeypatch
):
    python(experiment, "worker", "print(1)")
    finish(cluster, experiment)

    def fail(*_):
        raise OSError(errno.EXDEV, "Invalid cross-device link")

    monkeypatch.setattr(archive, "add", fail)
    with pytest.raises(BackendError, match="delete the experiment with --purge"):
        cluster.delete("exp")
    assert cluster.list_experiments() == ["exp"]
    cluster.delete("exp", purge=True)
    assert cluster.list_experiments() == []


def test_old_records_are_removed_after_a_deletion(cluster, experiment):
    cluster.configuration.update({"runs": {"keep": 1, "older_than": "1d"}})
    python(experiment, "worker", "print(1)")
    finish(cluster, experiment)
    finish(cluster, experiment)
    (run, _) = cluster.list_runs()
    (run.path / run_record.RECORD_FILE).unlink()
    (run.path / "note").write_text("the disk was full")
    cluster.delete("exp")
    (archived,) = cluster.list_runs()
    assert archived.name == run.name
    assert archived.summary["cut"] == [
        "the launch is not described, because the record could not be written",
        "the disk was full",
    ]


def test_an_experiment_is_recorded_even_if_its_launcher_is_killed(cluster):
    done = subprocess.run([sys.executable, "-c", KILLED_LAUNCHER, str(cluster._root)], check=False)
    assert done.returncode == -signal.SIGKILL
    eventually(lambda: cluster.list_experiments() == ["exp"])
    recorded = run_record.read_json(cluster._root / "exp" / run_record.RECORD_FILE)
    assert list(recorded["definition"]["processes"]) == ["p"]


def test_the_resource_use_is_recorded_also_by_the_next_supervisor(cluster, experiment):
    experiment.record_usage = True
    python(experiment, "worker", "input = b'x' * (30 << 20)\nimport signal; signal.pause()")
    cluster.launch(experiment)
    with RunDirectory(cluster._root / "exp").pin() as run:
        # A client on another machine receives the samples that are recorded.
        with open_channel(run, {"request": "usage"}) as (channel, received):
            while not received.endswith(b"\n"):
                received += channel.recv(1 << 16)
    sample = ExperimentUsage.from_dict(json.loads(received.splitlines()[0]))
    assert [usage.process for usage in sample.processes] == ["worker"]
    kill_supervision(cluster)
    before = cluster.recorded_usage("exp")
    cluster.describe_experiment("exp")
    eventually(lambda: len(cluster.recorded_usage("exp")) > len(before))
    cluster.delete("exp")
    (run,) = cluster.list_runs()
    after = cluster.at_run(run).recorded_usage("exp")
    assert after[: len(before)] == before
    memory = read_usage(run.path).summary["worker"]["memory"]
    assert memory.count == len(after)
    assert memory.peak > 30 << 20


def test_the_resource_use_is_recorded_by_default_if_this_is_configured(cluster, experiment):
    python(experiment, "worker", "print(1)")
    assert not cluster.manifest(experiment).policies.record_usage
    SymphonyConfig().update({"runs": {"record_usage": True}})
    cluster = Cluster.new("local")
    assert cluster.manifest(experiment).policies.record_usage
    experiment.record_usage = False
    assert not cluster.manifest(experiment).policies.record_usage

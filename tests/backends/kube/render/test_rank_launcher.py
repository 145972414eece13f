"""Several ranks in one Pod: the launcher, with each shell of this machine, and the Pods."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
import time

import pytest

from symphony import Experiment, SpecError
from symphony_kube.cluster import KubeCluster
from symphony_kube.render.container_scripts import late_centiseconds, script
from symphony_kube.render.pod_parts.containers import multiplied
from symphony_kube.render.pod_parts.rank_launcher import LAUNCHER

SHELLS = [
    shell for shell in (["dash"], ["bash", "--posix"], ["busybox", "sh"]) if shutil.which(shell[0])
]


# A program that finishes its work when it receives TERM.
FINISHES = """
import os, signal
signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGTERM])
os.write(1, b"started\\n")
signal.sigwait([signal.SIGTERM])
os.write(1, b"finished\\n")
"""


@pytest.fixture(params=SHELLS, ids=lambda shell: shell[0])
def start(request, tmp_path):
    """Start the launcher with three ranks from rank 4 on, in a process group of its own."""
    started = []

    def start(program, *, grace=30):
        stop = [script("stop"), str(int(signal.SIGTERM)), str(late_centiseconds(grace))]
        arguments = ["3", str(grace), *stop, "sh", "-c", program]
        command = [*request.param, "-c", LAUNCHER, "sh", *arguments]
        process = subprocess.Popen(
            command,
            env={**os.environ, "RANK": "4", "SYMPHONY_SCRATCH_DIR": str(tmp_path)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        process.stdout.close()


def test_each_rank_has_its_numbers(start):
    process = start('echo "$RANK $SYMPHONY_RANK $LOCAL_RANK $SYMPHONY_LOCAL_RANK"')
    output, _ = process.communicate(timeout=60)
    assert sorted(output.splitlines()) == ["4 4 0 0", "5 5 1 1", "6 6 2 2"]
    assert process.returncode == 0


def test_each_rank_has_a_scratch_directory_of_its_own(start, tmp_path):
    process = start('cd "$SYMPHONY_SCRATCH_DIR" && touch "of-$LOCAL_RANK"')
    process.communicate(timeout=60)
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.glob("*/*"))
    assert found == ["0/of-0", "1/of-1", "2/of-2"]


def test_the_failure_of_a_rank_stops_the_others(start):
    process = start('[ "$LOCAL_RANK" != 1 ] || exit 3; exec sleep 1000')
    output, _ = process.communicate(timeout=60)
    assert process.returncode == 3
    assert output == "rank 5 exited with 3\n"


def test_a_rank_that_ignores_term_is_killed(start):
    ignores = "trap '' TERM; while :; do sleep 1000; done"
    process = start(f'[ "$LOCAL_RANK" != 1 ] || exit 3; {ignores}', grace=1)
    # The programs that a rank has started remain until the container is removed, so the test does
    # not wait for the end of the output.
    assert process.wait(timeout=60) == 3


def test_term_reaches_all_ranks_which_can_finish(start):
    process = start(f"exec {sys.executable} -I -S -u -c '{FINISHES}'")
    for _ in range(3):
        assert process.stdout.readline() == "started\n"
    # Like Kubernetes, send the signal only to the first process of the container.
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=60)
    assert output == "finished\n" * 3
    assert process.returncode == 0


@pytest.mark.parametrize("milliseconds", range(0, 20, 2))
def test_term_during_the_start_stops_all_ranks(start, milliseconds):
    process = start("exec sleep 1000")
    time.sleep(milliseconds / 1000)
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=60)
    # The shell itself is killed if it has not executed the first lines.
    assert process.returncode in (128 + signal.SIGTERM, -signal.SIGTERM)


# --- rendering ---


def training(ranks=4, **settings):
    settings = {
        "ranks": ranks,
        "per_pod": 2,
        "container_image": "i",
        "command": ["c", "a"],
        **settings,
    }
    after = {"container_image": "i", "command": "d", "starts_after": {"train": "succeeded"}}
    processes = {"train": settings, "after": after}
    return Experiment.load_dict({"name": "e", "ends_with": "train", "processes": processes})


def pods_of(experiment):
    manifest = KubeCluster().manifest(experiment)
    pods = [body for body in manifest if body["kind"] == "Pod"]
    return manifest, {pod["metadata"]["name"]: pod["spec"]["containers"][0] for pod in pods}


def test_one_pod_runs_several_ranks():
    limit = {"gpu": 1, "cpu": 1.5, "memory": "2Gi"}
    manifest, pods = pods_of(training(resource_limit=limit))
    assert list(pods) == ["train-0", "train-2", "after"]
    second = pods["train-2"]
    assert second["resources"]["limits"] == {"nvidia.com/gpu": "2", "cpu": "3.0", "memory": "4Gi"}
    assert second["command"][:2] == ["/bin/sh", "-c"]
    assert second["command"][3:6] == ["/bin/sh", "2", "30"]
    assert second["command"][7:] == ["15", "2000", "c", "a"]
    env = {item["name"]: item["value"] for item in second["env"]}
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE", "NODE_RANK")
    assert [env[name] for name in names] == ["2", "4", "0", "2", "1"]
    assert manifest.policies.ends_with == ("train-0", "train-2")
    (after,) = (unit for unit in manifest.roster if unit.name == "after")
    assert after.starts_after == {"train-0": "succeeded", "train-2": "succeeded"}


def test_other_backends_start_each_rank_as_a_process(tmp_path):
    from symphony import Cluster

    manifest = Cluster.new("local", state_dir=tmp_path).manifest(training())
    assert "per_pod" in {item.setting for item in manifest.ignored}


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"ranks": 3}, "is one of 3 ranks, which is no multiple of per_pod"),
        ({"per_pod": 0}, "per_pod must be at least 1"),
        ({"binds": "metrics"}, "binds service 'metrics', but the ranks of a Pod cannot"),
        ({"command": ["c", "${index}"]}, "'train-1' differs from 'train-0', with which it shares"),
        ({"command": None}, "has per_pod and no command"),
        ({"ranks": None, "replicas": 2}, "has per_pod, but no ranks"),
    ],
)
def test_errors_in_per_pod(settings, message):
    with pytest.raises(SpecError, match=message.replace("(", r"\(")):
        pods_of(training(**settings))


def test_an_exact_multiple_of_a_quantity():
    assert [multiplied(item, 8) for item in ("500m", "2Gi", ".5", "1e3")] == [
        "4000m", "16Gi", "4.0", "8e3",
    ]  # fmt: skip

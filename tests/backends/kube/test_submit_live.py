"""`symphony submit` on a real cluster: limited rights, scheduling and deadlines."""

import contextlib
import subprocess
import sys
from pathlib import Path

import pytest

from kubetest.rawapi import MERGE_PATCH
from tests.cli import in_process

TRAIN = (Path(__file__).parents[3] / "examples" / "submit" / "train.py").read_text(encoding="utf-8")
# The rights to create Jobs and to read Pods.
FEW_RIGHTS = [
    {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch"]},
    {"apiGroups": [""], "resources": ["pods/log"], "verbs": ["get"]},
]


@pytest.fixture
def argv(kube_cluster):
    def words(verb, *rest, kubeconfig=kube_cluster.kubeconfig):
        where = [
            "-b",
            "kube",
            "--kubeconfig",
            str(kubeconfig),
            "--namespace",
            kube_cluster.namespace,
        ]
        return [sys.executable, "-m", "symphony", verb, *where, *map(str, rest)]

    return words


@pytest.fixture
def symphony(argv, tmp_path):
    def run(*words, **options):
        return in_process.run(argv(*words, **options)[3:], cwd=tmp_path, timeout=100)

    return run


@pytest.fixture
def running(argv):
    """A function that starts `symphony` in the background. It is stopped after the test."""
    with contextlib.ExitStack() as stack:

        def start(*words):
            begun = stack.enter_context(
                subprocess.Popen(argv(*words), stdout=-1, stderr=-1, text=True)
            )
            stack.callback(begun.kill)
            return begun

        yield start


@pytest.fixture
def node(kube_cluster):
    """The label of a node that accepts Pods, so that two Pods run on it."""
    for item in kube_cluster.raw.call("GET", "/api/v1/nodes")["items"]:
        if not item["spec"].get("taints") and not item["spec"].get("unschedulable"):
            return f"kubernetes.io/hostname={item['metadata']['labels']['kubernetes.io/hostname']}"
    pytest.skip("no node without taints")


def test_job_of_a_user_with_rights_for_jobs_only(kube_cluster, symphony):
    bob = kube_cluster.user("bob", FEW_RIGHTS)
    words = [
        "--jobs-only",
        "--name",
        "train",
        "--image",
        kube_cluster.image,
        "--cpu",
        "100m",
        "--memory",
        "50Mi",
    ]
    done = symphony(
        "submit", *words, "--follow", "--", "sh", "-c", "echo hi; exit 3", kubeconfig=bob
    )
    assert (done.returncode, done.stdout) == (3, "hi\n"), done.stderr
    assert done.stderr.splitlines()[-1] == "main failed: exit code 3"
    (pod,) = kube_cluster.raw.call("GET", kube_cluster.path("pods"))["items"]
    assert pod["metadata"]["ownerReferences"][0]["kind"] == "Job"
    assert pod["spec"]["containers"][0]["resources"]["limits"] == {"cpu": "100m", "memory": "50Mi"}
    assert pod["status"]["qosClass"] == "Guaranteed"

    # The job has finished, but its name is still taken.
    again = symphony("submit", *words, "--", "true", kubeconfig=bob)
    assert (again.returncode, again.stdout, again.stderr.count("\n")) == (2, "", 1)
    assert (
        "job 'train' already exists (failed) and cannot be changed; pass --force to replace it"
        in again.stderr
    )


def test_unschedulable_job_reports_the_reason_once(kube_cluster, running, symphony):
    words = [
        "--name",
        "stuck",
        "--image",
        kube_cluster.image,
        "--node-selector",
        "symphony.test/no-such-node=true",
    ]
    run = running("submit", *words, "--follow", "--json", "--", "true")
    assert run.stderr.readline().startswith(("launched stuck", "submitted stuck"))
    while not (line := run.stderr.readline()).startswith("main: pending: Unschedulable: 0/"):
        assert line.startswith("main: pending: "), line  # if the Pod is scheduled late
    assert symphony("delete", "-f", "stuck").returncode == 0
    shown, message = run.communicate(timeout=60)
    assert (shown, "pending" in message) == ("", False)


def test_job_saves_at_its_deadline_and_resumes(kube_cluster, running, symphony, node):
    directory = kube_cluster.namespace
    words = [
        "--name",
        "train",
        "--image",
        kube_cluster.image,
        "--mount",
        "/tmp:/save",
        "--node-selector",
        node,
    ]
    program = [
        "python3",
        "-c",
        TRAIN,
        "--checkpoint",
        f"/save/{directory}/train.json",
        "--save-every",
        "1000000",
    ]
    first = [
        "--time",
        "0:30:00",
        "--follow",
        "--",
        *program,
        "--pause",
        "0.05",
        "--epochs",
        "1000000",
    ]
    run = running("submit", *words, *first)
    while "epoch 3:" not in (line := run.stdout.readline()):
        assert line, run.stderr.read()
    refused = symphony("submit", *words, "--", "true")
    assert (refused.returncode, refused.stderr.count("\n")) == (2, 1)
    assert "job 'train' already exists (running)" in refused.stderr
    (job,) = kube_cluster.raw.call("GET", kube_cluster.path("jobs", group="apis/batch/v1"))["items"]
    assert job["spec"]["activeDeadlineSeconds"] == 1800
    # The deadline is exceeded.
    path = kube_cluster.path(f"jobs/{job['metadata']['name']}", group="apis/batch/v1")
    kube_cluster.raw.call("PATCH", path, {"spec": {"activeDeadlineSeconds": 1}}, MERGE_PATCH)
    shown, message = run.communicate(timeout=60)
    assert run.returncode != 0
    assert "DeadlineExceeded" in message
    last = shown.splitlines()[-1]
    saved = int(last.removeprefix("interrupted: saved epoch "))

    # The second job finishes immediately and removes the directory.
    clean = ["sh", "-c", f'"$@" && rm -r /save/{directory}', "sh"]
    second = symphony(
        "submit", *words, "--force", "--follow", "--", *clean, *program, "--epochs", "1"
    )
    assert second.returncode == 0, second.stdout + second.stderr
    resumed, done = second.stdout.splitlines()
    assert resumed == f"resumed after epoch {saved}"
    assert done.startswith("done: slope ")

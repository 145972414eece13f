"""JobSets: their rendering, and the states of their ranks.

The JobSets in these tests have the status and the messages that the controller of JobSets writes
according to its documentation and its source.
"""

import kubernetes_validate
import pytest

from symphony import Experiment, SpecError
from symphony.status import ReasonCode, State
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.api.labels import Scope
from symphony_kube.cluster import KubeCluster
from symphony_kube.lifecycle.attempts import request, stop_requested, with_manifest
from symphony_kube.render.container_scripts import STOPPED_MESSAGE
from symphony_kube.render.roster import decode_roster
from symphony_kube.state.control_state import Control, encode
from symphony_kube.state.observe import ExperimentState, observe
from symphony_kube.state.observed_objects import JOB_SETS, JOBS, PODS
from tests.backends.kube.decisions import started

NOW = 1_700_000_100.0
CREATED, STARTED = "2023-11-14T22:13:10Z", "2023-11-14T22:13:20Z"
EXITED, ENDED = "2023-11-14T22:14:10Z", "2023-11-14T22:14:15Z"
NOT_YET = "2023-11-14T22:15:00Z"
QUEUE = "kueue.x-k8s.io/queue-name"
RUNNING = {"running": {"startedAt": STARTED}}


def exited(code):
    return {"terminated": {"exitCode": code, "startedAt": STARTED, "finishedAt": EXITED}}


def training(*, others=None, options=None, **settings):
    trainer = {"container_image": "i", "command": "c", "ranks": 2, "jobset": True, **settings}
    processes = {"train": trainer, **(others or {})}
    return Experiment.load_dict({"name": "e", "processes": processes, **(options or {})})


def manifest_of(experiment, **options):
    return KubeCluster(**options).manifest(experiment)


def rendered(**settings):
    """Return the JobSet of an experiment that contains nothing else."""
    (job_set,) = manifest_of(training(**settings)).units
    return job_set


# --- rendering ---


def test_a_unit_of_ranks_as_a_job_set():
    """The templates of the Pods are equal to the Pods that symphony creates without JobSets."""
    restart = {"policy": "OnFailure", "max_restarts": 3}
    job_set = rendered(restart_policy=restart, spread=True)
    annotations = job_set["metadata"].pop("annotations")
    pods = manifest_of(training(restart_policy=restart, spread=True, jobset=False)).units
    failure = {
        "action": "FailJob",
        "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
    }
    templates = []
    for number, pod in enumerate(pods):
        labels = {
            key: value
            for key, value in pod["metadata"]["labels"].items()
            if key not in ("symphony/rank-of", "symphony/copies")
        }
        metadata = {"labels": pod["metadata"]["labels"]}
        if number == 0:
            metadata["annotations"] = annotations
        templates.append(
            {
                "name": f"rank-{number}",
                "replicas": 1,
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {
                        "completionMode": "NonIndexed",
                        "completions": 1,
                        "parallelism": 1,
                        "backoffLimit": 0,
                        "podFailurePolicy": {"rules": [failure]},
                        "template": {"metadata": metadata, "spec": pod["spec"]},
                    },
                },
            }
        )
    assert pods[1]["spec"]["hostname"] == "train-1"
    assert pods[1]["spec"]["subdomain"] == "train-master"
    stopped = {
        "name": "stopped",
        "action": "FailJobSet",
        "onJobFailureReasons": ["DeadlineExceeded"],
    }
    disrupted = {
        "name": "disrupted",
        "action": "RestartJobSetAndIgnoreMaxRestarts",
        "onJobFailureReasons": ["PodFailurePolicy"],
    }
    assert job_set == {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": "train",
            "namespace": "e",
            "labels": {
                "app.kubernetes.io/managed-by": "symphony",
                "symphony/experiment": "e",
                "symphony/rank-of": "train",
            },
        },
        "spec": {
            "network": {"enableDNSHostnames": False},
            "successPolicy": {"operator": "All"},
            "failurePolicy": {"maxRestarts": 3, "rules": [stopped, disrupted]},
            "replicatedJobs": templates,
        },
    }
    assert [unit.job_set for unit in decode_roster(annotations["symphony/roster"])] == ["train"] * 2
    for job in job_set["spec"]["replicatedJobs"]:
        body = {"apiVersion": "batch/v1", "kind": "Job", **job["template"]}
        kubernetes_validate.validate(body, "1.33", strict=True)


@pytest.mark.parametrize(
    ("policy", "restarts"),
    [
        ("Never", 0),
        ("OnFailure", 2**31 - 1),
        ({"policy": "OnFailure", "max_restarts": 0}, 0),
        ({"policy": "OnFailure", "max_restarts": 5}, 5),
    ],
)
def test_the_controller_restarts_the_ranks(policy, restarts):
    manifest = manifest_of(training(restart_policy=policy))
    (job_set,) = manifest.units
    assert job_set["spec"]["failurePolicy"]["maxRestarts"] == restarts
    for job in job_set["spec"]["replicatedJobs"]:
        assert job["template"]["spec"]["template"]["spec"]["restartPolicy"] == "Never"
    assert not manifest.needs_supervisor
    assert manifest.ignored == ()


def test_the_controller_chooses_the_delays_of_restarts():
    ignored = manifest_of(
        training(restart_policy={"policy": "OnFailure", "max_restarts": 2, "backoff": 5})
    ).ignored
    assert [str(item) for item in ignored] == ["restart_policy.backoff (train-0, train-1)"]


def test_a_job_set_waits_for_its_queue():
    job_set = rendered(queue="team-a")
    assert job_set["spec"]["suspend"] is True
    assert job_set["metadata"]["labels"][QUEUE] == "team-a"
    for job in job_set["spec"]["replicatedJobs"]:
        template = job["template"]["spec"]["template"]
        assert QUEUE not in template["metadata"]["labels"]
        assert "schedulingGates" not in template["spec"]


def test_ranks_that_share_pods_have_one_job_for_each_pod():
    job_set = rendered(ranks=4, per_pod=2)
    jobs = job_set["spec"]["replicatedJobs"]
    found = {job["name"]: job["template"]["metadata"]["labels"]["symphony/unit"] for job in jobs}
    assert found == {"rank-0": "train-0", "rank-1": "train-2"}


def test_a_job_set_in_a_shared_namespace_with_jobs_only():
    manifest = manifest_of(training(), namespace="team", jobs_only=True)
    (job_set,) = manifest.units
    assert job_set["metadata"]["name"] == "e-train"
    pod = job_set["spec"]["replicatedJobs"][0]["template"]["spec"]["template"]
    assert pod["spec"]["hostname"] == "e-train-0"


def test_the_supervisor_creates_a_job_set_once():
    manifest = manifest_of(
        training(
            others={"db": {"container_image": "i", "command": "c"}}, starts_after={"db": "started"}
        )
    )
    assert list(manifest.objects_by_unit) == ["train-0", "db"]
    database = {
        "metadata": {"name": "db", "labels": {"symphony/unit": "db"}},
        "spec": {"containers": [{"name": "db"}], "nodeName": "n1"},
        "status": {
            "phase": "Running",
            "containerStatuses": [{"name": "db", "restartCount": 0, "state": RUNNING}],
        },
    }
    observed = observe("e", [database], now=NOW, roster=manifest.roster)
    assert started(manifest.roster, observed) == ["train-0", "train-1"]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        (
            {"restart_policy": "Always"},
            "process 'train-0' has the restart policy Always, which a JobSet cannot have because "
            "it runs to completion: set OnFailure or Never, or remove jobset",
        ),
        ({"job": True}, "process 'train-0' has both job and jobset; remove job"),
        (
            {"options": {"on_failure": "restart"}},
            "process 'train-0' is in a JobSet, whose controller alone restarts it, so the "
            "experiment cannot restart as a whole: set another on_failure, or remove jobset",
        ),
    ],
)
def test_what_a_job_set_does_not_support(settings, message):
    with pytest.raises(SpecError) as caught:
        rendered(**settings)
    assert str(caught.value) == message


def test_ranks_that_differ_cannot_form_a_job_set():
    experiment = training()
    experiment.get_process("train-1").restart_policy("OnFailure")
    with pytest.raises(SpecError) as caught:
        manifest_of(experiment)
    assert str(caught.value) == (
        "process 'train-1' has another restart_policy than 'train-0', with which it forms a "
        "JobSet; set the same for all ranks, or remove jobset"
    )


def test_the_names_of_the_jobs_have_a_limit():
    experiment = Experiment("e")
    for rank in experiment.new_ranks("t" * 55, 2, container_image="i", command="c"):
        rank.jobset()
    with pytest.raises(SpecError, match="has 64 characters in its name, and Kubernetes allows 63"):
        manifest_of(experiment)


def test_a_job_set_is_not_created_from_its_manifest():
    job_set = rendered()
    assert with_manifest(job_set) == job_set


# --- the states of ranks ---

POLICY = {"policy": "OnFailure", "max_restarts": 2}


def job_set(*, restarts=0, condition=None, control=None, **settings):
    """Return a JobSet with a status as its controller writes it.

    ``condition`` is the type, the reason and the message of a condition.
    """
    body = rendered(restart_policy=POLICY, **settings)
    annotations = dict(body["metadata"]["annotations"])
    if control is not None:
        annotations["symphony/control"] = encode(control)
    status = {"restarts": restarts, "restartsCountTowardsMax": restarts}
    if condition is not None:
        kind, reason, message = condition
        status["conditions"] = [
            {
                "type": kind,
                "status": "True",
                "reason": reason,
                "message": message,
                "lastTransitionTime": ENDED,
            }
        ]
    metadata = {
        **body["metadata"],
        "uid": "set",
        "annotations": annotations,
        "creationTimestamp": CREATED,
    }
    return {**body, "metadata": metadata, "status": status}


def pod(rank, state, *, attempt=0, phase="Running", deleted=""):
    """Return a Pod of the JobSet. ``attempt`` is the number of restarts."""
    metadata = {
        "name": f"train-rank-{rank}-0-x{attempt}",
        "uid": f"{rank}-{attempt}",
        "labels": {
            "symphony/unit": f"train-{rank}",
            "jobset.sigs.k8s.io/restart-attempt": str(attempt),
        },
        "ownerReferences": [{"kind": "Job", "name": f"train-rank-{rank}-0", "uid": "j"}],
        "creationTimestamp": CREATED,
    }
    if deleted:
        metadata.update(deletionTimestamp=deleted, deletionGracePeriodSeconds=30)
    status = {"name": f"train-{rank}", "restartCount": 0, "state": state}
    return {
        "metadata": metadata,
        "spec": {
            "containers": [{"name": f"train-{rank}"}],
            "nodeName": "n1",
            "terminationGracePeriodSeconds": 30,
        },
        "status": {"phase": phase, "containerStatuses": [status]},
    }


FAILED = exited(3)
UNFINISHED = {"ranks": 2}
MAX_RESTARTS = (
    "Failed",
    "ReachedMaxRestarts",
    "jobset failed due to reaching max number of restarts (first failed job: train-rank-1-0)",
)
STOPPED = (
    "Failed",
    "FailJobSetFailurePolicyAction",
    "applying FailJobSet failure policy action (first failed job: train-rank-0-0)",
)
COMPLETED = ("Completed", "AllJobsCompleted", "jobset completed successfully")
SUSPENDED = ("Suspended", "SuspendedJobs", "jobset is suspended")
WAITS = "its JobSet has not finished yet"
DISRUPTED = ReasonCode.DISRUPTED


def shown(*pods, now=NOW, **options):
    """Return the state, the reason, the exit code and the number of restarts of each rank."""
    status = observe("e", pods, [], [job_set(**options)], now=now).status
    return [
        (process.state.value, process.reason, process.exit_code, process.restarts)
        for process in status
    ]


def test_running_ranks():
    found = shown(pod(0, RUNNING), pod(1, exited(0), phase="Succeeded"))
    waits = "exited with 0; its JobSet has not finished yet"
    assert found == [("running", "", None, 0), ("running", waits, None, 0)]


def test_ranks_without_pods():
    assert shown(now=NOW - 105) == [("pending", "", None, 0)] * 2
    reason = (
        "its JobSet has made no Pod: 'kubectl describe jobset train' shows why (a quota? does its "
        "controller run?)"
    )
    assert shown() == [("pending", reason, None, 0)] * 2


def test_ranks_that_wait_for_quota():
    reason = "waiting for quota in queue team-a"
    found = shown(condition=SUSPENDED, queue="team-a")
    assert found == [("pending", reason, None, 0)] * 2


def test_ranks_of_a_job_set_that_a_user_has_suspended():
    suspended = job_set(condition=SUSPENDED)
    suspended["spec"]["suspend"] = True
    for rank in observe("e", [], [], [suspended], now=NOW).status:
        assert (rank.state, rank.reason) == (State.PENDING, "its JobSet is suspended")
        assert rank.reason_code is ReasonCode.SCHEDULING


def test_a_restart_after_the_loss_of_a_node_does_not_count():
    restarted = job_set(restarts=1)
    restarted["status"]["restartsCountTowardsMax"] = 0
    lost = pod(1, exited(137), phase="Failed", deleted="2023-11-14T22:14:41Z")
    lost["status"]["conditions"] = [
        {
            "type": "DisruptionTarget",
            "status": "True",
            "reason": "EvictionByEvictionAPI",
            "message": "Eviction API: evicting",
            "lastTransitionTime": EXITED,
        }
    ]
    for pods, cause in (([lost], ": train-1 was lost (n1 was drained)"), ([], "")):
        first, second = observe("e", pods, [], [restarted], now=NOW).status
        assert (first.state, first.restarts) == (State.PENDING, 0)
        assert (first.reason, first.reason_code) == (f"the unit restarts{cause}", DISRUPTED)
        assert first.reason == second.reason


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        (None, ("running", f"exited with 0; {WAITS}", None)),
        (COMPLETED, ("succeeded", "", 0)),
        (MAX_RESTARTS, ("succeeded", "", 0)),
    ],
)
def test_a_rank_keeps_its_result_after_its_pod_was_deleted(condition, expected):
    """Only an observer that has observed the Pod knows the result."""
    observer = ExperimentState("e")
    finished = pod(0, exited(0), phase="Succeeded")
    observer.replace(PODS, [finished, pod(1, FAILED, phase="Failed")])
    observer.replace(JOB_SETS, [job_set(condition=condition)])
    observer.observe(NOW)
    observer.apply(PODS, "DELETED", finished)
    rank = observer.observe(NOW).status.processes[0]
    assert (rank.state.value, rank.reason, rank.exit_code) == expected


def test_a_rank_that_failed_is_restarted():
    status = observe(
        "e", [pod(0, RUNNING), pod(1, FAILED, phase="Failed")], [], [job_set()], now=NOW
    ).status
    other, failed = status
    assert other.state is State.RUNNING
    assert (failed.state, failed.reason, failed.exit_code) == (State.PENDING, "exit code 3", 3)
    assert (failed.restart_number, failed.max_restarts) == (1, 2)
    assert failed.reason_code is ReasonCode.BACKING_OFF


def test_an_unhealthy_rank_is_restarted():
    unhealthy = exited(143)
    unhealthy["terminated"]["message"] = STOPPED_MESSAGE
    failed = pod(1, unhealthy, phase="Failed")
    failed["spec"]["containers"][0]["livenessProbe"] = {"failureThreshold": 2}
    reason = "unhealthy, 2 tests in a row"
    assert shown(pod(0, RUNNING), failed)[1] == ("pending", reason, 143, 0)
    failed["metadata"].update(deletionTimestamp=NOT_YET, deletionGracePeriodSeconds=1)
    restarts = f"the unit restarts: train-1 failed ({reason})"
    assert shown(failed, restarts=1) == [("pending", restarts, None, 1)] * 2


def test_ranks_between_two_attempts():
    """The controller has deleted the Pods of the first attempt, or is deleting them."""
    known = shown(
        pod(0, RUNNING, deleted=EXITED),
        pod(1, FAILED, phase="Failed", deleted="2023-11-14T22:14:41Z"),
        restarts=1,
    )
    assert known == [("pending", "the unit restarts: train-1 exited with 3", None, 1)] * 2
    assert shown(restarts=1) == [("pending", "the unit restarts", None, 1)] * 2
    status = observe("e", [], [], [job_set(restarts=1)], now=NOW).status
    assert status.note == ""
    assert (status.processes[0].restart_number, status.processes[0].max_restarts) == (1, 2)


def test_ranks_that_are_being_replaced_are_not_being_deleted():
    pods = [pod(0, RUNNING, deleted=ENDED), pod(1, RUNNING, deleted=ENDED)]
    assert not observe("e", pods, [], [job_set()], now=NOW).deleting


def test_a_restarted_rank():
    found = shown(pod(0, FAILED, phase="Failed"), pod(0, RUNNING, attempt=1), restarts=1)
    assert found == [
        ("running", "", None, 1),
        ("pending", "the unit restarts: train-0 exited with 3", None, 1),
    ]


def test_pods_that_are_observed_before_their_job_set():
    """The next attempt of the ranks belongs to the JobSet, whose own change is observed later."""
    found = shown(pod(0, RUNNING, attempt=1), pod(1, FAILED, attempt=1, phase="Failed"))
    assert found == [("running", "", None, 1), ("pending", "exit code 3", 3, 1)]


def test_a_rank_that_has_failed_for_the_last_time_waits_for_its_job_set():
    found = shown(pod(0, RUNNING, attempt=2), pod(1, FAILED, attempt=2, phase="Failed"), restarts=2)
    waits = "exited with 3; its JobSet has not finished yet"
    assert found == [("running", "", None, 2), ("running", waits, None, 2)]


def with_added_container(body):
    """Return a Pod to which a webhook has added a container that does not exit."""
    containers = [*body["spec"]["containers"], {"name": "proxy"}]
    spec = {**body["spec"], "containers": containers, "restartPolicy": "Never"}
    added = {"name": "proxy", "restartCount": 0, "state": RUNNING}
    statuses = [*body["status"]["containerStatuses"], added]
    return {**body, "spec": spec, "status": {"phase": "Running", "containerStatuses": statuses}}


@pytest.mark.parametrize(
    ("restarts", "codes", "expected"),
    [
        (0, (0, 0), [("succeeded", "", 0, 0)] * 2),
        # Another rank could still fail, and the JobSet would then restart this one.
        (0, (0, None), [("running", f"exited with 0; {WAITS}", None, 0), ("running", "", None, 0)]),
        # The JobSet restarts the ranks when the Pod has failed, which the added container prevents.
        (0, (3, None), [("running", f"exited with 3; {WAITS}", None, 0), ("running", "", None, 0)]),
        # The JobSet has no restart left.
        (2, (0, None), [("succeeded", "", 0, 2), ("running", "", None, 2)]),
        (2, (3, None), [("failed", "", 3, 2), ("running", "", None, 2)]),
    ],
)
def test_ranks_have_results_while_containers_run_that_a_webhook_has_added(
    restarts, codes, expected
):
    pods = []
    for rank, code in enumerate(codes):
        state = RUNNING if code is None else exited(code)
        pods.append(with_added_container(pod(rank, state, attempt=restarts)))
    assert shown(*pods, restarts=restarts) == expected
    # One rank is observed after the other.
    observer = ExperimentState("e")
    observer.replace(PODS, [with_added_container(pod(0, RUNNING, attempt=restarts)), pods[1]])
    observer.replace(JOB_SETS, [job_set(restarts=restarts)])
    observer.observe(NOW)
    observer.apply(PODS, "MODIFIED", pods[0])
    found = [(item.state.value, item.exit_code) for item in observer.observe(NOW).status]
    assert found == [(state, code) for state, _, code, _ in expected]


def test_a_unit_that_has_failed():
    """The Pod of the failed rank remains, and the controller has deleted the other one."""
    failed = pod(1, FAILED, attempt=2, phase="Failed")
    pods = [failed]
    status = observe("e", pods, [], [job_set(restarts=2, condition=MAX_RESTARTS)], now=NOW).status
    other, cause = status
    assert (other.state, other.reason) == (State.FAILED, "the unit failed: train-1 exited with 3")
    assert other.reason_code is ReasonCode.UNIT_FAILED
    assert (cause.state, cause.reason, cause.exit_code) == (State.FAILED, "", 3)
    assert (status.ended, status.exit_code) == (True, 3)


def test_a_rank_that_is_stopped_because_another_one_has_failed():
    found = shown(
        pod(0, RUNNING, attempt=2),
        pod(1, FAILED, attempt=2, phase="Failed"),
        restarts=2,
        condition=MAX_RESTARTS,
    )
    assert found == [("running", "stopping", None, 2), ("failed", "", 3, 2)]


# The processes have received TERM when their Pods were deleted, before they exited.
TERMINATED = {"phase": "Failed", "deleted": "2023-11-14T22:14:38Z"}


def test_ranks_that_have_exited_because_their_pods_are_being_deleted():
    failed = pod(1, FAILED, phase="Failed")
    for code in (143, 0):
        found = shown(pod(0, exited(code), **TERMINATED), failed, condition=MAX_RESTARTS)
        assert found[0] == ("failed", "the unit failed: train-1 exited with 3", code, 0)
    reason = "waiting for quota in queue team-a"
    pods = [pod(rank, exited(143), **TERMINATED) for rank in (0, 1)]
    found = shown(*pods, condition=SUSPENDED, queue="team-a")
    assert found == [("pending", reason, None, 0)] * 2
    stopped_set = job_set(control=Control(stop=NOW - 52), condition=STOPPED)
    stopped = observe("e", pods, [], [stopped_set], now=NOW).status
    assert [process.displayed_state for process in stopped] == ["stopped", "stopped"]
    assert [process.exit_code for process in stopped] == [143, 143]


def test_an_exit_in_the_second_of_the_deletion():
    """Only an observer that has observed the process before knows that it was stopped."""
    failed = pod(1, FAILED, phase="Failed")
    observer = ExperimentState("e")
    observer.replace(PODS, [pod(0, RUNNING), failed])
    observer.replace(JOB_SETS, [job_set(condition=MAX_RESTARTS)])
    observer.apply(PODS, "MODIFIED", pod(0, RUNNING, deleted="2023-11-14T22:14:40Z"))
    gone = pod(0, exited(143), phase="Failed", deleted="2023-11-14T22:14:40Z")
    observer.apply(PODS, "MODIFIED", gone)
    stopped, _ = observer.observe(NOW).status
    assert (stopped.reason_code, stopped.exit_code) == (ReasonCode.UNIT_FAILED, 143)
    observer.apply(PODS, "DELETED", gone)
    without_pod, _ = observer.observe(NOW).status
    assert (without_pod.reason_code, without_pod.exit_code) == (ReasonCode.UNIT_FAILED, 143)


def test_the_pod_of_the_failed_rank_was_deleted():
    found = shown(restarts=2, condition=MAX_RESTARTS)
    message = f"{MAX_RESTARTS[1]}: {MAX_RESTARTS[2]}"
    assert found == [
        ("failed", f"the unit failed: {message}", None, 2),
        ("failed", "exit status unknown: its Pod was deleted", None, 2),
    ]


def test_a_unit_that_has_succeeded():
    found = shown(pod(0, exited(0), phase="Succeeded"), condition=COMPLETED)
    assert found == [("succeeded", "", 0, 0)] * 2


def test_a_rank_without_which_a_unit_succeeds():
    """The leader ends the JobSet, whose controller deletes the other ranks."""
    leads = {"operator": "All", "targetReplicatedJobs": ["rank-0"]}
    completed = job_set(condition=COMPLETED)
    led = {**completed, "spec": {**completed["spec"], "successPolicy": leads}}
    leader = pod(0, exited(0), phase="Succeeded")
    deleted = "2023-11-14T22:14:40Z"
    stopping, stopped = (
        ("running", "stopping", None),
        ("succeeded", "the unit has succeeded without it", None),
    )
    for pods, expected in (
        ([pod(1, RUNNING)], stopping),
        ([pod(1, RUNNING, deleted=deleted)], stopping),
        ([pod(1, exited(143), phase="Failed", deleted=deleted)], stopped),
        ([], stopped),
        # It has ended by itself.
        ([pod(1, exited(0), phase="Succeeded")], ("succeeded", "", 0)),
    ):
        status = observe("e", [leader, *pods], [], [led], now=NOW).status
        first, other = [(item.state.value, item.reason, item.exit_code) for item in status]
        assert (first, other) == (("succeeded", "", 0), expected)
        assert (status.ended, status.exit_code) == (expected is not stopping, 0)


def test_ranks_that_are_being_stopped():
    """The controller has not failed the JobSet yet, so it could create another Pod."""
    stopping = job_set(control=Control(stop=NOW - 52))
    for first, state in (
        (pod(0, RUNNING, deleted="2023-11-14T22:15:00Z"), State.RUNNING),
        (pod(0, exited(143), **TERMINATED), State.PENDING),
    ):
        status = observe("e", [first], [], [stopping], now=NOW).status
        assert [process.state for process in status] == [state, State.PENDING]
        assert {process.reason for process in status} == {"stopping"}


@pytest.mark.parametrize("options", [{"condition": STOPPED}, {"queue": "team-a"}])
def test_ranks_that_are_stopped(options):
    stopped = job_set(control=Control(stop=NOW - 50), **options)
    status = observe("e", [], [], [stopped], now=NOW).status
    assert [process.displayed_state for process in status] == ["stopped", "stopped"]
    assert status.exit_code == 0


class StoredJobSet:
    """An API server with one JobSet, which records the patches of all objects."""

    def __init__(self, body):
        self.body = body
        self.patches = []

    def find(self, path):
        return self.body

    def call(self, method, path, *, body, content_type):
        self.patches.append((path.rpartition("/apis/")[2], body))
        if "jobsets" in path:
            metadata = {**self.body["metadata"], "annotations": body["metadata"]["annotations"]}
            self.body = {**self.body, "metadata": metadata}
        return self.body


def test_all_ranks_share_the_request_to_stop():
    """It is recorded once. The active deadlines of the Jobs stop the Pods."""
    body = job_set()
    body["metadata"]["resourceVersion"] = "1"
    api, scope = StoredJobSet(body), Scope(experiment="e", namespace="e")
    observed = observe("e", [pod(0, RUNNING), pod(1, RUNNING)], [], [body], now=NOW)
    for unit in observed.unit_statuses.values():
        request(KubeExperiment(api, scope), unit, lambda control: stop_requested(control, NOW))
    (path, recorded), *stopped = api.patches
    assert path == "jobset.x-k8s.io/v1alpha2/namespaces/e/jobsets/train"
    assert recorded == {
        "metadata": {
            "annotations": {"symphony/control": encode(Control(stop=NOW))},
            "resourceVersion": "1",
        },
        "spec": {},
    }
    jobs = "batch/v1/namespaces/e/jobs"
    deadline = {"spec": {"activeDeadlineSeconds": 1}}
    assert stopped == [(f"{jobs}/train-rank-{rank}-0", deadline) for rank in (0, 1)]


def test_a_job_set_that_is_stopped_leaves_its_queue():
    body = job_set(condition=SUSPENDED, queue="team-a")
    body["metadata"]["resourceVersion"] = "1"
    api, scope = StoredJobSet(body), Scope(experiment="e", namespace="e")
    unit = observe("e", [], [], [body], now=NOW).unit_statuses["train-0"]
    request(KubeExperiment(api, scope), unit, lambda control: stop_requested(control, NOW))
    ((_, recorded),) = api.patches
    assert recorded["metadata"]["labels"] == {QUEUE: None}


def test_the_jobs_of_a_job_set_are_no_units():
    body = job_set()
    template = body["spec"]["replicatedJobs"][0]["template"]
    owner = {"kind": "JobSet", "name": "train", "uid": "set"}
    job = {
        **template,
        "metadata": {**template["metadata"], "name": "train-rank-0-0", "ownerReferences": [owner]},
    }
    observer = ExperimentState("e")
    observer.replace(PODS, [])
    observer.replace(JOBS, [job])
    observer.replace(JOB_SETS, [body])
    assert [unit.name for unit in observer.units] == ["train-0", "train-1"]
    assert observer.objects.processes_of("set") == ("train-0", "train-1")
    observer.apply(JOB_SETS, "DELETED", body)
    assert observer.empty


def test_a_change_of_the_cause_updates_the_other_ranks():
    observer = ExperimentState("e")
    observer.replace(PODS, [])
    observer.replace(JOB_SETS, [job_set(restarts=1)])
    assert observer.observe(NOW).status.processes[0].reason == "the unit restarts"
    observer.apply(PODS, "ADDED", pod(1, FAILED, phase="Failed"))
    reasons = {process.reason for process in observer.observe(NOW).status}
    assert reasons == {"the unit restarts: train-1 exited with 3"}

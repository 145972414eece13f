"""Users with few rights: what works for them, and what they are told where it does not."""

import pytest

from symphony.errors import BackendError, LaunchFailed, SpecError

from .conftest import python, space, there, unplaced, until
from .held import HELD, let_go

READ = {"apiGroups": [""], "resources": ["pods", "pods/log"], "verbs": ["get", "list", "watch"]}
JOBS = {"apiGroups": ["batch"], "resources": ["jobs"], "verbs": ["create", "delete"]}


@pytest.fixture
def as_user(kube_cluster, open_cluster):
    """A function that opens a cluster as a user with some rights in the test's namespace."""

    def new(*rules, **options):
        kubeconfig = str(kube_cluster.user("someone", list(rules)))
        return open_cluster(
            kubeconfig=kubeconfig, **{"namespace": kube_cluster.namespace, **options}
        )

    return new


def test_a_user_who_may_only_create_jobs_launches_follows_and_deletes(
    kube_cluster, as_user, shared, name
):
    cluster = as_user(READ, JOBS, jobs_only=True)
    exp = cluster.new_experiment(name)
    python(exp, "server", f"print('up'){HELD}").ready(log="^up")
    python(exp, "client", "print('hello')").starts_after("server")
    cluster.launch(exp)
    assert there(kube_cluster)["jobs"] == [f"{name}-client", f"{name}-server"]
    let_go(shared, name, "server")  # by one who may
    status = cluster.wait(name, timeout=60)
    assert status.exit_code == 0
    cluster.delete(name)
    assert there(kube_cluster) == {}


def test_jobs_that_may_be_listed_and_not_watched_are_followed_by_their_pods(
    kube_cluster, as_user, name
):
    cluster = as_user(READ, {**JOBS, "verbs": ["create", "get", "list", "delete"]}, jobs_only=True)
    exp = cluster.new_experiment(name)
    python(exp, "one", "print('hello')")
    cluster.launch(exp)
    assert [line.text for line in cluster.iter_logs(name, follow=True)] == ["hello"]
    assert cluster.wait(name, timeout=60).exit_code == 0
    cluster.delete(name)


@pytest.mark.parametrize(
    ("what", "right"),
    [("service", "create services"), ("secret", "create secrets"), ("config", "create configmaps")],
)
def test_a_missing_right_is_named_and_nothing_is_left(
    kube_cluster, as_user, name, tmp_path, what, right
):
    (tmp_path / "file").write_text("swordfish")
    cluster = as_user(READ, JOBS, jobs_only=True)
    secrets = {"token": str(tmp_path / "file")} if what == "secret" else None
    exp = cluster.new_experiment(name, secrets=secrets)
    worker = unplaced(exp, "worker")
    if what == "service":
        worker.binds("web")
    if what == "config":
        worker.mount_config("settings", "/etc/settings", files=[str(tmp_path / "file")])
    with pytest.raises(
        LaunchFailed, match=f"cannot create .*ask for the right to {right} in namespace"
    ) as caught:
        cluster.launch(exp)
    assert "swordfish" not in str(caught.value)
    assert there(kube_cluster) == {}


def test_a_user_who_may_create_no_pods_is_told_of_jobs(kube_cluster, as_user, name):
    cluster = as_user(READ, JOBS)
    exp = cluster.new_experiment(name)
    unplaced(exp, "worker")
    with pytest.raises(LaunchFailed, match='cannot create resource "pods".*use jobs_only=True'):
        cluster.launch(exp)
    assert there(kube_cluster) == {}


def test_a_user_who_may_create_no_namespace_is_told_of_sharing_one(kube_cluster, as_user, name):
    cluster = as_user(READ, JOBS, namespace=None)
    exp = cluster.new_experiment(name)
    unplaced(exp, "worker")
    said = f"cannot create namespace '{name}': .*cannot create resource \"namespaces\".*namespace="
    with pytest.raises(LaunchFailed, match=said):
        cluster.launch(exp)
    assert space(kube_cluster, name) is None


@pytest.mark.parametrize("verb", ["launch", "delete"])
def test_a_stranger_is_told_which_verb_on_what(kube_cluster, as_user, name, verb):
    cluster = as_user()
    exp = cluster.new_experiment(name)
    unplaced(exp, "worker")
    with pytest.raises(
        BackendError, match='cannot list pods in namespace.*cannot list resource "pods"'
    ) as caught:
        cluster.launch(exp) if verb == "launch" else cluster.delete(name)
    assert "ask for the right to list pods" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_user_who_may_create_secrets_and_not_list_them_is_told_when_deleting(
    kube_cluster, as_user, name, tmp_path
):
    (tmp_path / "token").write_text("swordfish")
    secrets = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["create", "get", "delete"]}
    pods = {**READ, "verbs": [*READ["verbs"], "create", "delete"]}
    cluster = as_user(pods, secrets)
    exp = cluster.new_experiment(name, secrets={"token": str(tmp_path / "token")})
    unplaced(exp, "worker")
    cluster.launch(exp)
    with pytest.raises(BackendError, match="ask for the right to list secrets"):
        cluster.delete(name)
    assert set(there(kube_cluster)) == {"pods", "secrets"}  # nothing was begun


def test_a_user_without_other_rights_than_pods_deletes_them(kube_cluster, as_user, name):
    cluster = as_user({**READ, "verbs": [*READ["verbs"], "create", "delete"]})
    exp = cluster.new_experiment(name)
    unplaced(exp, "worker")
    cluster.launch(exp)
    cluster.delete(name)
    assert there(kube_cluster) == {}


def test_a_failed_launch_of_jobs_takes_their_pods_too(kube_cluster, shared, name):
    kube_cluster.quota("few", {"count/jobs.batch": "2"})
    exp = shared.new_experiment(name)
    for index in range(3):
        unplaced(exp, f"batch-{index}").job()
    with pytest.raises(LaunchFailed, match="exceeded quota: few"):
        shared.launch(exp)
    assert "jobs" not in there(kube_cluster)
    until(lambda: there(kube_cluster) == {})


def test_a_shared_namespace_that_is_not_there_is_told(open_cluster, name):
    cluster = open_cluster(namespace="symphony-test-none")
    exp = cluster.new_experiment(name)
    unplaced(exp, "worker").binds("web")
    with pytest.raises(
        LaunchFailed, match=r"namespaces \"symphony-test-none\" not found; create namespace"
    ):
        cluster.launch(exp)


def test_a_name_that_is_too_long_with_the_experiments_is_refused_before_anything(
    kube_cluster, shared
):
    exp = shared.new_experiment("a" * 40)
    unplaced(exp, "b" * 30)
    with pytest.raises(
        SpecError, match=r"has 71 characters, and Kubernetes allows 63.*shorten 'a+' or 'b+'"
    ):
        shared.launch(exp)
    assert there(kube_cluster) == {}

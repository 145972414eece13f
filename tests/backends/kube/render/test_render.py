"""Rendering of plans: golden manifests and their properties."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from symphony import Cluster, Experiment, SpecError
from symphony.plan.policies import Policies
from symphony_kube.api.labels import EXPERIMENT, MANAGED_BY, ROSTER, SERVICE, UNIT, Scope
from symphony_kube.cluster import KubeCluster
from symphony_kube.launch_options import LaunchOptions
from symphony_kube.render.container_scripts import (
    SCRIPTS_DIRECTORY,
    script,
    shell_command,
    stop_command,
)
from symphony_kube.render.experiment import render
from symphony_kube.render.manifest import REDACTED, KubeManifest
from symphony_kube.render.options import RenderOptions
from symphony_kube.render.roster import Unit, decode_roster
from symphony_kube.render.stop_script import scripts_name, with_listed_script
from tests.backends.kube.specimens import (
    FILES,
    GOLDEN,
    IMAGE,
    SPECIMENS,
    Specimen,
    planned,
    written,
)

Object = dict[str, Any]


def rendered(
    exp: Experiment, options: RenderOptions | None = None, *, namespace: str | None = None
) -> KubeManifest:
    scope = Scope(
        experiment=exp.name, namespace=namespace or exp.name, shared=namespace is not None
    )
    return render(planned(exp, scope), scope, options or RenderOptions(image=IMAGE), FILES)


def by_kind(manifest: KubeManifest) -> dict[str, list[Object]]:
    """Return the objects of each kind, without the script that stops programs."""
    found: dict[str, list[Object]] = {}
    scripts = scripts_name(manifest.scope)
    for item in manifest:
        if item["metadata"]["name"] == scripts:
            continue
        found.setdefault(item["kind"], []).append(item)
    return found


def spec_of(manifest: KubeManifest, unit: str) -> Object:
    (found,) = [item for item in manifest.units if item["metadata"]["labels"][UNIT] == unit]
    spec: Object = found["spec"]["template"]["spec"] if found["kind"] == "Job" else found["spec"]
    return spec


def containers_of(manifest: KubeManifest) -> dict[str, Object]:
    units = [unit.name for unit in manifest.roster]
    return {item["name"]: item for name in units for item in spec_of(manifest, name)["containers"]}


def one(**options: Any) -> tuple[Experiment, Any]:
    exp = Experiment("e")
    return exp, exp.new_process("p", **{"command": "c", **options})


# --- golden files ---


@pytest.mark.parametrize("specimen", SPECIMENS.values(), ids=SPECIMENS)
def test_manifest_equals_the_golden_file(specimen: Specimen) -> None:
    assert written(specimen) == (GOLDEN / f"{specimen.name}.yml").read_text(encoding="utf-8"), (
        "if it is to be so: python -m tests.backends.kube.specimens"
    )


def test_golden_files_are_complete() -> None:
    assert {path.stem for path in GOLDEN.glob("*.yml")} == set(SPECIMENS)


DIGEST = """
import hashlib
from tests.backends.kube.specimens import SPECIMENS
import json
digest = hashlib.sha256()
for specimen in SPECIMENS.values():
    manifest = specimen.manifest()
    for item in manifest:
        digest.update(json.dumps(item).encode())
    digest.update(str(manifest).encode())
print(digest.hexdigest())
"""


def test_rendering_is_independent_of_hash_seeds() -> None:
    def digest(seed: str) -> str:
        env = {**os.environ, "PYTHONHASHSEED": seed}
        root = Path(__file__).parents[4]
        return subprocess.check_output([sys.executable, "-c", DIGEST], env=env, cwd=root, text=True)

    assert digest("1") == digest("2")


# --- many processes ---


def test_sixteen_agents_in_groups_of_four() -> None:
    manifest = SPECIMENS["fleet"].manifest()
    kinds = by_kind(manifest)
    assert {kind: len(items) for kind, items in kinds.items()} == {
        "Namespace": 1,
        "Service": 2,
        "Pod": 5,
    }
    assert [len(pod["spec"]["containers"]) for pod in kinds["Pod"]] == [1, 4, 4, 4, 4]
    agents = [item for item in containers_of(manifest).values() if item["name"] != "learner"]
    assert [item["args"] for item in agents] == [["agent.py", str(number)] for number in range(16)]
    assert all(item["resources"] == {"limits": {"cpu": "1"}} for item in agents)
    for number, item in enumerate(agents):
        env = {variable["name"]: variable["value"] for variable in item["env"]}
        assert env["SYMPH_REPLAY_ADDR"] == "replay:7000"
        assert (env["SYMPHONY_ROLE"], env["SYMPHONY_GROUP"]) == (
            f"agent-{number}",
            f"agents-{number // 4}",
        )
    for service in kinds["Service"]:
        assert service["spec"]["selector"] == {EXPERIMENT: "fleet", UNIT: "learner"}


def test_script_that_stops_programs_is_in_one_object() -> None:
    exp = Experiment("e")
    for number in range(100):
        exp.new_process(f"agent-{number}", command="agent")
    manifest = rendered(exp)
    listed = with_listed_script(manifest)
    assert len(str(manifest)) * 4 < len(str(listed))
    (config,) = [item for item in manifest if item["kind"] == "ConfigMap"]
    assert config["immutable"]
    assert config["data"] == {"stop": f"{script('stop')}\n"}
    assert all(item["kind"] != "ConfigMap" for item in listed)


def hooks_of(manifest: KubeManifest) -> dict[str, tuple[str, ...] | None]:
    """Return the command with which each container is stopped."""
    hooks = {}
    for name, item in containers_of(manifest).items():
        hook = item.get("lifecycle", {}).get("preStop")
        hooks[name] = tuple(hook["exec"]["command"]) if hook else None
    return hooks


def test_script_is_listed_if_the_user_may_not_create_config_maps() -> None:
    exp = Experiment("e")
    group = exp.new_process_group("g")
    group.new_process("p", command="c", env={"A": "1"})
    group.new_process("q", command="c").mount_empty_dir("/own", name="own")
    exp.new_process("job", command="c").job()
    exp.new_process("quick", command="c", termination_grace_period=0)
    listed = tuple(stop_command(15, 30))
    expected = {"p": listed, "q": listed, "job": listed, "quick": None}
    manifest = with_listed_script(rendered(exp))
    assert hooks_of(manifest) == expected
    for item in containers_of(manifest).values():
        assert SCRIPTS_DIRECTORY not in {mount["mountPath"] for mount in item["volumeMounts"]}
    only_jobs = rendered(exp, RenderOptions(image=IMAGE, jobs_only=True))
    assert hooks_of(only_jobs) == expected


def test_hundred_agents_with_a_secret() -> None:
    exp = Experiment("many", secrets={"token": "tokens/wandb"})
    for number in range(100):
        agent = exp.new_process(f"agent-{number}", command="agent", args=number)
        agent.set_env_secret("TOKEN", "token").mount_secret(
            "certs", "/certs", files={"ca.pem": "certs/ca.pem"}
        )
    manifest = rendered(exp)
    kinds = by_kind(manifest)
    assert [item["metadata"]["name"] for item in kinds["Secret"]] == ["symphony-secrets", "certs"]
    assert len(kinds["Pod"]) == 100
    assert len({json.dumps(pod["spec"]["volumes"]) for pod in kinds["Pod"]}) == 1
    for item in containers_of(manifest).values():
        mounts = {mount["mountPath"]: mount["name"] for mount in item["volumeMounts"]}
        assert mounts["/etc/secrets"] == "symphony-secrets"
        assert {"name": "SYMPHONY_SECRETS_DIR", "value": "/etc/secrets"} in item["env"]
        secret = {"secretKeyRef": {"name": "symphony-secrets", "key": "token"}}
        assert {"name": "TOKEN", "valueFrom": secret} in item["env"]
    assert "wandb-token" not in str(manifest)
    assert sum(ROSTER in pod["metadata"].get("annotations", {}) for pod in kinds["Pod"]) == 1


def test_objects_do_not_share_labels() -> None:
    """A launch changes the labels of one object after the other."""
    manifest = SPECIMENS["fleet"].manifest()
    labels = [id(item["metadata"]["labels"]) for item in manifest]
    assert max(Counter(labels).values()) == 1


# --- names and labels ---


@pytest.mark.parametrize("specimen", SPECIMENS.values(), ids=SPECIMENS)
def test_every_object_has_labels_and_namespace(specimen: Specimen) -> None:
    scope = specimen.scope()
    for item in specimen.manifest():
        metadata = item["metadata"]
        assert (metadata["labels"][MANAGED_BY], metadata["labels"][EXPERIMENT]) == (
            "symphony",
            specimen.name,
        )
        if item["kind"] == "Namespace":
            assert metadata["name"] == specimen.name
            continue
        assert metadata["namespace"] == scope.namespace
        assert metadata["name"].startswith(f"{specimen.name}-") == scope.shared
        assert (UNIT in metadata["labels"]) == (item["kind"] in ("Pod", "Job", "Service"))
        assert (SERVICE in metadata["labels"]) == (item["kind"] == "Service")
        if item["kind"] == "Job":
            template = item["spec"]["template"]["metadata"]["labels"]
            assert {key: template[key] for key in metadata["labels"]} == metadata["labels"]


def test_addresses_in_a_shared_namespace() -> None:
    exp = Experiment("rl")
    exp.new_process("p", command="c").binds("db")
    manifest = rendered(exp, namespace="team-a")
    (service,) = by_kind(manifest)["Service"]
    env = {item["name"]: item.get("value") for item in containers_of(manifest)["p"]["env"]}
    assert env["SYMPH_DB_HOST"] == service["metadata"]["name"] == "rl-db"
    assert "Namespace" not in by_kind(manifest)


def test_long_names_in_a_shared_namespace_are_refused() -> None:
    exp = Experiment("x" * 40)
    exp.new_process("y" * 30, command="c")
    rendered(exp)
    with pytest.raises(SpecError, match="has 71 characters, and Kubernetes allows 63"):
        rendered(exp, namespace="team-a")


# --- services ---


@pytest.mark.parametrize(
    ("expose", "kind"),
    [("LoadBalancer", "LoadBalancer"), ("NodePort", "NodePort"), ("none", "ClusterIP")],
)
def test_services_of_bound_and_exposed_services(expose: Any, kind: str) -> None:
    exp, process = one()
    process.binds(["inner", "both"]).exposes({"both": None, "outer": 80})
    services = by_kind(rendered(exp, RenderOptions(image=IMAGE, expose=expose)))["Service"]
    found = {item["metadata"]["name"]: item["spec"]["type"] for item in services}
    assert found == {"inner": "ClusterIP", "both": kind, "outer": kind}
    assert all(item["spec"]["publishNotReadyAddresses"] for item in services)


@pytest.mark.parametrize(
    ("expose", "of_outer"), [("LoadBalancer", ["outer"]), ("none", ["outer", "inner", "both"])]
)
def test_all_ports_of_a_process_are_reached_at_each_service_but_not_from_outside(
    expose: Any, of_outer: list[str]
) -> None:
    exp, process = one()
    process.binds({"inner": 7001, "both": 7002}).exposes({"outer": 80})
    exp.new_process("other", command="c").binds("alone")
    services = by_kind(rendered(exp, RenderOptions(image=IMAGE, expose=expose)))["Service"]
    ports = {item["metadata"]["name"]: item["spec"]["ports"] for item in services}
    assert [port["port"] for port in ports["both"]] == [7002, 7001, 80]
    assert [port["targetPort"] for port in ports["both"]] == [7002, 7001, 80]
    assert [port["name"] for port in ports["outer"]] == of_outer
    assert [port["name"] for port in ports["alone"]] == ["alone"]


# --- jobs ---


@pytest.mark.parametrize(
    ("policy", "settings", "expected"),
    [
        (None, {}, ("Never", 0)),
        ("Never", {"backoff_limit": 3}, ("Never", 3)),
        ("OnFailure", {}, ("OnFailure", 2**31 - 1)),
        ("OnFailure", {"backoff_limit": 0}, ("OnFailure", 0)),
    ],
)
def test_backoff_limit_of_a_job(
    policy: str | None, settings: dict[str, int], expected: tuple[str, int]
) -> None:
    exp, process = one()
    process.job(**settings)
    if policy:
        process.restart_policy(policy)
    (job,) = rendered(exp).units
    assert (
        job["spec"]["template"]["spec"]["restartPolicy"],
        job["spec"]["backoffLimit"],
    ) == expected


def test_jobs_only_renders_jobs() -> None:
    manifest = SPECIMENS["shared"].manifest()
    assert {item["kind"] for item in manifest.units} == {"Job"}
    assert all(unit.job for unit in manifest.roster)


@pytest.mark.parametrize(
    ("jobs_only", "alternative"), [(False, "remove job()"), (True, "launch without jobs_only")]
)
def test_job_with_restart_policy_always_is_refused(jobs_only: bool, alternative: str) -> None:
    exp, process = one()
    process.restart_policy("Always")
    if not jobs_only:
        process.job()
    with pytest.raises(SpecError) as refusal:
        rendered(exp, RenderOptions(image=IMAGE, jobs_only=jobs_only))
    assert str(refusal.value) == (
        "process 'p' has the restart policy Always, which a Job cannot have because it runs to "
        f"completion: set OnFailure or Never, or {alternative}"
    )


def test_a_number_of_retries_above_the_maximum_is_refused() -> None:
    exp, process = one()
    process.job(backoff_limit=2**31)
    with pytest.raises(
        SpecError,
        match="process 'p' has a job with backoff_limit=2147483648; the maximum on Kubernetes is",
    ):
        rendered(exp)


def test_a_change_keeps_the_options_of_the_launch_that_it_does_not_set() -> None:
    launched = KubeCluster(image=IMAGE, expose="none", supervisor_image="s:1", patience="2m")
    recorded = launched._options_to_record()
    assert recorded == {"image": IMAGE, "expose": "none", "supervisor_image": "s:1"}
    _, changing = changed_options(KubeCluster(expose="NodePort", bind_host="::"), recorded)
    assert changing.rendering.image == IMAGE
    assert changing.rendering.expose == "NodePort"
    assert not changing.rendering.limits_pods
    assert changing.supervisor_image == "s:1"
    assert changing.bind_host == "::"
    _, reset = changed_options(KubeCluster().without_kept_options(), recorded)
    assert reset.rendering == KubeCluster().options


def test_a_change_ignores_the_options_of_a_launch_by_another_version() -> None:
    earlier = {"image": IMAGE, "git_image": "registry.example/git"}
    recorded, changing = changed_options(KubeCluster(), earlier)
    assert recorded == {"image": IMAGE}
    assert changing.rendering.image == IMAGE


def changed_options(
    cluster: Cluster, earlier: dict[str, Any]
) -> tuple[dict[str, Any], LaunchOptions]:
    """Return the options with which a cluster changes an experiment, recorded and checked."""
    given = cluster._options_to_record()
    options: tuple[dict[str, Any], LaunchOptions]
    options = cluster.implementation.planner.launch_options(given, earlier)
    return options


# --- containers ---


def test_missing_images_are_reported() -> None:
    exp = Experiment("e")
    for name in ("a", "b", "c"):
        exp.new_process(name, command="c")
    exp.get_process("b").container_yml = {"image": "own:1"}
    with pytest.raises(SpecError, match=r"^processes a, c have no container_image: .*--image"):
        rendered(exp, RenderOptions())
    assert containers_of(rendered(exp, RenderOptions(image="i")))["b"]["image"] == "own:1"
    exp.get_process("c").container_yml = {"image": "own:1"}
    with pytest.raises(SpecError, match="^process 'a' has no container_image: "):
        rendered(exp, RenderOptions())


@pytest.mark.parametrize(
    ("image", "hint"),
    [
        ("team/RL:v1", "did you mean 'team/rl:v1'"),
        ("rl:", "write 'rl' or 'rl:TAG'"),
        ("r l", "remove the spaces"),
        ("https://registry.example/rl:1", "write it without https://"),
        ("rl@sha256:12", "write "),
    ],
)
def test_the_name_of_an_image_is_checked(image: str, hint: str) -> None:
    exp = Experiment("e")
    exp.new_process("a", container_image=image, command="c")
    with pytest.raises(SpecError, match=f"^process 'a' has the image .*{re.escape(hint)}"):
        rendered(exp)


@pytest.mark.parametrize(
    ("place", "settings"),
    [
        (("p",), {"container_image": "RL:1"}),
        (("p",), {"job": True, "restart_policy": "Always"}),
        (("p",), {"container_image": IMAGE, "umask": "007", "command": None}),
        (("p",), {"env": {"..": "x"}}),
        (("p",), {"pod_yml": {"kind": "Job"}}),
        (("g", "p"), {"container_yml": {"resources": {"limits": {"memory": "1Gi"}}}}),
        (("g", "p"), {"env": {"..": "x"}}),
    ],
)
def test_errors_about_a_process_name_its_place(
    place: tuple[str, ...], settings: dict[str, Any]
) -> None:
    own = {"command": "c", "resource_request": {"memory": "2Gi"}, **settings}
    processes: dict[str, Any] = {"p": {key: own[key] for key in own if own[key] is not None}}
    if len(place) == 2:
        processes = {"g": {"processes": processes}}
    exp = Experiment.load_dict({"name": "e", "processes": {"ok": {"command": "c"}, **processes}})
    with pytest.raises(SpecError) as refusal:
        rendered(exp)
    found = [key for key in refusal.value.path if key != "processes"]
    assert tuple(found) == place


def test_a_request_above_the_limit_is_refused() -> None:
    exp = Experiment("e")
    process = exp.new_process("a", container_image="registry.example:5000/rl:v1", command="c")
    process.resource_request(cpu=1, memory="2Gi").resource_limit(cpu="1000m", memory="2Gi")
    rendered(exp)
    process.container_yml = {"resources": {"limits": {"memory": "1Gi"}}}
    with pytest.raises(SpecError, match="request of 2Gi memory is above the limit of 1Gi; raise"):
        rendered(exp)


def test_entry_point_of_the_image() -> None:
    exp = Experiment("e")
    exp.new_process("p", container_image=IMAGE, args=["--x"], start_dir="/there")
    item = containers_of(rendered(exp))["p"]
    assert "command" not in item
    assert (item["args"], item["workingDir"]) == (["--x"], "/there")


@pytest.mark.parametrize(
    ("options", "what"),
    [
        ({"preamble_cmds": "a"}, "preamble_cmds"),
        ({"start_dir": "a"}, "a relative start_dir"),
        ({"umask": "007"}, "umask"),
        ({"umask": "007", "preamble_cmds": "a"}, "preamble_cmds"),
    ],
)
def test_shell_without_a_command_is_refused(options: dict[str, str], what: str) -> None:
    exp = Experiment("e")
    exp.new_process("p", container_image=IMAGE, **options)  # type: ignore[arg-type]
    with pytest.raises(SpecError, match=f"process 'p' has {what} and no command: "):
        rendered(exp)


def test_container_yml_replaces_a_relative_start_directory() -> None:
    exp, process = one(command=None, args="--x", start_dir="here")
    process.container_yml = {"workingDir": None}
    item = containers_of(rendered(exp))["p"]
    assert (item["args"], item.get("command"), item.get("workingDir")) == (["--x"], None, None)
    process.container_yml = {"workingDir": "/app"}
    assert containers_of(rendered(exp))["p"]["workingDir"] == "/app"


@pytest.mark.parametrize("name", [".", "..", "..data"])
def test_invalid_variable_names_are_refused(name: str) -> None:
    exp, process = one()
    process.set_env(name, "x")
    with pytest.raises(
        SpecError, match="process 'p' has a variable '.*', which Kubernetes rejects; rename it"
    ):
        rendered(exp)


def test_address_replaces_a_variable_of_the_same_name() -> None:
    exp, process = one(env={"SYMPH_DB_PORT": "1", "SYMPH_RAY_ID": "2"})
    process.binds("db")
    env = containers_of(rendered(exp))["p"]["env"]
    assert Counter(item["name"] for item in env).most_common(1)[0][1] == 1
    values = {item["name"]: item["value"] for item in env}
    assert (values["SYMPH_DB_PORT"], values["SYMPH_RAY_ID"]) == ("7000", "2")


def test_custom_gpu_resource() -> None:
    exp, process = one()
    process.resource_limit(gpu=1)
    item = containers_of(rendered(exp, RenderOptions(image=IMAGE, gpu_resource="amd.com/gpu")))["p"]
    assert item["resources"] == {"limits": {"amd.com/gpu": "1"}}
    process.resource_limit(gpu_resource="nvidia.com/mig-1g.5gb")
    item = containers_of(rendered(exp, RenderOptions(image=IMAGE, gpu_resource="amd.com/gpu")))["p"]
    assert item["resources"] == {"limits": {"nvidia.com/mig-1g.5gb": "1"}}


def test_readiness_command_runs_after_the_preamble(tmp_path: Path) -> None:
    exp, process = one(
        command="sleep 1", start_dir="deep", preamble_cmds=["export A=1; echo preamble", "cd ."]
    )
    process.ready(command=["sh", "-c", 'echo $A "$1"', "x", "a b"])
    (tmp_path / "deep").mkdir()
    command = containers_of(rendered(exp))["p"]["readinessProbe"]["exec"]["command"]
    unescaped = [word.replace("$$", "$") for word in command]  # as the kubelet does
    done = subprocess.run(unescaped, cwd=tmp_path, capture_output=True, text=True, check=True)
    assert (done.stdout, done.stderr) == ("1 a b\n", "preamble\n")
    process.preamble_cmds = ["exit 3"]
    command = containers_of(rendered(exp))["p"]["readinessProbe"]["exec"]["command"]
    assert subprocess.run(command, cwd=tmp_path, check=False).returncode == 3
    process.ready(command="a | b && c")
    command = containers_of(rendered(exp))["p"]["readinessProbe"]["exec"]["command"]
    line = shell_command(["a | b && c"])
    assert command[-len(line) :] == line


# --- the roster ---


def test_roster_is_on_the_first_pod_that_does_not_wait() -> None:
    exp = Experiment("e")
    exp.new_process("late", command="c").starts_after("db").starts_after("team", "started")
    exp.new_process("db", command="c").ready(log="^up$", timeout=5)
    team = exp.new_process_group("team").job().restart_policy("OnFailure")
    team.new_process("a", command="c").binds("s").ready(tcp="s")
    team.new_process("b", command="c")
    own = exp.new_process("own", command="c").connects("s")
    own.pod_yml = {"spec": {"restartPolicy": "Always"}}
    manifest = rendered(exp)
    assert manifest.roster == (
        Unit(
            name="late",
            processes=("late",),
            starts_after={"db": "ready", "a": "started", "b": "started"},
        ),
        Unit(name="db", processes=("db",), ready={"db": 5.0}, logs={"db": "^up$"}),
        Unit(
            name="team",
            group=True,
            processes=("a", "b"),
            job=True,
            restart="OnFailure",
            ready={"a": 60.0},
            serves={"a": ["s"]},
        ),
        Unit(name="own", processes=("own",), restart="Always", connects={"own": ["s"]}),
    )
    with_roster = [item for item in manifest if ROSTER in item["metadata"].get("annotations", {})]
    assert [item["metadata"]["name"] for item in with_roster] == ["db"]
    assert decode_roster(with_roster[0]["metadata"]["annotations"][ROSTER]) == manifest.roster


def test_roster_of_a_job_is_on_its_pod_template() -> None:
    job = SPECIMENS["shared"].manifest().units[0]
    assert job["metadata"]["annotations"] == job["spec"]["template"]["metadata"]["annotations"]


# --- the manifest as text ---


def test_text_has_all_objects_with_redacted_secrets() -> None:
    manifest = SPECIMENS["everything"].manifest()
    text = str(manifest)
    assert text.startswith("# Values of secrets are redacted; ")
    assert "--with-secrets FILE" in text.splitlines()[0]
    assert text.endswith("\n")
    shown = list(yaml.safe_load_all(text))
    assert shown == manifest.to_dict()["objects"] == json.loads(json.dumps(shown))
    first, second = (item for item in shown if item["kind"] == "Secret")
    assert first["stringData"] == {"wandb": REDACTED, "ssh": REDACTED}
    assert second["stringData"] == {"ca.pem": REDACTED}
    assert "data" not in first
    assert [item for item in shown if item["kind"] != "Secret"] == [
        i for i in manifest if i["kind"] != "Secret"
    ]
    for content in ("wandb-token", "d2FuZGItdG9rZW4K", "AP8ga2V5"):
        assert content not in text + json.dumps(manifest.to_dict())


@pytest.mark.parametrize("path", ["/data", "/data\n", "/data\n\n", "/data\nmore"])
def test_text_keeps_its_last_value(path: str) -> None:
    """The volumes of a Pod are at the end of the text."""
    exp = Experiment("e")
    exp.new_process("w", cmd="true").mount_nfs("server", path, "/data")
    scope = Scope(experiment="e", namespace="e")
    manifest = render(planned(exp, scope), scope, RenderOptions(image=IMAGE), {})
    assert list(yaml.safe_load_all(str(manifest))) == list(manifest)


def test_text_without_secrets_has_no_note() -> None:
    assert str(SPECIMENS["group"].manifest()).startswith("---\napiVersion: v1\nkind: Namespace\n")


def test_long_secret_names_in_a_shared_namespace() -> None:
    exp = Experiment("e" * 60)
    exp.secrets["wandb"] = "tokens/wandb"
    process = exp.new_process("pp", command="c").set_env_secret("TOKEN", "wandb")
    process.mount_config("c" * 190, "/c", files=["conf/blob"])
    manifest = rendered(exp, namespace="team-a")
    (secret,), (config,) = (by_kind(manifest)[kind] for kind in ("Secret", "ConfigMap"))
    assert secret["metadata"]["name"] == f"{'e' * 60}-symphony-secrets"
    spec = spec_of(manifest, "pp")
    assert [volume["secret"]["secretName"] for volume in spec["volumes"] if "secret" in volume] == [
        secret["metadata"]["name"]
    ]
    assert (
        spec["containers"][0]["env"][0]["valueFrom"]["secretKeyRef"]["name"]
        == secret["metadata"]["name"]
    )
    assert (
        spec["volumes"][1]["configMap"]["name"]
        == config["metadata"]["name"]
        == f"{'e' * 60}-{'c' * 190}"
    )
    process.mount_config("d" * 193, "/d", files=["conf/blob"])
    with pytest.raises(
        SpecError, match=f"254 characters, and Kubernetes allows 253.*shorten '{'e' * 60}' or 'd"
    ):
        rendered(exp, namespace="team-a")


def test_dry_run_makes_no_request(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "token").write_text("swordfish")
    cluster = Cluster.new("kube", image=IMAGE, kubeconfig=str(tmp_path / "none"))
    exp = cluster.new_experiment("e", secrets=[str(tmp_path / "token")])
    exp.new_process("p", command="c")
    manifest = cluster.launch(exp, dry_run=True)
    assert capsys.readouterr().out == str(manifest)
    assert "swordfish" not in str(manifest)


def test_log_limit_is_listed_as_ignored() -> None:
    experiment, process = one()
    process.log_limit("100Mi")
    manifest = rendered(experiment)
    assert [(item.setting, item.processes) for item in manifest.ignored] == [("log_limit", ("p",))]
    assert str(manifest).startswith("# Ignored on this backend: log_limit (p)\n")


@pytest.mark.parametrize(
    ("policy", "backoff", "job", "in_group", "kind", "backoff_limit", "ignored"),
    [
        ("OnFailure", None, None, False, "Job", 3, []),
        ("OnFailure", 5, None, False, "Pod", None, []),
        ("OnFailure", None, None, True, "Pod", None, []),
        ("Always", None, None, False, "Pod", None, []),
        ("OnFailure", 5, {}, False, "Job", 3, ["restart_policy.backoff"]),
    ],
)
def test_limits_for_restarts_are_applied_by_a_job_or_the_supervisor(
    policy: str,
    backoff: float | None,
    job: dict[str, int] | None,
    in_group: bool,
    kind: str,
    backoff_limit: int | None,
    ignored: list[str],
) -> None:
    exp = Experiment("e")
    to = exp.new_process_group("g") if in_group else exp
    process = to.new_process("p", container_image="i")
    settings = to if in_group else process
    settings.restart_policy(policy, max_restarts=3, backoff=backoff)
    if job is not None:
        process.job(**job)
    manifest = rendered(exp)
    (body,) = manifest.units
    assert (body["kind"], body["spec"].get("backoffLimit")) == (kind, backoff_limit)
    assert spec_of(manifest, "g" if in_group else "p")["restartPolicy"] == "Never"
    assert bool(manifest.roster[0].supervised_restart) is (kind == "Pod")
    assert [item.setting for item in manifest.ignored] == ignored


@pytest.mark.parametrize(
    ("job", "kind", "ignored"), [(None, "Pod", []), ({}, "Job", ["restart_policy.final_codes"])]
)
def test_final_exit_codes_are_applied_by_the_supervisor(
    job: dict[str, int] | None, kind: str, ignored: list[str]
) -> None:
    exp = Experiment("e")
    process = exp.new_process("p", container_image="i")
    process.restart_policy("OnFailure", max_restarts=3, final_codes=2)
    if job is not None:
        process.job(**job)
    manifest = rendered(exp)
    assert [body["kind"] for body in manifest.units] == [kind]
    assert [item.setting for item in manifest.ignored] == ignored
    supervised = {"policy": "OnFailure", "max_restarts": 3, "final_codes": [2]}
    assert manifest.roster[0].supervised_restart == ({} if job is not None else supervised)


def test_policies_that_the_supervisor_applies() -> None:
    exp = Experiment("e", ends_with="p", on_failure="restart", deadline="1m")
    exp.new_process("p", container_image="i")
    manifest = rendered(exp)
    assert manifest.policies == Policies(ends_with=("p",), on_failure="restart", deadline=60)
    assert spec_of(manifest, "p")["activeDeadlineSeconds"] == 60
    assert manifest.ignored == ()


@pytest.mark.parametrize(
    ("image", "text"),
    [
        (None, "starts a supervisor on this machine"),
        ("symphony:1", "a RoleBinding and a Job with the image symphony:1"),
    ],
)
def test_dry_run_names_the_supervisor(image: str | None, text: str) -> None:
    cluster = KubeCluster(image="i", supervisor_image=image)
    exp = cluster.new_experiment("e")
    exp.new_process("p")
    assert "supervisor" not in str(cluster.manifest(exp))
    exp.deadline = 60
    manifest = cluster.manifest(exp)
    assert text in str(manifest).splitlines()[0]
    assert text in manifest.to_dict()["supervisor"]


def test_variables_of_many_services_are_in_a_config_map() -> None:
    exp = Experiment("many")
    for number in range(200):
        exp.new_process(f"agent-{number}", command="agent").binds(f"inference-{number}")
    first = exp.get_process("agent-0")
    first.set_env("SYMPH_INFERENCE_7_ADDR", "elsewhere:1")
    first.container_yml = {"envFrom": [{"secretRef": {"name": "mine"}}]}
    manifest = rendered(exp, namespace="team")
    (shared,) = by_kind(manifest)["ConfigMap"]
    assert shared["metadata"]["name"] == "many-symphony-environment"
    assert shared["data"]["SYMPH_INFERENCE_7_ADDR"] == "many-inference-7:7007"
    source = {"configMapRef": {"name": "many-symphony-environment"}}
    containers = containers_of(manifest)
    assert containers["agent-0"]["envFrom"] == [{"secretRef": {"name": "mine"}}, source]
    assert containers["agent-1"]["envFrom"] == [source]
    for container in containers.values():
        names = [variable["name"] for variable in container["env"]]
        assert names == ["SYMPHONY_ROLE", "SYMPHONY_GROUP"]
    # Listed in each container, the variables would take 9 MB. The scripts take 1 MB.
    assert len(json.dumps(list(manifest))) < 1_500_000
    options = RenderOptions(image=IMAGE, jobs_only=True)
    assert "ConfigMap" not in by_kind(rendered(exp, options, namespace="team"))


def test_options_of_the_cluster_change_all_objects_of_a_kind() -> None:
    exp, process = one()
    process.job().binds("web").add_label("kueue.x-k8s.io/queue-name", "team")
    process.pod_yml = {"spec": {"priority": 7}}
    options = {
        "pod_yml": {"spec": {"priority": 1, "schedulerName": "volcano"}},
        "job_yml": {"spec": {"podFailurePolicy": {"rules": []}}},
        "service_yml": {"metadata": {"annotations": {"a": "b"}}, "spec": {"ipFamilies": ["IPv6"]}},
        "namespace_yml": {"metadata": {"labels": {"team": "a"}}},
    }
    cluster = Cluster.new("kube", image=IMAGE, bind_host="::", **options)
    kinds = by_kind(cluster.manifest(exp))
    (namespace,), (service,), (job,) = (kinds[kind] for kind in ("Namespace", "Service", "Job"))
    assert namespace["metadata"]["labels"]["team"] == "a"
    assert service["spec"]["ipFamilies"] == ["IPv6"]
    assert job["spec"]["podFailurePolicy"] == {"rules": []}
    assert job["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "team"
    pod = job["spec"]["template"]["spec"]
    assert (pod["priority"], pod["schedulerName"]) == (7, "volcano")
    assert {"name": "SYMPH_WEB_BIND_HOST", "value": "::"} in pod["containers"][0]["env"]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"namespace_yml": {"metadata": {"name": "x"}}}, "namespace_yml changes the name"),
        ({"service_yml": {"kind": "Pod"}}, "service_yml changes kind"),
        ({"job_yml": {"metadata": {"labels": None}}}, f"job_yml changes the label '{MANAGED_BY}'"),
        ({"pod_yml": {"metadata": {"name": "x"}}}, "the option pod_yml changes 'name'"),
        ({"pod_yml": ["x"]}, "pod_yml must be a mapping"),
        ({"security": "tight"}, "security must be 'restricted' or None, not 'tight'"),
    ],
)
def test_options_of_the_cluster_that_break_objects_are_refused(
    options: dict[str, Any], message: str
) -> None:
    exp, process = one()
    process.job().binds("web")
    with pytest.raises(SpecError, match=message):
        Cluster.new("kube", image=IMAGE, **options).manifest(exp)


def test_all_containers_pass_the_restricted_level() -> None:
    exp, process = one()
    process.pod_yml = {"spec": {"initContainers": [{"name": "prepare", "image": IMAGE}]}}
    process.container_yml = {"securityContext": {"capabilities": {"add": ["NET_BIND_SERVICE"]}}}
    spec = spec_of(rendered(exp, RenderOptions(image=IMAGE, security="restricted")), process.name)
    seccomp = {"type": "RuntimeDefault"}
    assert spec["securityContext"] == {"runAsNonRoot": True, "seccompProfile": seccomp}
    (prepare,), (container,) = spec["initContainers"], spec["containers"]
    assert prepare["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert container["securityContext"]["capabilities"] == {
        "drop": ["ALL"],
        "add": ["NET_BIND_SERVICE"],
    }

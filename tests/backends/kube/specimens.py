"""Specimens: experiments of every kind, whose manifests are compared with golden files.

    python -m tests.backends.kube.specimens

writes the golden files again. Placeholders in them replace the compressed roster and the scripts.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from symphony import Experiment
from symphony.model.document.files import to_yaml_documents
from symphony.plan.plan import Plan
from symphony.plan.resolution.addresses import AddressScheme
from symphony.plan.resolve import resolve
from symphony_kube.api.labels import ROSTER, Scope
from symphony_kube.render.container_scripts import script
from symphony_kube.render.experiment import render
from symphony_kube.render.manifest import KubeManifest
from symphony_kube.render.options import RenderOptions

GOLDEN = Path(__file__).with_name("golden")
IMAGE = "registry.example/rl:1"

# The contents of the files that the experiments name.
FILES = {
    "tokens/wandb": b"wandb-token\n",
    "tokens/ssh": b"\x00\xff key",
    "certs/ca.pem": b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n",
    "conf/train.toml": b'# training\nrate = 0.1\nname = "na\xc3\xafve"\n',
    "conf/blob": bytes(range(256)),
}
AWKWARD = (
    "", " ", "two words", "'single' \"double\" `back`", "$HOME ${HOME} $(echo no) $(X) $$(X)",
    "$", "$$", "$(", "$(A)$", "$é",
    "a\nb\n", "\n", "tab\tbell\a", "back\\slash \\n", "-leading --dash=1",
    "yes", "y", "1e3", "010", "null", "a: b # c",
    "glob * ? [a] {a,b} ~ ! # % ^ & | ; < >",
    "naïve café 日本語 🎻", "\x85\u2028\ufeff", "trailing ",
)  # fmt: skip


def everything(exp: Experiment) -> None:
    """A lone process with all settings."""
    process = exp.new_process(
        "learner",
        container_image=IMAGE,
        command=["python", "-u"],
        args=["learner.py", "--seed", 7],
        env={"MODE": "train", "PRICE": "$(MODE) costs 5$"},
        start_dir="/app/rl",
    )
    process.set_env_secret("WANDB_API_KEY", "wandb")
    process.binds("replay-server").binds({"parameters": 7100}).exposes(
        {"tensorboard": 6006, "parameters": 7100}
    )
    process.binds("a-name-that-is-too-long-for-a-port").binds("a--b")
    process.resource_request(cpu=0.5, memory="1Gi").resource_limit(cpu=2, mem="4Gi", gpu=2)
    process.image_pull_policy("IfNotPresent").restart_policy("OnFailure").termination_grace_period(
        5
    )
    process.ready(http=("tensorboard", "/health"), timeout=90)
    process.mount_nfs("10.0.0.1", "/exports/data", "/data").mount_pvc(
        "models", "/models", read_only=True
    )
    process.mount_host_path("/dev/kvm", "/dev/kvm", "CharDevice").mount_host_path(
        "/var/log", "/host/log", read_only=True
    )
    process.mount_empty_dir("/scratch", memory=True, size="64Mi").mount_shared_memory("8Gi")
    process.mount_secret("certs", "/certs", files={"ca.pem": "certs/ca.pem"}).mount_secret(
        "existing", "/existing"
    )
    process.mount_config("train", "/conf", files=["conf/train.toml", "conf/blob"]).mount_config(
        "theirs", "/theirs"
    )
    process.node_selector("pool", "gpu").add_label("example.org/team", "rl").add_label(
        "tier", "train"
    )
    process.add_toleration(key="nvidia.com/gpu", operator="Exists", effect="NoSchedule")
    process.add_toleration(key="spot", value="yes", effect="NoExecute", toleration_seconds=60)
    process.pod_yml = {
        "metadata": {"annotations": {"example.org/owner": "me"}},
        "spec": {
            "priority": None,
            "securityContext": {"fsGroup": 1000},
            "containers": [
                {"name": "sidecar", "image": "sidecar:1"},
                {"name": "learner", "stdin": True},
            ],
        },
    }
    process.container_yml = {
        "lifecycle": {"preStop": {"exec": {"command": ["true"]}}},
        "env": [{"name": "MODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}}],
        "resources": {"limits": {"example.org/fpga": "1"}},
    }


def group(exp: Experiment) -> None:
    """A group with shared volumes and volumes of its members."""
    team = exp.new_process_group("team", start_dir="team", preamble_cmds="set -e")
    team.mount_empty_dir("/shared").mount_nfs("fs", "/all", "/all").exposes("board")
    team.add_label("role", "team").set_env("WHO", "all").termination_grace_period(0)
    first = team.new_process(
        "first", container_image=IMAGE, command="./serve", env={"WHO": "first"}
    )
    first.binds("feed").ready(tcp="feed").mount_host_path("/data/first", "/own")
    second = team.new_process(
        "second", container_image=IMAGE, cmds=["make", "./run # at last"], start_dir="deeper"
    )
    second.connects("feed").mount_host_path("/data/second", "/own").ready(
        command=["test", "-e", "$(file)"]
    )
    second.mount_empty_dir("/scratch", name="scratch")
    third = team.new_process(
        "third", container_image=IMAGE, cmd="exec ./third", start_dir="/elsewhere"
    )
    third.ready(log="^up$", timeout=5).mount_empty_dir(
        "/tmp/scratch", name="scratch"
    ).mount_shared_memory()


def health(exp: Experiment) -> None:
    """Tests that begin after the start, after a readiness test, and after the time for a line."""
    web = exp.new_process("web", container_image=IMAGE, command=["./web", "-p", "80"])
    web.binds({"web": 80}).ready(http=("web", "/ready"), timeout=90)
    web.healthy(http=("web", "/health"), every="1m", failures=2, timeout=7)
    queue = exp.new_process("queue", container_image=IMAGE, cmd="exec ./queue", start_dir="data")
    queue.ready(log="^up$", timeout=90.5).healthy(command="./check").restart_policy("Always")
    again = exp.new_process("again", container_image=IMAGE, command="./again")
    again.healthy(command=["./check"]).restart_policy("OnFailure")
    exp.new_process("image", container_image=IMAGE).binds("image").healthy(tcp="image").job()


def job(exp: Experiment) -> None:
    """Jobs with different settings, and a Pod that waits for one."""
    exp.new_process("plain", container_image=IMAGE, command="work").job()
    whole = exp.new_process("whole", container_image=IMAGE, command="work")
    whole.job(backoff_limit=3, active_deadline=600, ttl=60).restart_policy("OnFailure")
    exp.new_process("again", container_image=IMAGE, command="work").job().restart_policy(
        "OnFailure"
    )
    exp.new_process("tries", container_image=IMAGE, command="work").job(backoff_limit=2)
    pair = exp.new_process_group("pair").job(ttl=0)
    for name in ("left", "right"):
        pair.new_process(name, container_image=IMAGE, command=name)
    exp.new_process("after", container_image=IMAGE, command="report").starts_after(
        "plain", "succeeded"
    )


def fleet(exp: Experiment) -> None:
    """Sixteen agents in groups of group, and one lone process."""
    learner = exp.new_process("learner", container_image=IMAGE, command="python", args="learner.py")
    learner.binds(["replay", "parameters"])
    for number in range(4):
        group = (
            exp.new_process_group(f"agents-{number}")
            .starts_after(learner, "started")
            .resource_limit(cpu=1)
        )
        for member in range(4):
            index = 4 * number + member
            agent = group.new_process(
                f"agent-{index}", container_image=IMAGE, command="python", args=["agent.py", index]
            )
            agent.connects(["replay", "parameters"])


def shared(exp: Experiment) -> None:
    """Jobs only, in a shared namespace."""
    worker = exp.new_process("worker", container_image=IMAGE, command="work").node_selector(
        "pool", "plain"
    )
    pair = exp.new_process_group("pair").restart_policy("OnFailure").starts_after(worker, "started")
    for name in ("left", "right"):
        member = pair.new_process(name, container_image=IMAGE, command=name)
        member.mount_secret("certs", "/certs", files={"ca.pem": "certs/ca.pem"})
    pair.binds("pairing")


def awkward(exp: Experiment) -> None:
    """Arguments and variables with special characters."""
    env = {f"VARIABLE_{number}": text for number, text in enumerate(AWKWARD)}
    exp.new_process(
        "words", container_image=IMAGE, command=["printf", *AWKWARD], args=AWKWARD, env=env
    )
    exp.new_process(
        "lines", container_image=IMAGE, cmds=['echo "$HOME" $(id) $$', "a\nb"], env={"a.b-C": "y"}
    )
    exp.new_process("own", container_image=IMAGE)
    exp.new_process(
        "folder", container_image=IMAGE, command=["./run", *AWKWARD], start_dir="it's a 'place'"
    )


def volumes(exp: Experiment) -> None:
    """Similar volumes that are distinct."""
    lone = exp.new_process("lone", container_image=IMAGE, command="c")
    lone.mount_nfs("fs", "/exports/a", "/a").mount_nfs("fs", "/exports/b", "/b")
    lone.mount_host_path("/one/data", "/c").mount_host_path("/two/data", "/d")
    lone.mount_host_path("/one/data", "/e", "Directory").mount_host_path(
        "/one/data", "/f", read_only=True
    )
    lone.mount_empty_dir("/g").mount_empty_dir("/h")
    lone.mount_nfs("fs", "/exports/c", "/i", name="data").mount_host_path(
        "/three/data", "/j", name="data"
    )
    lone.mount_pvc("claim", "/m").mount_pvc("claim", "/n", read_only=True)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Specimen:
    """An experiment with its scope and options."""

    build: Callable[[Experiment], None]
    secrets: dict[str, str] = dataclasses.field(default_factory=dict)
    options: RenderOptions = RenderOptions()
    namespace: str | None = None

    @property
    def name(self) -> str:
        """The name of the experiment and of its golden file."""
        return self.build.__name__

    def plan(self) -> Plan:
        """Return the plan of the experiment."""
        exp = Experiment(self.name, secrets=self.secrets)
        self.build(exp)
        return planned(exp, self.scope())

    def scope(self, namespace: str | None = None) -> Scope:
        """Return its scope. ``namespace`` replaces its own namespace."""
        chosen = namespace or self.namespace or self.name
        return Scope(experiment=self.name, namespace=chosen, shared=self.namespace is not None)

    def manifest(self, namespace: str | None = None) -> KubeManifest:
        """Return its manifest."""
        return render(self.plan(), self.scope(namespace), self.options, FILES)


def planned(exp: Experiment, scope: Scope) -> Plan:
    """Return the plan of an experiment for the kube backend."""
    return resolve(exp, AddressScheme(backend="kube", host=scope.object_name, bind_host="0.0.0.0"))


EVERYTHING = RenderOptions(
    image="fallback:1",
    service_account="trainer",
    image_pull_secrets=("registry", "mirror"),
)
SECRETS = {"wandb": "tokens/wandb", "ssh": "tokens/ssh"}
SPECIMENS = {
    specimen.name: specimen
    for specimen in (
        Specimen(build=everything, secrets=SECRETS, options=EVERYTHING),
        Specimen(build=group),
        Specimen(build=health),
        Specimen(build=job),
        Specimen(
            build=shared, secrets=SECRETS, options=RenderOptions(jobs_only=True), namespace="team-a"
        ),
        Specimen(build=fleet, options=RenderOptions(expose="NodePort")),
        Specimen(build=awkward),
        Specimen(build=volumes),
    )
}


def written(specimen: Specimen) -> str:
    """Return the text of a golden file: all objects, including the (fake) values of secrets."""
    return to_yaml_documents(_abbreviated(item) for item in specimen.manifest())


_SCRIPTS = {script("stop"): "the script stop", script("first_process"): "the first process"}


def _abbreviated(value: Any) -> Any:
    """Replace the roster and the scripts."""
    if isinstance(value, dict):
        return {
            key: "the roster" if key == ROSTER else _abbreviated(item)
            for key, item in value.items()
        }
    if isinstance(value, list):
        return [_abbreviated(item) for item in value]
    return _SCRIPTS.get(value.rstrip("\n"), value) if isinstance(value, str) else value


if __name__ == "__main__":
    for name, specimen in SPECIMENS.items():
        (GOLDEN / f"{name}.yml").write_text(written(specimen), encoding="utf-8")

"""The example of the size of real research: on this machine for real, and as it would be on a cluster."""

from __future__ import annotations

import importlib
import json
import os
import random
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from symphony import Cluster, Experiment, SpecError
from symphony.status import State

EXAMPLE = Path(__file__).parents[2] / "examples" / "rl"
MODULES = ("configuration", "experiment", "launch", "roles")
# Without training the mean return is -100, at its best some -12.
GOOD = -30.0


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Import a module of the example, as its programs do; it is forgotten afterwards."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.delenv("RL_CONFIG", raising=False)
    yield importlib.import_module
    for name in list(sys.modules):
        if name.partition(".")[0] in MODULES:
            del sys.modules[name]


@pytest.fixture
def described(example: Any) -> Any:
    """Describe the experiment as a configuration says, with some settings over it, for a cluster."""

    def describe(
        file: str | Path = "config.yml", backend: str = "local", **over: Any
    ) -> Experiment:
        wanted = example("configuration").load(EXAMPLE / file, over)
        found: Experiment = example("launch").described(Cluster.new(backend), "rl", wanted)
        return found

    return describe


@pytest.fixture
def python3(monkeypatch: pytest.MonkeyPatch) -> None:
    """This interpreter is the python3 of the PATH: it has symphony and pyzmq."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def cluster(tmp_path: Path, python3: None) -> Iterator[Cluster]:
    made = Cluster.new("local", state_dir=tmp_path / "state" / "local")
    yield made
    for name in made.list_experiments():
        made.stop(name, at_once=True)
        made.delete(name)


@pytest.fixture
def run(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Run symphony, or the example's own command line, beside `cluster`."""
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("SYMPHONY_BACKEND", raising=False)

    def call(*words: object, script: Path | None = None) -> subprocess.CompletedProcess[str]:
        program = ["-m", "symphony"] if script is None else [str(script)]
        command = [sys.executable, *program, *map(str, words)]
        return subprocess.run(command, capture_output=True, text=True, timeout=100)

    return call


def connections(experiment: Experiment) -> dict[str, int]:
    return {
        process.name: len(process.settings.connects) for process in experiment.list_all_processes()
    }


def services(experiment: Experiment) -> set[str]:
    every = experiment.list_all_processes()
    return {
        name for process in every for name in (*process.settings.binds, *process.settings.exposes)
    }


# --- on this machine ---


def test_eight_agents_learn(run: Any, cluster: Cluster) -> None:
    done = run("launch", EXAMPLE / "experiment.py", "--follow")
    assert done.returncode == 0, done.stdout + done.stderr
    first, last = returns(cluster.get_log("rl", "learner"))
    assert first == -100
    assert last > GOOD
    status = cluster.describe_experiment("rl")
    assert {process.exit_code for process in status} == {0}
    assert len(status.processes) == 7 + 8 + 2
    for name in (
        "agent-0",
        "agent-7",
        "evaluator-0",
        "evaluator-1",
        "replay",
        "curriculum",
        "learner",
    ):
        assert f"{name}: " in cluster.get_log("rl", "logger"), name


def test_the_page_shows_how_groups_of_agents_learn(
    run: Any, cluster: Cluster, tmp_path: Path
) -> None:
    words = (
        "--forever",
        "--agents",
        3,
        "--group-size",
        2,
        "--evaluators",
        1,
        "--results",
        tmp_path / "results",
    )
    done = run("train", *words, script=EXAMPLE / "launch.py")
    assert done.returncode == 0, done.stderr
    cluster.wait("rl", until="ready", timeout=60)
    page = f"http://{run('visit', 'rl', 'page').stdout.strip().removeprefix('http://')}"
    assert page == f"http://{cluster.external_url('rl', 'page')}"
    data = improved(page)
    assert data["curves"]["evaluation/return"][0] == [0, -100]
    with urllib.request.urlopen(f"{page}/", timeout=30) as answer:
        html = answer.read().decode()
    assert "mean return -" in html
    assert html.count("<svg") == html.count("</svg>") == 2
    with pytest.raises(urllib.error.HTTPError, match="404") as missing:
        urllib.request.urlopen(f"{page}/nothing", timeout=30)
    missing.value.close()
    groups = {process.name: process.group for process in cluster.describe_experiment("rl")}
    assert [groups[f"agent-{n}"] for n in range(3)] == ["agents-0", "agents-0", "agents-1"]
    running(cluster, "agent-2: begins")
    assert "agent-2: begins" in (tmp_path / "results" / "run.log").read_text()
    written, _, _ = (
        (tmp_path / "results" / "metrics.jsonl").read_text().rpartition("\n")
    )  # the next is on its way
    measured = [json.loads(line) for line in written.splitlines()]
    assert {number["series"] for number in measured} == {
        "agents/return",
        "evaluation/return",
        "learner/error",
    }


def improved(page: str) -> dict[str, Any]:
    """What the page shows once there is everything, and the return that is measured has become good."""
    with urllib.request.urlopen(f"{page}/events", timeout=60) as events:
        for event in events:
            if not event.strip():
                continue
            with urllib.request.urlopen(f"{page}/data.json", timeout=30) as answer:
                data: dict[str, Any] = json.load(answer)
            curve, noisy = (
                data["curves"].get(f"{who}/return", []) for who in ("evaluation", "agents")
            )
            if (
                curve
                and curve[-1][1] > GOOD
                and len(noisy) > 1
                and "learner/error" in data["curves"]
                and data["path"]
            ):
                return data
    pytest.fail("the page has closed")


def test_it_goes_on_from_a_checkpoint(run: Any, example: Any, tmp_path: Path) -> None:
    policy, maze = example("roles.policy"), example("roles.maze")
    distance = distances(maze)
    values = [
        [-float(distance[maze._NEXT[state][action]]) for action in range(4)]
        for state in range(maze.STATES)
    ]
    assert len(policy.untrained()) == len(values)
    (tmp_path / "checkpoint.json").write_text(json.dumps({"version": 500, "values": values}))
    words = ("--agents", 1, "--evaluators", 1, "--updates", 20, "--results", tmp_path, "--follow")
    done = run("train", *words, script=EXAMPLE / "launch.py")
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "result.json").read_text())
    assert (
        result["version"]
        == json.loads((tmp_path / "checkpoint.json").read_text())["version"]
        == 520
    )
    assert result["first"] > GOOD


def test_it_ends_at_the_target(described: Any, cluster: Cluster) -> None:
    few: dict[str, Any] = {
        "agents": 2,
        "evaluators": 1,
        "run": {"updates": 1_000_000, "target": -60.0},
    }
    cluster.launch(described(**few))
    assert cluster.wait("rl", timeout=60).exit_code == 0
    log = cluster.get_log("rl", "learner")
    assert returns(log)[1] > -80
    assert int(log.split()[-2]) < few["run"]["updates"]


@pytest.mark.parametrize("late", ["nonagent", "agent-0", "evaluator-0"])
def test_it_may_start_in_any_order(described: Any, cluster: Cluster, late: str) -> None:
    experiment = described(agents=2, evaluators=1, run={"updates": 20})
    experiment.new_process("others", cmd="sleep 1")
    member = next(member for member in experiment.list_members() if member.name == late)
    member.starts_after("others", "succeeded")
    cluster.launch(experiment)
    status = cluster.wait("rl", timeout=60)
    assert {process.name: process.exit_code for process in status if process.exit_code} == {}
    assert returns(cluster.get_log("rl", "learner"))[0] == -100
    assert "all members have enrolled" in cluster.get_log("rl", "logger")
    assert "evaluator-0: version 0: " in cluster.get_log("rl", "logger")


def test_nobody_waits_for_ever_for_the_learner(described: Any, cluster: Cluster) -> None:
    experiment = described(agents=2, evaluators=1, run={"forever": True, "patience": 10})
    cluster.launch(experiment)
    running(cluster, "evaluator-0: version 0")
    running(cluster, "agent-0: begins")
    kill(cluster, "learner")
    status = cluster.wait("rl", timeout=60)
    assert {process.exit_code for process in status if process.name != "learner"} == {1}
    assert "agent-0: the learner failed or is gone" in cluster.get_log("rl", "agent-0")


def test_the_run_ends_without_an_agent_that_was_killed(
    described: Any, cluster: Cluster, tmp_path: Path
) -> None:
    learner = {"env": {"RL_PATIENCE": 10}}  # the others are not in a hurry
    experiment = described(agents=2, evaluators=2, run={"updates": 200}, roles={"learner": learner})
    killed = tmp_path / "killed"
    experiment.new_process("gate", cmd=f"until test -e {killed}; do sleep 0.05; done")
    experiment.get_process("evaluator-1").starts_after(
        "gate", "succeeded"
    )  # and the run begins with everybody
    cluster.launch(experiment)
    running(cluster, "agent-1: begins")
    kill(cluster, "agent-1")
    killed.touch()
    status = cluster.wait("rl", timeout=60)
    assert {process.name for process in status if process.state is not State.SUCCEEDED} == {
        "agent-1"
    }
    assert "not waiting any longer for agent-1" in cluster.get_log("rl", "learner")


@pytest.mark.parametrize("broken", ["not JSON", json.dumps({"version": 0, "values": [[0.0] * 4]})])
def test_nobody_hangs_where_the_checkpoint_is_broken(
    described: Any, cluster: Cluster, tmp_path: Path, broken: str
) -> None:
    """The first breaks the learner at once, the second all agents: then the learner finds that nothing comes."""
    (tmp_path / "checkpoint.json").write_text(broken)
    few = {"agents": 2, "evaluators": 0, "run": {"patience": 2}}
    cluster.launch(described(**few, results={"folder": str(tmp_path)}))
    status = cluster.wait("rl", timeout=60)
    assert {process.exit_code for process in status} == {1}


def returns(log: str) -> tuple[float, float]:
    """The first and the last mean return, as the learner tells them."""
    words = next(line for line in log.splitlines() if line.startswith("mean return ")).split()
    return float(words[2]), float(words[5])


def running(cluster: Cluster, text: str) -> None:
    """Wait until the logger has written a line."""
    for line in cluster.get_log("rl", "logger", follow=True):
        if text in line:
            return
    pytest.fail(f"the logger has never written {text!r}")


def kill(cluster: Cluster, process: str) -> None:
    pid = cluster.describe_process("rl", process).pid
    assert pid is not None
    os.kill(pid, 9)


def distances(maze: Any) -> dict[int, int]:
    """From each state the number of steps to the goal."""
    found, border = {maze.GOAL: 0}, [maze.GOAL]
    while border:
        near = {
            state for state in range(maze.STATES) if set(maze._NEXT[state]) & set(border)
        } - found.keys()
        found.update(dict.fromkeys(near, max(found.values()) + 1))
        border = list(near)
    return found


def test_the_goal_is_within_reach_of_every_start(example: Any) -> None:
    maze = example("roles.maze")
    assert len(distances(maze)) == maze.STATES
    assert distances(maze)[maze.START] == 20


def test_neither_the_learner_nor_the_agents_get_far_ahead(example: Any) -> None:
    replay = example("roles.replay")
    memory, batch = replay.Memory(random.Random(1)), 256
    for _ in range(500):
        learner = memory.batch(batch)
        assert len(learner) in (0, batch)
        if not learner:
            assert memory.ticket(), "both wait for each other"
            memory.add([(0, 0, -1.0, 0, False)] * 100)
    assert memory.sampled / memory.added == pytest.approx(replay.REUSE, rel=0.1)
    while memory.ticket():
        memory.add([(0, 0, -1.0, 0, False)] * 100)
    assert memory.added <= replay.LEAST + 100 + memory.sampled / replay.REUSE


def test_agents_do_not_get_ahead_while_their_experience_is_on_its_way(example: Any) -> None:
    """Else all that there is to learn from was played with the first parameters, and nothing is learned."""
    replay, maze, now = example("roles.replay"), example("roles.maze"), [0.0]
    memory = replay.Memory(random.Random(1), clock=lambda: now[0])
    given = sum(memory.ticket() for _ in range(500))
    assert given == replay.LEAST // maze.LIMIT
    for _ in range(given - 1):
        memory.add([(0, 0, -1.0, 0, False)] * 40)
    assert (
        sum(memory.ticket() for _ in range(500)) == (replay.LEAST - 40 * (given - 1)) // maze.LIMIT
    )
    # The agents have ended, and nothing of this comes any more.
    now[0] = replay.LOST + 1
    assert memory.ticket()


def test_the_learner_does_not_wait_for_an_agent_that_was_killed_at_the_beginning(
    example: Any,
) -> None:
    replay, maze = example("roles.replay"), example("roles.maze")
    memory = replay.Memory(random.Random(1), clock=lambda: 0.0)
    given = sum(memory.ticket() for _ in range(500))
    for _ in range(given - 1):
        memory.add([(0, 0, -1.0, 0, False)] * maze.LIMIT)
    assert not memory.ticket()
    assert memory.batch(256)


# --- as it would be on a cluster ---


def test_it_has_eleven_services_and_an_agent_uses_ten(described: Any) -> None:
    experiment = described()
    assert services(experiment) == {
        "run", "news", "experience", "replay", "parameters", "versions", "starts", "log", "metrics", "screen", "page",
    }  # fmt: skip
    assert connections(experiment) == {
        "learner": 4, "replay": 3, "ps": 2, "curriculum": 3, "logger": 2, "recorder": 3, "page": 2,
        **{f"agent-{n}": 10 for n in range(8)}, **{f"evaluator-{n}": 7 for n in range(2)},
    }  # fmt: skip
    assert [group.name for group in experiment.list_process_groups()] == ["nonagent"]


def test_what_connects_is_what_the_programs_use(
    example: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The table of the experiment, beside the names in the programs."""
    experiment = example("experiment")
    shared = ("roles/member.py", {"run", "news"}), ("roles/newest.py", {"parameters", "versions"})
    for role, wanted in experiment.CONNECTS.items():
        text = (EXAMPLE / "roles" / f"{role}.py").read_text()
        used = {name for name in wanted if f'"{name}"' in text}
        used |= {"log"} if ".log(" in text else set()
        used |= {"metrics"} if ".measure(" in text else set()
        for module, names in shared:
            used |= (
                names
                if f"roles.{Path(module).stem} import" in text and role != "learner"
                else set()
            )
        assert used == set(wanted), role


@pytest.fixture
def rendered(run: Any) -> Any:
    """The objects of a dry run on Kubernetes, by kind and name."""

    def render(*words: object) -> dict[tuple[str, str], dict[str, Any]]:
        done = run("train", "-b", "kube", "--dry-run", *words, script=EXAMPLE / "launch.py")
        assert done.returncode == 0, done.stderr
        found = [item for item in yaml.safe_load_all(done.stdout) if item]
        return {(item["kind"], item["metadata"]["name"]): item for item in found}

    return render


def asked(container: dict[str, Any]) -> dict[str, Any]:
    resources = container["resources"]
    return {
        **resources.get("requests", {}),
        **{f"limit {k}": v for k, v in resources.get("limits", {}).items()},
    }


def test_the_dispatcher_places_everybody(rendered: Any) -> None:
    objects = rendered("--config", EXAMPLE / "gke.yml", "--agents", 9)
    pods = {name: item["spec"] for (kind, name), item in objects.items() if kind == "Pod"}
    assert set(pods) == {
        "nonagent",
        "agents-0",
        "agents-1",
        "agents-2",
        "evaluator-0",
        "evaluator-1",
    }
    assert sum(kind == "Service" for kind, _ in objects) == 11

    nonagent = pods["nonagent"]
    assert [volume["nfs"] for volume in nonagent["volumes"]] == [
        {"server": "10.0.0.2", "path": "/exports/rl"}
    ]
    assert nonagent["nodeSelector"] == {"name": "learner"}
    assert nonagent["tolerations"] == [
        {"key": "workload", "operator": "Equal", "value": "learner", "effect": "NoExecute"},
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    ]
    asks = {container["name"]: asked(container) for container in nonagent["containers"]}
    assert {name for name, ask in asks.items() if "limit nvidia.com/gpu" in ask} == {"learner"}
    assert asks["learner"]["limit nvidia.com/gpu"] == "1"
    assert asks["replay"] == {"cpu": "2", "memory": "8192Mi"}
    assert asks["page"] == {"cpu": "100m", "memory": "256Mi"}

    for name, members in (("agents-0", 4), ("agents-1", 4), ("agents-2", 1)):
        assert pods[name]["nodeSelector"] == {"name": "agents"}
        assert pods[name]["tolerations"] == [
            {"key": "workload", "operator": "Equal", "value": "agents", "effect": "NoSchedule"}
        ]
        assert len(pods[name]["containers"]) == members
        for container in pods[name]["containers"]:
            cpu = int(asked(container)["cpu"].removesuffix("m"))
            assert 900 < cpu < 1000  # an eighth of what eight cores leave to Pods

    for name in ("evaluator-0", "evaluator-1"):
        # The smallest pool that has room for one core, which bears no taint.
        assert pods[name]["nodeSelector"] == {"name": "system"}
        assert "tolerations" not in pods[name]
        assert asked(pods[name]["containers"][0]) == {"cpu": "1", "memory": "2048Mi"}


def test_results_are_kept_on_a_server_or_on_the_node(rendered: Any) -> None:
    def volume(*words: object) -> dict[str, Any]:
        nonagent = rendered("--agents", 1, *words)["Pod", "nonagent"]["spec"]
        (found,) = nonagent["volumes"]
        for container in nonagent["containers"]:
            assert [mount["mountPath"] for mount in container["volumeMounts"]] == ["/results"]
            assert {"name": "RL_RESULTS", "value": "/results"} in container["env"]
        return {key: value for key, value in found.items() if key != "name"}

    image = ("--repository", "r", "--results", "/results")
    nfs = {"server": "10.0.0.2", "path": "/exports/rl"}
    assert volume(*image, "--nfs", "10.0.0.2:/exports/rl") == {"nfs": nfs}
    node = {"path": "/data/rl", "type": "DirectoryOrCreate"}
    assert volume(*image, "--host-path", "/data/rl") == {"hostPath": node}


def test_agents_alone_run_where_the_configuration_says(rendered: Any, tmp_path: Path) -> None:
    pods = {
        "agent": {
            "node_selector": {"disk": "ssd"},
            "tolerations": [{"key": "spot", "operator": "Exists"}],
        },
        "nonagent": {"node_selector": {"disk": "nvme"}},
    }
    roles = {
        "learner": {"limit": {"gpu": 2}, "image": "learner:1"},
        "agent": {"request": {"cpu": 2}},
    }
    (tmp_path / "mine.yml").write_text(
        json.dumps({"agents": 2, "image": "all:1", "pods": pods, "roles": roles})
    )
    (grouped,) = pods_of_agents(rendered("--config", tmp_path / "mine.yml", "--group-size", 2))
    objects = rendered("--config", tmp_path / "mine.yml")
    assert [pod["nodeSelector"] for pod in pods_of_agents(objects)] == [{"disk": "ssd"}] * 2
    agent, nonagent = objects["Pod", "agent-1"]["spec"], objects["Pod", "nonagent"]["spec"]
    assert grouped["nodeSelector"] == {"disk": "ssd"}
    assert agent["tolerations"] == grouped["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    assert asked(agent["containers"][0]) == {"cpu": "2"}
    assert nonagent["nodeSelector"] == {"disk": "nvme"}
    assert [container["image"] for container in nonagent["containers"]] == [
        "learner:1",
        *["all:1"] * 6,
    ]
    assert [
        asked(container) for container in nonagent["containers"] if "resources" in container
    ] == [{"limit nvidia.com/gpu": "2"}]


def pods_of_agents(objects: dict[tuple[str, str], dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        item["spec"]
        for (kind, name), item in objects.items()
        if kind == "Pod" and name.startswith("agent")
    ]


def test_a_dry_run_says_what_would_be_built(run: Any) -> None:
    words = ("--repository", "registry.example/rl", "--build", "--agents", 1, "--dry-run")
    done = run("train", "-b", "kube", *words, script=EXAMPLE / "launch.py")
    assert done.returncode == 0, done.stderr
    assert "would build registry.example/rl:rl" in done.stderr
    assert done.stdout.count("image: registry.example/rl:rl\n") == 7 + 1 + 2


def test_a_live_run_is_only_replaced_by_force(run: Any, cluster: Cluster) -> None:
    words = ("train", "--forever", "--pace", 0.1, "--agents", 1, "--evaluators", 0)
    assert run(*words, script=EXAMPLE / "launch.py").returncode == 0
    before = cluster.describe_process("rl", "learner").pid
    refused = run(*words, script=EXAMPLE / "launch.py")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "is live" in refused.stderr
    assert cluster.describe_process("rl", "learner").pid == before
    assert run(*words, "--force", script=EXAMPLE / "launch.py").returncode == 0
    assert cluster.describe_process("rl", "learner").pid != before


# --- what is wrong is told ---


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ("agnets: 3", "the file has no setting 'agnets'; there are agents, "),
        ("agents: 0", "agents is a whole number of at least 1, not 0"),
        ("agents: true", "agents is a whole number of at least 1, not True"),
        ("evaluators: -1", "evaluators must be a whole number of at least 0, not -1"),
        ("group_size: two", "group_size is a whole number of at least 1, not 'two'"),
        ("run: {update: 3}", "run has no setting 'update'; there are updates, "),
        ("run: fast", "run is a mapping of settings, not 'fast'"),
        ("roles: {actor: {}}", "roles has no setting 'actor'; there are learner, "),
        (
            "roles: {agent: {cpu: 1}}",
            "roles.agent has no setting 'cpu'; there are image, request, ",
        ),
        (
            "pods: {agents: {}}",
            "pods has no setting 'agents'; there are nonagent, agent, evaluator",
        ),
        ("results: {nfs: server}", "nfs is SERVER:/PATH, not 'server'"),
        (
            "results: {nfs: 's:/x', host_path: /y}",
            "results come from nfs or host_path, not from both",
        ),
        ("build: {base: python:3}", "build is set but image, the repository"),
        ("[1]", "the file is a mapping of settings, not [1]"),
        ("agents: [", "not YAML: "),
        ("image: 5", "image is text, not 5"),
        ("page_port: 70000", "page_port: the port of 'page' is 70000; a port is a number from 1 to 65535"),
        ("run: {updates: ten}", "run.updates is a whole number of at least 1, not 'ten'"),
        ("run: {updates: 0}", "run.updates is a whole number of at least 1, not 0"),
        ("run: {pace: -1}", "run.pace is a number of at least 0, not -1"),
        ("run: {patience: 0}", "run.patience is a number of at least 0.1, not 0"),
        ("run: {target: .nan}", "run.target is a number, not nan"),
        ("run: {target: high}", "run.target is a number, not 'high'"),
        ("run: {forever: 1}", "run.forever is true or false, not 1"),
        ("run: {seed: 1.5}", "run.seed is a whole number, not 1.5"),
        ("results: {nfs: 5}", "results.nfs is text, not 5"),
        (
            "results: {nfs: 's:/x'}",
            "results.nfs is set but results.folder, where it is mounted, is not: ",
        ),
        ("results: {host_path: /y}", "results.host_path is set but results.folder"),
        ("nodes: {terraform: 5}", "nodes.terraform is text, not 5"),
        ("nodes: [x]", "nodes is a mapping of settings, not ['x']"),
        ("{image: rl, build: {options: --pull}}", "build.options is a list, not '--pull'"),
        ("{image: rl, build: {options: [1]}}", "build.options[0] is text, not 1"),
        ("pods: {agent: {tolerations: x}}", "pods.agent.tolerations is a list, not 'x'"),
        (
            "pods: {agent: {tolerations: [{key: a, operator: Exist}]}}",
            "pods.agent: operator is Equal, Exists, not ",
        ),
        ("pods: {agent: {tolerations: [{keys: a}]}}", "pods.agent: add_toleration knows no 'keys'"),
        (
            "pods: {agent: {node_selector: {a: b c}}}",
            "pods.agent: label 'a' has a value that is not valid",
        ),
        (
            "roles: {learner: {request: {cpu: -1}}}",
            "roles.learner: cpu is an amount such as 2, '500m' or '4Gi', not",
        ),
        (
            "roles: {learner: {request: {cpus: 1}}}",
            "roles.learner: resource_request knows no 'cpus'",
        ),
        (
            "roles: {learner: {limit: {gpu: half}}}",
            "roles.learner: gpu is a whole number, not 'half'",
        ),
        ("roles: {agent: {env: [a]}}", "roles.agent.env is a mapping of settings, not ['a']"),
        ("roles: {agent: {env: {a b: 1}}}", "roles.agent: variable name 'a b' is not valid"),
    ],
)
def test_a_wrong_configuration_is_told_in_one_line(
    example: Any, tmp_path: Path, content: str, said: str
) -> None:
    path = tmp_path / "mine.yml"
    path.write_text(content)
    with pytest.raises(SpecError) as told:
        example("configuration").load(path)
    assert str(told.value).startswith(f"{path}: {said}")
    assert "\n" not in str(told.value)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--updates", "-5"), "run.updates is a whole number of at least 1, not -5"),
        (("--updates", "0"), "run.updates is a whole number of at least 1, not 0"),
        (("--pace", "-1"), "run.pace is a number of at least 0, not -1.0"),
        (("--target", "nan"), "run.target is a number, not nan"),
        (("--agents", "0"), "agents is a whole number of at least 1, not 0"),
        (
            ("--nfs", "s:/x"),
            "results.nfs is set but results.folder, where it is mounted, is not: ",
        ),
        (
            ("--host-path", "/x"),
            "results.host_path is set but results.folder, where it is mounted, is not: ",
        ),
        (
            ("--nfs", "s:/x", "--results", "here"),
            "results: mount_path is an absolute path, not 'here'",
        ),
        (("--base", "foo"), "--base sets the base image of --build: add --build"),
        (("--build",), "--build pushes the image that it makes: say where to, --repository IMAGE"),
        (
            ("--build", "--base", "x"),
            "build is set but image, the repository to push to, is ",
        ),
        ((), "the programs need an image: add --repository IMAGE"),
    ],
)
def test_wrong_options_are_told_in_one_line_and_no_file_is_blamed(
    run: Any, words: Any, said: str
) -> None:
    done = run("train", "-b", "kube", "--dry-run", *words, script=EXAMPLE / "launch.py")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"launch.py: error: {said}")


def test_what_the_dispatcher_refuses_names_the_role(run: Any, tmp_path: Path) -> None:
    """The dispatcher is there on a cluster alone."""
    nodes = {"terraform": str(EXAMPLE / "cluster.tf.json")}
    for assign, said in (
        (
            {"assign_to": "node_pool", "node_pool_name": "agent"},
            "no node pool 'agent'; did you mean 'agents'?",
        ),
        (
            {"assign_to": "machine", "node_pool_name": "agents", "process": 3},
            "assign_to='machine' knows no 'process'",
        ),
        ({"node_pool_name": "agents"}, "assign_to is machine, gpu, resource, node_pool, "),
    ):
        file = tmp_path / "mine.yml"
        file.write_text(
            json.dumps({"image": "rl", "nodes": nodes, "roles": {"agent": {"assign": assign}}})
        )
        done = run(
            "train", "-b", "kube", "--dry-run", "--config", file, script=EXAMPLE / "launch.py"
        )
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
        assert done.stderr.startswith(f"launch.py: error: roles.agent.assign: {said}")


def test_a_file_that_builds_takes_its_image_from_the_command_line(
    example: Any, tmp_path: Path
) -> None:
    path = tmp_path / "mine.yml"
    path.write_text("build: {dockerfile: Other}")
    found = example("configuration").load(path, {"image": "rl"})
    assert (found.image, found.build.dockerfile) == ("rl", "Other")


def test_build_uses_the_dockerfile_of_the_configuration(example: Any, tmp_path: Path) -> None:
    path = tmp_path / "mine.yml"
    path.write_text("{image: rl, build: {dockerfile: Other}}")
    parse = example("launch").Rl().get_subparser("train").parse_args
    read = example("launch").read
    wanted = read(parse(["--config", str(path), "--build", "--base", "b", "--repository", "r"]))
    assert (wanted.image, wanted.build.dockerfile, wanted.build.base) == ("r", "Other", "b")
    assert read(parse(["--build", "--repository", "r"])).build.dockerfile == "Dockerfile"


def test_what_is_launched_says_how_to_visit_its_page(
    example: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the words by which another command finds the same experiment."""
    cluster = Cluster.new("kube", namespace="team-a", image="rl")
    monkeypatch.setattr(type(cluster), "launch", lambda *_, **__: None)
    line = example("launch").Rl("launch.py")
    assert line.run(["train", "-b", "kube", "--namespace", "team-a", "--image", "rl"]) == 0
    assert (
        capsys.readouterr().out
        == "launched rl; the page: launch.py visit -b kube --namespace team-a rl page\n"
    )


def test_a_configuration_that_is_not_there_is_told(run: Any) -> None:
    done = run("train", "--config", "nowhere.yml", script=EXAMPLE / "launch.py")
    assert (done.returncode, done.stderr) == (
        2,
        "launch.py: error: nowhere.yml: cannot be read: No such file or directory\n",
    )

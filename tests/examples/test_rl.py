"""Test the reinforcement learning example: runs on this machine and dry runs for Kubernetes."""

from __future__ import annotations

import importlib
import json
import os
import queue
import random
import re
import shutil
import subprocess
import sys
import threading
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from symphony import Cluster, Experiment, SpecError
from symphony.addons.zmq import ZmqPull, ZmqPush, ZmqServer
from tests.cli import in_process

EXAMPLE = Path(__file__).parents[2] / "examples" / "rl"
MODULES = ("configuration", "experiment", "launch", "roles")
# The mean return is -100 without training, and at best about -12.
GOOD = -30.0
# Some updates after a checkpoint can make a good policy worse for a moment.
TRAINED = -60.0


@pytest.fixture
def example(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    """Return a function that imports a module of the example. Unload the modules afterwards."""
    monkeypatch.syspath_prepend(str(EXAMPLE))
    monkeypatch.delenv("RL_CONFIG", raising=False)
    yield importlib.import_module
    for name in list(sys.modules):
        if name.partition(".")[0] in MODULES:
            del sys.modules[name]


@pytest.fixture
def new_experiment(example: Any) -> Any:
    """Return a function that builds the experiment of a configuration, with some overrides."""

    def build(
        file: str | Path = "config.yml", backend: str = "local", **overrides: Any
    ) -> Experiment:
        configuration = example("configuration").load(EXAMPLE / file, overrides)
        experiment: Experiment = example("launch").described(
            Cluster.new(backend), "rl", configuration
        )
        return experiment

    return build


@pytest.fixture
def python3(monkeypatch: pytest.MonkeyPatch) -> None:
    """Put this interpreter, which has symphony and pyzmq, on the PATH as python3."""
    monkeypatch.setenv("PATH", f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}")


@pytest.fixture
def cluster(tmp_path: Path, python3: None) -> Iterator[Cluster]:
    cluster = Cluster.new("local", state_dir=tmp_path / "state" / "local")
    yield cluster
    for name in cluster.list_experiments():
        cluster.stop(name, at_once=True)
        cluster.delete(name)


@pytest.fixture
def run(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Any:
    """Return a function that runs symphony, or the program of the example, for `cluster`."""
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path / "state"))
    monkeypatch.delenv("SYMPHONY_BACKEND", raising=False)

    def call(*arguments: object, script: Path | None = None) -> subprocess.CompletedProcess[str]:
        # The modules of the example are imported again by each call.
        directory = tmp_path if script is None else script.parent
        return in_process.run(
            [str(argument) for argument in arguments], cwd=directory, timeout=100, script=script
        )

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


def test_page_shows_the_progress(run: Any, cluster: Cluster, tmp_path: Path) -> None:
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
    data = wait_for_improvement(page)
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
    wait_for_log(cluster, "agent-2: begins")
    assert "agent-2: begins" in (tmp_path / "results" / "run.log").read_text()
    # The last line may be incomplete.
    metrics, _, _ = (tmp_path / "results" / "metrics.jsonl").read_text().rpartition("\n")
    series = {json.loads(line)["series"] for line in metrics.splitlines()}
    assert series == {"agents/return", "evaluation/return", "learner/error"}


def wait_for_improvement(page: str) -> dict[str, Any]:
    """Return the data of the page when it is complete and the mean return is good."""
    with urllib.request.urlopen(f"{page}/events", timeout=60) as events:
        for event in events:
            if not event.strip():
                continue
            with urllib.request.urlopen(f"{page}/data.json", timeout=30) as answer:
                data: dict[str, Any] = json.load(answer)
            curves = data["curves"]
            evaluation = curves.get("evaluation/return", [])
            agents = curves.get("agents/return", [])
            is_complete = len(agents) > 1 and "learner/error" in curves and data["path"]
            if is_complete and evaluation and evaluation[-1][1] > GOOD:
                return data
    pytest.fail("the page closed the connection")


def test_training_continues_from_a_checkpoint(run: Any, example: Any, tmp_path: Path) -> None:
    policy, maze = example("roles.policy"), example("roles.maze")
    distance = distances(maze)

    def value(steps: int) -> float:
        """Return the discounted return of a path, which updates change only a little."""
        return -(1 - policy.DISCOUNT**steps) / (1 - policy.DISCOUNT)

    values = [
        [value(distance[maze._NEXT[state][action]] + 1) for action in range(4)]
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
    # The evaluator can have measured a later version than the checkpoint first.
    assert result["first"] > TRAINED


def test_training_stops_at_the_target(new_experiment: Any, cluster: Cluster) -> None:
    overrides: dict[str, Any] = {
        "agents": 2,
        "evaluators": 1,
        "run": {"updates": 1_000_000, "target": -60.0},
    }
    cluster.launch(new_experiment(**overrides))
    assert cluster.wait("rl", timeout=60).exit_code == 0
    log = cluster.get_log("rl", "learner")
    assert returns(log)[1] > -80
    assert int(log.split()[-2]) < overrides["run"]["updates"]
    lines = cluster.get_log("rl", "logger")
    for name in ("agent-1", "evaluator-0", "learner", "replay"):
        assert f"{name}: " in lines, name


@pytest.mark.parametrize(
    "late",
    [
        ["servers"],
        pytest.param(["learner"], marks=pytest.mark.long),
        pytest.param(["agent-0", "evaluator-0"], marks=pytest.mark.long),
    ],
)
def test_processes_may_start_in_any_order(
    new_experiment: Any, cluster: Cluster, late: list[str]
) -> None:
    experiment = new_experiment(agents=1, evaluators=1, run={"updates": 20})
    experiment.new_process("others", cmd="sleep 1")
    for member in experiment.list_members():
        if member.name in late:
            member.starts_after("others", "succeeded")
    cluster.launch(experiment)
    status = cluster.wait("rl", timeout=60)
    assert status.displayed_state == "succeeded"
    assert {process.name for process in status if not process.stopped} == {"learner", "others"}
    assert returns(cluster.get_log("rl", "learner"))[0] == -100
    log = cluster.get_log("rl", "logger")
    assert "evaluator-0: version 0: " in log
    assert "agent-0: begins" in log


@pytest.mark.long  # docs/change-code.md shows it, and its commands are tested
def test_only_the_learner_is_restarted_with_changed_code(
    python3: None, run: Any, cluster: Cluster, tmp_path: Path
) -> None:
    code = shutil.copytree(EXAMPLE, tmp_path / "rl", ignore=shutil.ignore_patterns("__pycache__"))
    words = ("--forever", "--agents", 1, "--evaluators", 1, "--results", tmp_path / "results")
    assert run("train", *words, script=code / "launch.py").returncode == 0
    wait_for_evaluation(cluster, beyond=0)
    before = cluster.describe_experiment("rl")
    program = code / "roles" / "learner.py"
    program.write_text(program.read_text().replace("BATCH = 256", "BATCH = 512"))
    assert run("restart", "rl", "learner").stdout.startswith("restarted learner of rl\n")
    lines = iter(cluster.get_log("rl", "learner", follow=True))
    assert next(lines) == "version 0, batches of 256\n"
    continued = re.fullmatch(r"version (\d+), batches of 512\n", next(lines))
    assert continued is not None
    wait_for_evaluation(cluster, beyond=int(continued[1]))
    after = cluster.describe_experiment("rl")
    changed = {one.name for one, other in zip(before, after, strict=True) if one.pid != other.pid}
    assert changed == {"learner"}


def test_run_finishes_after_an_agent_was_killed(new_experiment: Any, cluster: Cluster) -> None:
    cluster.launch(new_experiment(agents=2, evaluators=1, run={"updates": 200, "pace": 0.005}))
    wait_for_log(cluster, "agent-1: begins")
    kill(cluster, "agent-1")
    assert cluster.wait("rl", timeout=60).exit_code == 0


def test_run_fails_with_a_broken_checkpoint(
    new_experiment: Any, cluster: Cluster, tmp_path: Path
) -> None:
    """The parameter server refuses it, which the learner reports."""
    broken = {"version": 0, "values": [[0.0] * 4]}
    (tmp_path / "checkpoint.json").write_text(json.dumps(broken))
    overrides = {"agents": 1, "evaluators": 0, "run": {"patience": 2}}
    cluster.launch(new_experiment(**overrides, results={"folder": str(tmp_path)}))
    assert cluster.wait("rl", timeout=60).exit_code == 1


def test_checkpoint_that_is_not_json_is_an_error(example: Any, tmp_path: Path) -> None:
    (tmp_path / "checkpoint.json").write_text("not JSON")
    with pytest.raises(ValueError, match="Expecting value"):
        example("roles.learner").load(tmp_path / "checkpoint.json")


def returns(log: str) -> tuple[float, float]:
    """Return the first and the last mean return from the log of the learner."""
    words = next(line for line in log.splitlines() if line.startswith("mean return ")).split()
    return float(words[2]), float(words[5])


def wait_for_log(cluster: Cluster, text: str) -> None:
    """Wait until the log of the logger contains ``text``."""
    for line in cluster.get_log("rl", "logger", follow=True):
        if text in line:
            return
    pytest.fail(f"the logger did not write {text!r}")


def kill(cluster: Cluster, process: str) -> None:
    pid = cluster.describe_process("rl", process).pid
    assert pid is not None
    os.kill(pid, 9)


def distances(maze: Any) -> dict[int, int]:
    """Return the number of steps from each state to the goal."""
    found, border = {maze.GOAL: 0}, [maze.GOAL]
    while border:
        neighbours = {
            state for state in range(maze.STATES) if set(maze._NEXT[state]) & set(border)
        } - found.keys()
        found.update(dict.fromkeys(neighbours, max(found.values()) + 1))
        border = list(neighbours)
    return found


# --- single roles ---


def test_page_drops_invalid_messages(example: Any, capfd: pytest.CaptureFixture[str]) -> None:
    good = [
        {"series": "evaluation/return", "step": 1, "value": -5},
        {"path": [0, 1], "name": "evaluator-0"},
    ]
    invalid = [
        None,
        {"series": "evaluation/return", "step": "2", "value": -5.0},
        {"series": "evaluation/return", "step": 2, "value": float("nan")},
        {"series": "evaluation/return", "step": 10**400, "value": -5.0},
        {"series": "evaluation/return", "step": 2},
        {"series": ["evaluation/return"], "step": 2, "value": -5.0},
        {"path": [0, 1000], "name": "evaluator-0"},
        {"path": [0, 1], "name": "\ud800"},
        {"path": 1, "name": "evaluator-0"},
    ]
    board = example("roles.board")
    shown = board.Board()
    with (
        ZmqPull(port=0, serializer="json", timeout=0.5) as pull,
        ZmqPush(address=pull.address) as push,
    ):
        for message in [*good[:1], *invalid, *good[1:]]:
            push.send(json.dumps(message).encode())
        push.send(b"\xff")
        check = example("roles.checks").point_or_path
        for message in example("roles.member").messages(pull, check):
            shown.take(message)
    assert shown.data()["changes"] == len(good)
    assert "mean return -5.0 at version 1" in board.page(shown.data())
    assert "evaluator-0: 1 steps" in board.page(shown.data())
    assert capfd.readouterr().out.count("a message was dropped") == len(invalid) + 1


def test_page_notices_closed_streams(
    example: Any, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    page, board = example("roles.page"), example("roles.board")
    monkeypatch.setattr(page, "COMMENT_SECONDS", 0.05)
    handlers: queue.Queue[threading.Thread] = queue.Queue()

    class Handler(page.Handler):  # type: ignore[misc, name-defined]
        def setup(self) -> None:
            handlers.put(threading.current_thread())
            super().setup()

    with page.Server(("127.0.0.1", 0), partial(Handler, board.Board())) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with urllib.request.urlopen(
            f"http://127.0.0.1:{server.server_port}/events", timeout=30
        ) as events:
            assert events.readline() == b":\n"
        handler = handlers.get(timeout=30)
        handler.join(30)
        assert not handler.is_alive()
        server.shutdown()
    assert "Traceback" not in capfd.readouterr().err


@pytest.mark.parametrize(
    ("check", "invalid"),
    [
        ("transitions", [[0, 0, -1.0, 1, False], [0, 0, -1.0, 1000, False]]),
        ("transitions", {"what": "batch"}),
        ("line", {"name": "agent-0", "text": 1}),
        ("score", {"version": 1, "value": "-5"}),
        ("replay_request", {"what": "batch", "size": 1.5}),
    ],
)
def test_invalid_messages_are_refused(example: Any, check: str, invalid: Any) -> None:
    checks = example("roles.checks")
    with pytest.raises(checks.InvalidMessage):
        getattr(checks, check)(invalid)


def test_servers_refuse_invalid_requests(example: Any) -> None:
    """A refused request changes nothing."""
    checks, policy = example("roles.checks"), example("roles.policy")
    sent: list[object] = []
    versions = SimpleNamespace(send=lambda *message: sent.append(message))
    store = example("roles.ps").Store(versions)
    curriculum = example("roles.curriculum").Curriculum(random.Random(1))
    put = {"what": "put", "version": 1, "values": policy.untrained()}
    requests = [
        (store, {**put, "version": "2"}),
        (store, {**put, "values": [[1.0]]}),
        (store, {"what": "get"}),
        (store, []),
        (curriculum, {"start": 10_000, "reached": True}),
        (curriculum, {"start": [1], "reached": True}),
        (curriculum, {"start": 1, "reached": "yes"}),
        (curriculum, None),
    ]
    assert store.answer(put) == {}
    for server, message in requests:
        with pytest.raises(checks.InvalidMessage):
            server.answer(message)
    assert store.answer({"what": "get", "but": -1}) == {"version": 1, "values": put["values"]}
    assert len(sent) == 1
    assert curriculum.episodes == 0
    start = curriculum.answer({})
    curriculum.answer({"start": start, "reached": True})
    assert curriculum.episodes == 1


def test_goal_is_reachable_from_every_state(example: Any) -> None:
    maze = example("roles.maze")
    assert len(distances(maze)) == maze.STATES
    assert distances(maze)[maze.START] == 20


def test_lost_requests_are_repeated(example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The wait for the first parameters has no limit."""
    monkeypatch.setattr(example("roles.member"), "REPEAT_SECONDS", 0.05)
    monkeypatch.setenv("SYMPH_VERSIONS_HOST", "127.0.0.1")
    monkeypatch.setenv("SYMPH_VERSIONS_PORT", "1")
    first = ZmqServer(port=0, serializer="json")
    monkeypatch.setenv("SYMPH_PARAMETERS_HOST", "127.0.0.1")
    monkeypatch.setenv("SYMPH_PARAMETERS_PORT", first.address.rpartition(":")[2])

    def lose_requests() -> ZmqServer:
        server = first
        for _ in range(4):
            server.recv()
            server.close()
            server = ZmqServer(address=first.address, serializer="json")
        return server

    with ThreadPoolExecutor(1) as pool:
        newest = pool.submit(example("roles.newest").Newest, 0.1)
        with lose_requests() as server:
            server.start_loop(lambda _: {"version": 7, "values": []})
            found = newest.result(timeout=30)
    assert found.version == 7
    for socket in (found._versions, found._server):
        socket.close()


def test_learner_and_agents_wait_for_each_other(example: Any) -> None:
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


def test_agents_wait_for_unreported_episodes(example: Any) -> None:
    """Otherwise all experience would come from the first parameters, and nothing is learned."""
    replay, maze, now = example("roles.replay"), example("roles.maze"), [0.0]
    memory = replay.Memory(random.Random(1), clock=lambda: now[0])
    given = sum(memory.ticket() for _ in range(500))
    assert given == replay.LEAST // maze.LIMIT
    for _ in range(given - 1):
        memory.add([(0, 0, -1.0, 0, False)] * 40)
    assert (
        sum(memory.ticket() for _ in range(500)) == (replay.LEAST - 40 * (given - 1)) // maze.LIMIT
    )
    # After this time, the remaining episodes count as lost.
    now[0] = replay.LOST + 1
    assert memory.ticket()


def test_learner_does_not_wait_for_an_agent_killed_at_the_start(
    example: Any,
) -> None:
    replay, maze = example("roles.replay"), example("roles.maze")
    memory = replay.Memory(random.Random(1), clock=lambda: 0.0)
    given = sum(memory.ticket() for _ in range(500))
    for _ in range(given - 1):
        memory.add([(0, 0, -1.0, 0, False)] * maze.LIMIT)
    assert not memory.ticket()
    assert memory.batch(256)


# --- on a cluster ---


def test_services_and_connections(new_experiment: Any) -> None:
    experiment = new_experiment()
    assert services(experiment) == {
        "scores", "experience", "replay", "parameters", "versions", "starts", "log", "metrics",
        "screen", "page",
    }  # fmt: skip
    assert connections(experiment) == {
        "learner": 4, "replay": 1, "ps": 0, "curriculum": 1, "logger": 0, "recorder": 1, "page": 0,
        **{f"agent-{n}": 8 for n in range(8)}, **{f"evaluator-{n}": 6 for n in range(2)},
    }  # fmt: skip
    assert [group.name for group in experiment.list_process_groups()] == ["servers"]
    assert experiment.ends_with == ["learner"]


def test_declared_connections_are_used(example: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The table of connections in the experiment equals the services that the roles use."""
    modules = {"newest": {"parameters", "versions"}}
    methods = {".log(": "log", ".measure(": "metrics"}
    for role, declared in example("experiment").CONNECTS.items():
        text = (EXAMPLE / "roles" / f"{role}.py").read_text()
        used = {name for name in declared if f'"{name}"' in text}
        used |= {service for call, service in methods.items() if call in text}
        for module, services in modules.items():
            if role != "learner" and f"roles.{module} import" in text:
                used |= services
        assert used == set(declared), role


@pytest.fixture
def render(run: Any) -> Any:
    """Return a function that returns the objects of a dry run on Kubernetes, by kind and name."""

    def render(*options: object) -> dict[tuple[str, str], dict[str, Any]]:
        done = run("train", "-b", "kube", "--dry-run", *options, script=EXAMPLE / "launch.py")
        assert done.returncode == 0, done.stderr
        objects = [item for item in yaml.safe_load_all(done.stdout) if item]
        return {(item["kind"], item["metadata"]["name"]): item for item in objects}

    return render


def resources_of(container: dict[str, Any]) -> dict[str, Any]:
    """Return the requests of a container, and its limits with the prefix ``limit``."""
    resources = container["resources"]
    limits = {f"limit {name}": value for name, value in resources.get("limits", {}).items()}
    return {**resources.get("requests", {}), **limits}


def own_volumes(pod: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the volumes of a Pod except those of symphony, which every Pod has."""
    return [volume for volume in pod["volumes"] if not volume["name"].startswith("symphony-")]


def own_mount_paths(container: dict[str, Any]) -> list[str]:
    paths = [mount["mountPath"] for mount in container["volumeMounts"]]
    return [path for path in paths if not path.startswith("/symphony/")]


def test_dispatcher_assigns_nodes(render: Any) -> None:
    objects = render("--config", EXAMPLE / "gke.yml", "--agents", 9)
    pods = {name: item["spec"] for (kind, name), item in objects.items() if kind == "Pod"}
    agents, evaluators = ["agents-0", "agents-1", "agents-2"], ["evaluator-0", "evaluator-1"]
    assert set(pods) == {"learner", "servers", *agents, *evaluators}
    assert sum(kind == "Service" for kind, _ in objects) == 10

    servers = pods["servers"]
    for pod in (pods["learner"], servers):
        assert [volume["nfs"] for volume in own_volumes(pod)] == [
            {"server": "10.0.0.2", "path": "/exports/rl"}
        ]
        assert pod["nodeSelector"] == {"name": "learner"}
        assert pod["tolerations"] == [
            {"key": "workload", "operator": "Equal", "value": "learner", "effect": "NoExecute"},
            {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
        ]
    (learner,) = pods["learner"]["containers"]
    assert resources_of(learner)["limit nvidia.com/gpu"] == "1"
    resources = {container["name"]: resources_of(container) for container in servers["containers"]}
    assert not any("limit nvidia.com/gpu" in value for value in resources.values())
    assert resources["replay"] == {"cpu": "2", "memory": "8192Mi"}
    assert resources["page"] == {"cpu": "100m", "memory": "256Mi"}

    for name, members in (("agents-0", 4), ("agents-1", 4), ("agents-2", 1)):
        assert pods[name]["nodeSelector"] == {"name": "agents"}
        assert pods[name]["tolerations"] == [
            {"key": "workload", "operator": "Equal", "value": "agents", "effect": "NoSchedule"}
        ]
        assert len(pods[name]["containers"]) == members
        for container in pods[name]["containers"]:
            cpu = int(resources_of(container)["cpu"].removesuffix("m"))
            assert 900 < cpu < 1000  # An eighth of the eight cores, without the reserved part.

    for name in ("evaluator-0", "evaluator-1"):
        # The smallest pool with room for one core. It has no taint.
        assert pods[name]["nodeSelector"] == {"name": "system"}
        assert "tolerations" not in pods[name]
        assert resources_of(pods[name]["containers"][0]) == {"cpu": "1", "memory": "2048Mi"}


def test_volume_of_the_results(render: Any) -> None:
    def volume(*options: object) -> dict[str, Any]:
        objects = render("--agents", 1, *options)
        learner, servers = (objects["Pod", name]["spec"] for name in ("learner", "servers"))
        (found,) = own_volumes(servers)
        for container in (*servers["containers"], *learner["containers"]):
            assert own_mount_paths(container) == ["/results"]
            assert {"name": "RL_RESULTS", "value": "/results"} in container["env"]
        return {key: value for key, value in found.items() if key != "name"}

    image = ("--repository", "r", "--results", "/results")
    nfs = {"server": "10.0.0.2", "path": "/exports/rl"}
    assert volume(*image, "--nfs", "10.0.0.2:/exports/rl") == {"nfs": nfs}
    node = {"path": "/data/rl", "type": "DirectoryOrCreate"}
    assert volume(*image, "--host-path", "/data/rl") == {"hostPath": node}


def test_code_is_mounted(render: Any, tmp_path: Path) -> None:
    (tmp_path / "mine.yml").write_text("{agents: 2, image: r, code: {host_path: /home/me/rl}}")
    objects = render("--config", tmp_path / "mine.yml", "--group-size", 2)
    pods = [item["spec"] for (kind, _), item in objects.items() if kind == "Pod"]
    assert len(pods) == 5
    for pod in pods:
        assert [volume["hostPath"]["path"] for volume in own_volumes(pod)] == ["/home/me/rl"]
        for container in pod["containers"]:
            assert own_mount_paths(container) == ["/code"]
            assert container["workingDir"] == "/code"


def test_placement_from_the_configuration(render: Any, tmp_path: Path) -> None:
    pods = {
        "agent": {
            "node_selector": {"disk": "ssd"},
            "tolerations": [{"key": "spot", "operator": "Exists"}],
        },
        "servers": {"node_selector": {"disk": "nvme"}},
    }
    roles = {
        "learner": {"limit": {"gpu": 2}, "image": "learner:1"},
        "agent": {"request": {"cpu": 2}},
    }
    (tmp_path / "mine.yml").write_text(
        json.dumps({"agents": 2, "image": "all:1", "pods": pods, "roles": roles})
    )
    (grouped,) = pods_of_agents(render("--config", tmp_path / "mine.yml", "--group-size", 2))
    objects = render("--config", tmp_path / "mine.yml")
    assert [pod["nodeSelector"] for pod in pods_of_agents(objects)] == [{"disk": "ssd"}] * 2
    agent, servers = objects["Pod", "agent-1"]["spec"], objects["Pod", "servers"]["spec"]
    assert grouped["nodeSelector"] == {"disk": "ssd"}
    assert agent["tolerations"] == grouped["tolerations"] == [{"key": "spot", "operator": "Exists"}]
    assert resources_of(agent["containers"][0]) == {"cpu": "2"}
    assert servers["nodeSelector"] == {"disk": "nvme"}
    assert [container["image"] for container in servers["containers"]] == ["all:1"] * 6
    (learner,) = objects["Pod", "learner"]["spec"]["containers"]
    assert learner["image"] == "learner:1"
    assert resources_of(learner) == {"limit nvidia.com/gpu": "2"}


def pods_of_agents(objects: dict[tuple[str, str], dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        item["spec"]
        for (kind, name), item in objects.items()
        if kind == "Pod" and name.startswith("agent")
    ]


def test_dry_run_reports_the_build(run: Any) -> None:
    words = ("--repository", "registry.example/rl", "--build", "--agents", 1, "--dry-run")
    done = run("train", "-b", "kube", *words, script=EXAMPLE / "launch.py")
    assert done.returncode == 0, done.stderr
    assert "would build registry.example/rl:rl" in done.stderr
    assert done.stdout.count("image: registry.example/rl:rl\n") == 7 + 1 + 2


@pytest.mark.long  # the scenarios of the command line test it with smaller experiments
def test_running_experiment_is_replaced_only_with_force(run: Any, cluster: Cluster) -> None:
    words = ("train", "--forever", "--pace", 0.1, "--agents", 1, "--evaluators", 0)
    assert run(*words, script=EXAMPLE / "launch.py").returncode == 0
    before = cluster.describe_process("rl", "learner").pid
    refused = run(*words, script=EXAMPLE / "launch.py")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "is running" in refused.stderr
    assert cluster.describe_process("rl", "learner").pid == before
    assert run(*words, "--force", script=EXAMPLE / "launch.py").returncode == 0
    assert cluster.describe_process("rl", "learner").pid != before


# --- invalid configurations ---


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("agnets: 3", "the file has no setting 'agnets'; there are agents, "),
        ("agents: 0", "agents must be a whole number of at least 1, not 0"),
        ("evaluators: -1", "evaluators must be a whole number of at least 0, not -1"),
        ("group_size: two", "group_size must be a whole number of at least 1, not 'two'"),
        ("run: {update: 3}", "run has no setting 'update'; there are updates, "),
        ("run: fast", "run must be a mapping of settings, not 'fast'"),
        ("roles: {actor: {}}", "roles has no setting 'actor'; there are learner, "),
        ("roles: {agent: {cpu: 1}}", "roles.agent has no setting 'cpu'; there are image, "),
        ("pods: {agents: {}}", "pods has no setting 'agents'; there are learner, servers, "),
        ("results: {nfs: server}", "nfs must be SERVER:/PATH, not 'server'"),
        ("results: {nfs: 's:/x', host_path: /y}", "results come from nfs or host_path, not from"),
        ("code: {}", "code comes from nfs or host_path: set one of them"),
        ("build: {base: python:3}", "build is set but image, the repository"),
        ("[1]", "the file must be a mapping of settings, not [1]"),
        ("agents: [", "not YAML: "),
        ("image: 5", "image must be text, not 5"),
        (
            "page_port: 70000",
            "page_port: the port of 'page' must be a number from 1 to 65535, not 70000",
        ),
        ("run: {updates: 0}", "run.updates must be a whole number of at least 1, not 0"),
        ("run: {pace: -1}", "run.pace must be a number of at least 0, not -1"),
        ("run: {patience: 0}", "run.patience must be a number of at least 0.1, not 0"),
        ("run: {target: .nan}", "run.target must be a number, not nan"),
        ("run: {target: high}", "run.target must be a number, not 'high'"),
        ("run: {forever: 1}", "run.forever must be true or false, not 1"),
        ("run: {seed: 1.5}", "run.seed must be a whole number, not 1.5"),
        ("results: {nfs: 5}", "results.nfs must be text, not 5"),
        ("results: {nfs: 's:/x'}", "results.nfs is set, but results.folder, its mount path"),
        ("results: {host_path: /y}", "results.host_path is set, but results.folder"),
        ("nodes: {terraform: 5}", "nodes.terraform must be text, not 5"),
        ("nodes: [x]", "nodes must be a mapping of settings, not ['x']"),
        ("{image: rl, build: {options: --pull}}", "build.options must be a list, not '--pull'"),
        ("{image: rl, build: {options: [1]}}", "build.options[0] must be text, not 1"),
        ("pods: {agent: {tolerations: x}}", "pods.agent.tolerations must be a list, not 'x'"),
        (
            "pods: {agent: {tolerations: [{key: a, operator: Exist}]}}",
            "pods.agent: operator must be one of Equal, Exists, not 'Exist'; did you mean",
        ),
        (
            "pods: {agent: {tolerations: [{keys: a}]}}",
            "pods.agent: tolerations has the unknown key 'keys'; did you mean 'key'",
        ),
        (
            "pods: {agent: {node_selector: {a: b c}}}",
            "pods.agent: label 'a' has the value 'b c', which is not valid",
        ),
        (
            "roles: {learner: {request: {cpu: -1}}}",
            "roles.learner: cpu must be an amount such as 2, '500m' or '4Gi', not",
        ),
        (
            "roles: {learner: {request: {cpus: 1}}}",
            "roles.learner: resource_request has the unknown key 'cpus'; did you mean 'cpu'",
        ),
        (
            "roles: {learner: {limit: {gpu: half}}}",
            "roles.learner: gpu must be a whole number, not 'half'",
        ),
        ("roles: {agent: {env: [a]}}", "roles.agent.env must be a mapping of settings, not ['a']"),
        ("roles: {agent: {env: {a b: 1}}}", "roles.agent: variable name 'a b' is not valid"),
    ],
)
def test_invalid_configuration_is_rejected(
    example: Any, tmp_path: Path, content: str, message: str
) -> None:
    path = tmp_path / "mine.yml"
    path.write_text(content)
    with pytest.raises(SpecError) as error:
        example("configuration").load(path)
    assert str(error.value).startswith(f"{path}: {message}")
    assert "\n" not in str(error.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--updates", "0"), "run.updates must be a whole number of at least 1, not 0"),
        (("--nfs", "s:/x"), "results.nfs is set, but results.folder, its mount path, is not"),
        (
            ("--nfs", "s:/x", "--results", "here"),
            "results: mount_path must be an absolute path, not 'here'",
        ),
        (("--base", "foo"), "--base sets the base image of --build: add --build"),
        (
            ("--build",),
            "--build pushes the image, so it needs a repository: add --repository IMAGE",
        ),
        (
            ("--build", "--base", "x"),
            "build is set but image, the repository to push to, is ",
        ),
        ((), "the programs need an image: add --repository IMAGE"),
    ],
)
def test_invalid_options_are_rejected(run: Any, options: Any, message: str) -> None:
    """The message does not name the configuration file."""
    done = run("train", "-b", "kube", "--dry-run", *options, script=EXAMPLE / "launch.py")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"launch.py: error: {message}")


@pytest.mark.parametrize(
    ("assign", "message"),
    [
        (
            {"assign_to": "node_pool", "node_pool_name": "agent"},
            "no node pool 'agent'; did you mean 'agents'?",
        ),
        (
            {"assign_to": "machine", "node_pool_name": "agents", "process": 3},
            "assign_to='machine' has the unknown key 'process'; did you mean",
        ),
        (
            {"node_pool_name": "agents"},
            "assign_to must be one of machine, gpu, resource, node_pool, not None",
        ),
    ],
)
def test_invalid_assignment_is_rejected(
    run: Any, tmp_path: Path, assign: dict[str, Any], message: str
) -> None:
    """The dispatcher is used only on a cluster, so loading the file does not report the error."""
    nodes = {"terraform": str(EXAMPLE / "cluster.tf.json")}
    content = {"image": "rl", "nodes": nodes, "roles": {"agent": {"assign": assign}}}
    path = tmp_path / "mine.yml"
    path.write_text(json.dumps(content))
    options = ("-b", "kube", "--dry-run", "--config", path)
    done = run("train", *options, script=EXAMPLE / "launch.py")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert done.stderr.startswith(f"launch.py: error: roles.agent.assign: {message}")


def test_image_of_a_build_can_come_from_the_command_line(example: Any, tmp_path: Path) -> None:
    path = tmp_path / "mine.yml"
    path.write_text("build: {dockerfile: Other}")
    configuration = example("configuration").load(path, {"image": "rl"})
    assert (configuration.image, configuration.build.dockerfile) == ("rl", "Other")


def test_build_uses_the_dockerfile_of_the_configuration(example: Any, tmp_path: Path) -> None:
    path = tmp_path / "mine.yml"
    path.write_text("{image: rl, build: {dockerfile: Other}}")
    parse = example("launch").Rl().get_subparser("train").parse_args
    read = example("launch").read
    options = ["--config", str(path), "--build", "--base", "b", "--repository", "r"]
    configuration = read(parse(options))
    build = configuration.build
    assert (configuration.image, build.dockerfile, build.base) == ("r", "Other", "b")
    assert read(parse(["--build", "--repository", "r"])).build.dockerfile == "Dockerfile"


def test_launch_prints_the_command_to_visit_the_page(
    example: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command has the options that find the same experiment."""
    cluster = Cluster.new("kube", namespace="team-a", image="rl")
    monkeypatch.setattr(type(cluster), "launch", lambda *_, **__: None)
    line = example("launch").Rl("launch.py")
    assert line.run(["train", "-b", "kube", "--namespace", "team-a", "--image", "rl"]) == 0
    assert (
        capsys.readouterr().out
        == "launched rl; the page: launch.py visit -b kube --namespace team-a rl page\n"
    )


def test_missing_configuration_is_reported(run: Any) -> None:
    done = run("train", "--config", "nowhere.yml", script=EXAMPLE / "launch.py")
    assert (done.returncode, done.stderr) == (
        2,
        "launch.py: error: nowhere.yml: cannot be read: No such file or directory\n",
    )


def wait_for_evaluation(cluster: Cluster, *, beyond: int) -> None:
    """Wait until an evaluator has evaluated a version later than ``beyond``.

    A slow evaluator skips versions, because it always evaluates the newest one.
    """
    for line in cluster.get_log("rl", "logger", follow=True):
        evaluated = re.search(r"evaluator-0: version (\d+): ", line)
        if evaluated is not None and int(evaluated[1]) > beyond:
            return
    pytest.fail(f"no version later than {beyond} was evaluated")

"""A test class that specifies the behaviour of every backend.

Each backend's tests inherit from this class and use real processes instead of mocks.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from symphony.archive.archive import Run
from symphony.cluster import Cluster
from symphony.cluster.plugins import find_backend
from symphony.commandline import SymphonyParser
from symphony.commandline.commands.table import TABLE
from symphony.errors import AlreadyExists, BackendError, NotFound, SpecError
from symphony.events import EventKind, ExperimentEvent
from symphony.log_blocks import LogBlock, to_lines
from symphony.model import Experiment, Process, ProcessGroup
from symphony.plan.topology import topology
from symphony.status import ExperimentStatus, LogLine, ProcessStatus, ReasonCode, State
from symphony.testing import programs
from symphony.views.controls import UserAction

# Arguments that a shell, an API or a terminal might alter.
SPECIAL_TEXTS = (
    "",
    " ",
    "two words",
    "'single' \"double\" `back`",
    "$HOME ${HOME} $(echo no) $(X) $$(X) $é",
    "a\nb\n",
    "tab\tbell\a",
    "back\\slash \\n",
    "-leading --dash=1",
    "glob * ? [a] {a,b} ~ ! # % ^ & | ; < >",
    "naïve café 日本語 🎻",
)

# The names of all experiments of the contract begin with this text.
PREFIX = "contract"


def control(cluster: Cluster, action: str, *processes: str, value: str = "") -> str:
    """Carry out a control as the views of an experiment do, and return what was done."""
    selected = processes or None
    request = UserAction(action=action, experiment="contract", processes=selected, value=value)
    return TABLE.controls[action].perform(cluster, request)


class _CommandLine(SymphonyParser):
    """The command line for the experiments of a cluster."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__()
        self._cluster = cluster

    def create_cluster(self) -> Cluster:
        """Return the cluster."""
        return self._cluster


def _execution(process: ProcessStatus) -> tuple[object, ...]:
    """Return what differs if a process was started again or stopped."""
    return process.name, process.state, process.pid, process.started, process.restarts


def list_own_experiments(cluster: Cluster) -> list[str]:
    """Return the names of the experiments of a cluster that belong to the contract.

    The cluster can also run experiments of other users, which the tests must not delete or count.
    """
    return [name for name in cluster.list_experiments() if name.startswith(PREFIX)]


class _ConditionMet(Exception):
    """Raised to leave `Cluster.wait` when the condition passed to `until` is met."""


def until(
    cluster: Cluster,
    experiment: str,
    holds: Callable[[ExperimentStatus], bool],
    *,
    timeout: float = 60,
) -> ExperimentStatus:
    """Wait until ``holds`` returns true for an experiment's status, and return that status.

    ``timeout`` is in seconds. The test fails if the timeout expires, or if all processes exit
    first.
    """
    statuses: list[ExperimentStatus] = []

    def check(status: ExperimentStatus) -> None:
        statuses.append(status)
        if holds(status):
            raise _ConditionMet

    try:
        cluster.wait(experiment, timeout=timeout, on_change=check)
    except _ConditionMet:
        return statuses[-1]
    except TimeoutError:
        pytest.fail(f"{experiment} did not reach the expected status: {statuses[-1]}")
    pytest.fail(f"{experiment} finished without the expected status: {statuses[-1]}")


def all_running(status: ExperimentStatus) -> bool:
    """Return whether every process is running."""
    return all(process.state is State.RUNNING for process in status)


class BackendContract:
    """The contract tests. Define a subclass ``TestContract`` that sets ``backend``.

    Override the fixture ``options`` to pass options to `Cluster.new`. ``image`` is the container
    image of every process, and ``python`` is the command that runs Python 3 in it. ``timeout`` is
    the maximum duration of each step in seconds.
    """

    backend: ClassVar[str]
    image: ClassVar[str | None] = None
    python: ClassVar[str] = sys.executable
    timeout: ClassVar[float] = 60.0

    # --- to be overridden by backend tests ---

    @pytest.fixture
    def options(self) -> dict[str, Any]:
        """Return the keyword arguments for `Cluster.new`.

        Their values must be serializable as JSON, because one test passes them to another process.
        """
        return {}

    @contextlib.contextmanager
    def foreign(self, cluster: Cluster) -> Iterator[Callable[[], bool]]:
        """Create an object that looks like an experiment but belongs to another program.

        Yield a function that returns whether the object is unchanged.
        """
        del cluster
        yield lambda: True

    @pytest.fixture
    def kill_supervisor(self) -> Callable[[str], None]:
        """Return a function that kills the supervisor of an experiment, and its guardian if it has
        one, and waits for its end.

        The tests that use this fixture are skipped if it is not overridden.
        """
        pytest.skip(f"the tests of {self.backend} cannot kill a supervisor")

    # --- fixtures ---

    @pytest.fixture
    def cluster(self, options: dict[str, Any]) -> Iterator[Cluster]:
        """Yield the cluster, and delete the experiments of the contract after the test.

        The cluster may also run experiments of other users. They are not touched.
        """
        cluster = Cluster.new(self.backend, **options)
        yield cluster
        for name in list_own_experiments(cluster):
            cluster.delete(name)

    @pytest.fixture
    def experiment(self, cluster: Cluster) -> Experiment:
        """Return an empty experiment."""
        return cluster.new_experiment("contract")

    def add(
        self, to: Experiment | ProcessGroup, name: str, program: str, *args: str, **options: Any
    ) -> Process:
        """Add a process that runs ``program`` with Python."""
        options = {"container_image": self.image, **options}
        return to.new_process(
            name, command=[self.python, "-u", "-c", program], args=list(args), **options
        )

    def can(self, capability: str) -> None:
        """Skip the test if the backend does not have a capability."""
        if not self.has(capability):
            pytest.skip(f"the {self.backend} backend does not have the capability {capability!r}")

    def has(self, capability: str) -> bool:
        """Return whether the backend has a capability."""
        return capability in find_backend(self.backend).capabilities

    def finish(self, cluster: Cluster, experiment: Experiment) -> ExperimentStatus:
        """Launch an experiment, wait until it has finished, and return its status."""
        cluster.launch(experiment)
        return cluster.wait(experiment.name, timeout=self.timeout)

    # --- dry run ---

    def test_a_dry_run_prints_the_manifest_and_changes_nothing(
        self, cluster: Cluster, experiment: Experiment, capsys: pytest.CaptureFixture[str]
    ) -> None:
        self.add(experiment, "worker", programs.FOREVER).binds("echo").set_env("COLOUR", "teal")
        before = experiment.dump_dict()
        manifest = cluster.launch(experiment, dry_run=True)
        shown = capsys.readouterr().out
        assert shown == str(manifest)
        for part in ("contract", "worker", "SYMPH_ECHO_PORT", "COLOUR", "teal"):
            assert part in shown
        assert list_own_experiments(cluster) == []
        assert experiment.dump_dict() == before
        json.dumps(manifest.to_dict())

    def test_no_command_changes_a_running_experiment_in_a_dry_run(
        self, cluster: Cluster, experiment: Experiment, tmp_path: Path
    ) -> None:
        self.add(experiment, "worker", programs.FOREVER).set_env("RATE", "1")
        cluster.launch(experiment)
        before = until(cluster, "contract", all_running, timeout=self.timeout)
        experiment.set_env("ADDED", "yes")
        file = tmp_path / "contract.json"
        file.write_text(json.dumps(experiment.dump_dict()))
        commands = [["launch", "--force", str(file)]]
        if self.has("up"):
            commands.append(["up", str(file)])
        for verb in ("stop", "restart", "delete"):
            commands.append([verb, "contract"])
        for command in commands:
            assert _CommandLine(cluster).run([*command, "--dry-run"]) == 0, command
            after = cluster.describe_experiment("contract")
            assert list(map(_execution, after)) == list(map(_execution, before)), command

    # --- launching ---

    def test_a_launched_experiment_is_listed_described_and_found_by_its_names(
        self, cluster: Cluster, experiment: Experiment
    ) -> None:
        self.add(experiment, "alone", programs.FOREVER)
        group = experiment.new_process_group("team")
        self.add(group, "member", programs.FOREVER)
        cluster.launch(experiment)
        assert list_own_experiments(cluster) == ["contract"]
        status = until(cluster, "contract", all_running, timeout=self.timeout)
        assert [process.path for process in status] == ["alone", "team/member"]
        assert [process.path for process in cluster.describe_process_group("contract", "team")] == [
            "team/member"
        ]
        assert cluster.describe_process("contract", "member", "team").state is State.RUNNING
        assert cluster.find_process("contract", "team/member").name == "member"
        with pytest.raises(NotFound, match="did you mean 'contract'"):
            cluster.describe_experiment("contrakt")
        with pytest.raises(NotFound, match="did you mean 'member'"):
            cluster.describe_process("contract", "membre")
        with pytest.raises(NotFound, match="in group 'team'"):
            cluster.find_process("contract", "crew/member")
        with pytest.raises(NotFound, match="crew"):
            cluster.describe_process_group("contract", "crew")

    def test_launches_that_are_refused_leave_the_running_experiment_unchanged(
        self, cluster: Cluster, experiment: Experiment, capsys: pytest.CaptureFixture[str]
    ) -> None:
        # A fixed port that the running experiment uses must not prevent a launch that replaces the
        # experiment.
        (port,) = _free_ports(1)
        self.add(experiment, "worker", programs.FOREVER).binds({"echo": port}).exposes("echo")
        cluster.launch(experiment)
        before = until(cluster, "contract", all_running, timeout=self.timeout)
        with pytest.raises(AlreadyExists, match="contract"):
            cluster.launch(experiment)
        with pytest.raises(AlreadyExists, match="'contract' is running"):
            cluster.launch(experiment, dry_run=True if cluster.dry_run_checks_name else "server")
        assert capsys.readouterr().out == ""
        for manifest in (
            cluster.manifest(experiment),
            cluster.launch(experiment, force=True, dry_run=True),
        ):
            assert "SYMPH_ECHO_PORT" in str(manifest)
        wrong = cluster.new_experiment("contract")
        self.add(wrong, "worker", programs.FOREVER).connects("nowhere")
        with pytest.raises(SpecError, match="nowhere"):
            cluster.launch(wrong, force=True)
        assert cluster.describe_experiment("contract") == before

    def test_force_replaces_a_running_experiment(
        self, cluster: Cluster, experiment: Experiment
    ) -> None:
        self.add(experiment, "old", programs.FOREVER)
        cluster.launch(experiment)
        until(cluster, "contract", all_running, timeout=self.timeout)
        other = cluster.new_experiment("contract")
        self.add(other, "new", programs.FOREVER)
        with cluster.watch_experiment("contract") as watch:
            assert [process.name for process in watch().statuses[0]] == ["old"]
            cluster.launch(other, force=True)
            status = until(cluster, "contract", all_running, timeout=self.timeout)
            assert [process.name for process in status] == ["new"]
            # A watch shows the new run, or ends with the old one.
            with contextlib.suppress(NotFound):
                while [process.name for process in watch().statuses[0]] != ["new"]:
                    time.sleep(0.05)

    def test_several_experiments_are_launched_and_deleted(self, cluster: Cluster) -> None:
        names = [f"{PREFIX}-first", f"{PREFIX}-second"]
        experiments = [cluster.new_experiment(name) for name in names]
        for experiment in experiments:
            self.add(experiment, "worker", programs.FOREVER).binds("echo")
        cluster.launch_batch(experiments)
        assert list_own_experiments(cluster) == names
        for name in names:
            until(cluster, name, all_running, timeout=self.timeout)
        cluster.delete_batch(names)
        assert list_own_experiments(cluster) == []

    # --- topology ---

    def test_the_topology_of_a_running_experiment_is_that_of_its_description(
        self, cluster: Cluster, experiment: Experiment
    ) -> None:
        self.can("topology")
        web, board = _free_ports(2)
        server = self.add(experiment, "server", programs.FOREVER)
        server.binds(["db", "web"]).exposes({"web": web, "board": board}).connects("inner")
        team = (
            experiment.new_process_group("team")
            .connects("db")
            .binds("team")
            .starts_after("server", "started")
        )
        self.add(team, "one", programs.FOREVER).binds("inner").connects("web")
        self.add(team, "two", programs.FOREVER)
        described = topology(experiment)
        cluster.launch(experiment)
        until(cluster, "contract", all_running, timeout=self.timeout)
        found = cluster.describe_topology("contract")
        ports = {service.name: service.port for service in found.services}
        assert None not in ports.values()
        assert (ports["web"], ports["board"]) == (web, board)
        services = tuple(
            replace(service, port=ports[service.name]) for service in described.services
        )
        assert replace(found, links=()) == replace(described, services=services, links=())
        assert set(found.links) == set(described.links)

    # --- resource use ---

    def test_the_resource_use_of_running_processes_is_reported_until_the_end(
        self, cluster: Cluster, experiment: Experiment
    ) -> None:
        self.can("usage")
        self.add(experiment, "worker", programs.FOREVER)
        self.add(experiment, "other", programs.FOREVER)
        cluster.launch(experiment)
        until(cluster, "contract", all_running, timeout=self.timeout)
        samples = cluster.iter_usage("contract", ["worker"], interval=0.1)
        worker = next(samples).processes[0]
        assert worker.process == "worker"
        assert worker.cpu is not None
        assert worker.memory is not None
        assert worker.memory > 1 << 20
        cluster.delete("contract")
        # The iteration ends.
        assert all(len(sample.processes) <= 1 for sample in samples)

    # --- addresses and environment ---

    def test_every_process_has_the_address_of_every_service(
        self, cluster: Cluster, experiment: Experiment, tmp_path: Path
    ) -> None:
        (web,) = _free_ports(1)
        template = tmp_path / "app.conf.in"
        template.write_text("connect ${c.addr}; # as $host and $${c.addr}\nnaïve\n")
        one = self.add(experiment, "one", programs.REPORT, "--c=${c.addr}", "$${c.addr}")
        one.binds(["a-b", "c"]).exposes({"web": web}).set_env("AT", "${a-b.bind_host}:${a-b.port}")
        one.configs({"app.conf": template})
        group = experiment.new_process_group("team")
        self.add(group, "two", programs.REPORT).connects("c")
        self.finish(cluster, experiment)
        reports = [self.report(cluster, name) for name in ("one", "two")]
        environments = [report["env"] for report in reports]
        first, second = environments
        assert reports[0]["argv"] == [f"--c={first['SYMPH_C_ADDR']}", "${c.addr}"]
        assert first["AT"] == f"{first['SYMPH_A_B_BIND_HOST']}:{first['SYMPH_A_B_PORT']}"
        text = f"connect {first['SYMPH_C_ADDR']}; # as $host and ${{c.addr}}\nnaïve\n"
        assert [report["configs"] for report in reports] == [{"app.conf": text}, {}]
        assert [report["scratch"] for report in reports] == [[], []]
        for name in ("A_B", "C", "WEB"):
            for suffix in ("HOST", "PORT", "ADDR", "BIND_HOST"):
                variable = f"SYMPH_{name}_{suffix}"
                assert first[variable] == second[variable]
            address = f"{first[f'SYMPH_{name}_HOST']}:{first[f'SYMPH_{name}_PORT']}"
            assert first[f"SYMPH_{name}_ADDR"] == address
        assert first["SYMPH_WEB_PORT"] == str(web)
        assert len({first[f"SYMPH_{name}_PORT"] for name in ("A_B", "C", "WEB")}) == 3
        assert [env["SYMPHONY_ROLE"] for env in environments] == ["one", "two"]
        assert [env["SYMPHONY_GROUP"] for env in environments] == ["", "team"]
        assert {env["SYMPHONY_EXPERIMENT"] for env in environments} == {"contract"}
        assert {env["SYMPHONY_BACKEND"] for env in environments} == {self.backend}

    def test_replicas_bind_one_service_at_addresses_of_their_own(
        self, cluster: Cluster, experiment: Experiment
    ) -> None:
        self.can("up")
        larger = cluster.new_experiment("contract")
        for described, replicas in ((experiment, 2), (larger, 3)):
            described.new_replicas(
                "server",
                replicas,
                binds="pool",
                container_image=self.image,
                command=[self.python, "-u", "-c", programs.REPLICA],
            )
            self.add(described, "client", programs.CLIENT_OF_REPLICAS).connects("pool")
            self.add(described, "other", programs.FOREVER)
        cluster.launch(experiment)
        until(
            cluster,
            "contract",
            lambda status: any(process.state is State.SUCCEEDED for process in status),
            timeout=self.timeout,
        )
        assert cluster.get_log("contract", "client") == "server-0\nserver-1\n"
        changes = cluster.diff(larger)
        assert changes.lines() == [
            "start server-2 (new)",
            "start client (the number of replicas of service 'pool' changed from 2 to 3)",
        ]

    def test_the_ranks_of_a_unit_find_each_other_and_restart_and_fail_together(
        self, cluster: Cluster, experiment: Experiment
    ) -> None:
        self.can("ranks")
        command = [self.python, "-u", "-c", programs.RANK]
        for process in experiment.new_ranks("unit", 3, container_image=self.image, command=command):
            process.restart_policy("OnFailure", max_restarts=1)
        status = self.finish(cluster, experiment)
        # Rank 1 exits only after it has met the others, so each rank has started twice.
        assert [process.restarts for process in status] == [1, 1, 1]
        assert all(process.failed for process in status)
        assert status.exit_code == 3
        assert [process.reason_code for process in status if process.exit_code != 3] == [
            ReasonCode.UNIT_FAILED,
            ReasonCode.UNIT_FAILED,
        ]
        for rank in range(3):
            log = cluster.get_log("contract", f"unit-{rank}")
            assert log == f"rank {rank} of 3\n" * 2

    def test_arguments_and_variables_are_not_changed_and_those_of_a_process_take_precedence(
        self, cluster: Cluster, experiment: Experiment
    ) -> None:
        special = {f"SPECIAL_{index}": text for index, text in enumerate(SPECIAL_TEXTS)}
        self.add(experiment, "special", programs.REPORT, *SPECIAL_TEXTS, env=special)
        experiment.set_envs(
            {"LEVEL": "experiment", "OUTER": "yes", "SYMPH_C_PORT": "1", "SYMPH_RAY_ID": "mine"}
        )
        group = experiment.new_process_group("team").set_env("LEVEL", "group")
        self.add(group, "plain", programs.REPORT).binds("c")
        self.add(group, "own", programs.REPORT, env={"LEVEL": "process", "SYMPH_C_HOST": "nowhere"})
        self.finish(cluster, experiment)
        plain, own = (self.report(cluster, name)["env"] for name in ("plain", "own"))
        assert (plain["LEVEL"], own["LEVEL"]) == ("group", "process")
        assert plain["OUTER"] == own["OUTER"] == "yes"
        assert own["SYMPH_RAY_ID"] == "mine"
        assert own["SYMPH_C_HOST"] == plain["SYMPH_C_HOST"] != "nowhere"
        assert own["SYMPH_C_PORT"] != "1"
        report = self.report(cluster, "special")
        assert report["argv"] == list(SPECIAL_TEXTS)
        assert {key: value for key, value in report["env"].items() if key in special} == special

    def test_cmd_and_cmds_run_in_a_shell(
        self, cluster: Cluster, experiment: Experiment, tmp_path: Path
    ) -> None:
        line = r'X=1; echo "$X" $((1 + 1)); printf "caf\351 \303\251\n"'
        experiment.new_process("line", container_image=self.image, cmd=line)
        experiment.new_process(
            "lines", container_image=self.image, cmds=["echo one", "false", "echo never"]
        )
        # A program that opens its output again does not truncate it.
        again = "echo one; echo two | tee /dev/stderr; echo three >/dev/stdout; echo four"
        experiment.new_process("again", container_image=self.image, cmd=again)
        # A container may have no variable PWD.
        program = "import os; print(os.environ.get('PWD', '/tmp'))"
        self.add(experiment, "directory", program, start_dir="/tmp")
        status = self.finish(cluster, experiment)
        assert cluster.get_log("contract", "lines") == "one\n"
        # Kubernetes collects the two streams separately.
        written = cluster.get_log("contract", "again").split()
        assert sorted(written) == ["four", "one", "three", "two", "two"]
        assert cluster.get_log("contract", "directory") == "/tmp\n"
        assert [process.exit_code for process in status] == [0, 1, 0, 0]
        # The log contains the bytes of the output, and the text only valid characters.
        assert cluster.get_log("contract", "line") == "1 2\ncaf\ufffd é\n"
        output = b"1 2\ncaf\xe9 \xc3\xa9\n"
        for follow in (False, True):
            (saved,) = cluster.save_logs("contract", tmp_path, ["line"], follow=follow).values()
            assert saved.read_bytes() == output
            blocks = cluster.iter_output("contract", ["line"], follow=follow, exact=True)
            text = "".join(block.text for block in blocks)
            assert text.encode("utf-8", "surrogateescape") == output

    def test_processes_can_read_secrets(self, cluster: Cluster, tmp_path: Path) -> None:
        (tmp_path / "source").write_text("swordfish")
        experiment = cluster.new_experiment("contract", secrets={"token": str(tmp_path / "source")})
        self.add(experiment, "worker", programs.SECRET)
        assert self.finish(cluster, experiment).exit_code == 0
        assert cluster.get_log("contract", "worker") == "swordfish"
        # The end of the last line is not added.
        assert "".join(cluster.iter_log_text("contract", "worker")) == "swordfish"

    # --- exit codes and restarts ---

    def test_exit_codes_are_reported_and_unsupported_settings_are_ignored(
        self, cluster: Cluster, experiment: Experiment
    ) -> None:
        good = self.add(experiment, "good", "print('done')")
        good.resource_request(cpu=0.01, memory="16Mi").add_label("team", "red")
        good.mount_shared_memory("16Mi")
        self.add(experiment, "bad", "raise SystemExit(3)")
        self.add(experiment, "killed", "import os; os.kill(os.getpid(), 9)")
        self.add(experiment, "terminal", programs.ON_TERMINAL).tty()
        manifest = cluster.manifest(experiment)
        ignored = {item.setting for item in manifest.ignored}
        assert all(setting in str(manifest) for setting in ignored)
        status = self.finish(cluster, experiment)
        ends = {process.name: (process.state, process.exit_code) for process in status}
        assert ends == {
            "good": (State.SUCCEEDED, 0),
            "bad": (State.FAILED, 3),
            "killed": (State.FAILED, 137),
            "terminal": (State.FAILED, 1 if "tty" in ignored else 7),
        }
        assert status.exit_code in {process.exit_code for process in status if process.failed}
        assert all(process.started and process.ended for process in status)
        # A backend can report problems that have solved themselves, such as a slow node.
        followed = cluster.iter_events("contract", follow=True)
        events = [event for event in followed if event.kind != "warning"]
        assert (str(events[0].kind), str(events[-1].kind)) == ("launched", "finished")
        assert [event.at for event in events] == sorted(event.at for event in events)
        for name, text in (("good", "exited with 0"), ("bad", "exited with 3"), ("killed", "kill")):
            found = cluster.iter_events("contract", [name])
            own = [event for event in found if event.kind != "warning"]
            shown = [event for event in events if event.process == name]
            assert [event.text for event in shown] == [event.text for event in own]
            kinds = [str(event.kind) for event in own if event.kind != "waiting"]
            assert kinds == ["started", "exited"]
            assert text in own[-1].text

    def test_exit_codes_and_logs_are_kept_after_the_launcher_exits_and_until_the_next_launch(
        self, cluster: Cluster, experiment: Experiment, options: dict[str, Any]
    ) -> None:
        self.add(experiment, "worker", "print('output'); raise SystemExit(7)")
        code = (
            "import json, sys; from symphony import Cluster, Experiment;"
            "name, options, spec = map(json.loads, sys.argv[1:]);"
            "Cluster.new(name, **options).launch(Experiment.load_dict(spec))"
        )
        arguments = [json.dumps(item) for item in (self.backend, options, experiment.dump_dict())]
        subprocess.run([sys.executable, "-c", code, *arguments], check=True, timeout=self.timeout)
        status = cluster.wait("contract", timeout=self.timeout)
        assert status.exit_code == 7
        assert cluster.get_log("contract", "worker") == "output\n"
        # A finished experiment is replaced without force.
        assert self.finish(cluster, experiment).exit_code == 7
        assert cluster.get_log("contract", "worker") == "output\n"
        # A watch ends when a finished experiment is deleted.
        with cluster.watch_experiment("contract") as watch:
            assert watch().statuses[0].exit_code == 7
            cluster.delete("contract")
            with pytest.raises(NotFound):
                _read_until_error(watch, self.timeout)

    def test_a_wait_for_some_processes_and_a_timeout(
        self, cluster: Cluster, experiment: Experiment
    ) -> None:
        self.add(experiment, "worker", programs.FOREVER)
        self.add(experiment, "learner-0", "raise SystemExit(3)")
        cluster.launch(experiment)
        status = cluster.wait("contract", processes=["learner"], timeout=self.timeout)
        states = {process.name: process.exit_code for process in status}
        assert states == {"worker": None, "learner-0": 3}
        with pytest.raises(TimeoutError, match="worker"):
            cluster.wait("contract", timeout=0.1)

    def test_a_failed_process_is_restarted_by_its_policy(
        self, cluster: Cluster, experiment: Experiment
    ) -> None:
        self.can("restart")
        self.add(experiment, "crash", "raise SystemExit(4)").restart_policy("OnFailure")
        self.add(experiment, "done", "pass").restart_policy("OnFailure")
        cluster.launch(experiment)
        status = until(
            cluster, "contract", lambda now: now.processes[0].restarts >= 1, timeout=self.timeout
        )
        done = until(
            cluster,
            "contract",
            lambda now: now.processes[1].state is State.SUCCEEDED,
            timeout=self.timeout,
        )
        assert status.processes[0].state is not State.FAILED
        assert done.processes[1].restarts == 0

    # --- the end of an experiment ---

    @pytest.fixture
    def learning(self, experiment: Experiment) -> Experiment:
        """Return an experiment with a server that never exits."""
        server = self.add(experiment, "server", programs.FOREVER)
        # Old versions of Kubernetes report the exit of a process only after this time.
        server.termination_grace_period(1)
        return experiment

    def test_an_experiment_ends_with_a_process(
        self, cluster: Cluster, learning: Experiment
    ) -> None:
        self.can("policies")
        learning.ends_with = ["learner"]
        self.add(learning, "learner", "raise SystemExit(3)")
        status = self.finish(cluster, learning)
        server = status.processes[0]
        assert (status.exit_code, status.displayed_state) == (3, "failed")
        assert server.stopped
        assert server.reason_code is ReasonCode.EXPERIMENT_ENDED
        assert server.reason == "the experiment ended with learner"

    def test_a_failure_restarts_the_experiment_and_then_stops_it(
        self, cluster: Cluster, learning: Experiment
    ) -> None:
        self.can("policies")
        learning.on_failure = {"policy": "restart", "max_restarts": 1}
        learner = self.add(learning, "learner", "print('up'); raise SystemExit(3)")
        learner.starts_after("server", "started")
        status = self.finish(cluster, learning)
        server = status.processes[0]
        assert (status.exit_code, status.displayed_state) == (3, "failed")
        assert [process.restarts for process in status] == [1, 1]
        assert cluster.get_log("contract", "learner") == "up\nup\n"
        assert (server.stopped, server.reason_code) == (True, ReasonCode.EXPERIMENT_FAILED)
        assert "learner failed (exit code 3)" in server.reason

    def test_an_experiment_is_stopped_at_its_deadline(
        self, cluster: Cluster, learning: Experiment
    ) -> None:
        self.can("policies")
        learning.deadline = 0.2
        self.add(learning, "waiting", "pass").starts_after("server", "succeeded")
        status = self.finish(cluster, learning)
        assert status.exit_code == 124
        assert status.displayed_state == "failed"
        for process in status:
            assert process.reason_code is ReasonCode.DEADLINE_EXCEEDED
            assert "deadline exceeded" in process.reason

    def test_the_number_of_restarts_is_limited(
        self, cluster: Cluster, experiment: Experiment
    ) -> None:
        self.can("policies")
        process = self.add(experiment, "crash", "raise SystemExit(4)")
        process.restart_policy("OnFailure", max_restarts=2, backoff=0.05)
        team = experiment.new_process_group("team").restart_policy("Always", max_restarts=1)
        self.add(team, "member", "print('up')")
        status = self.finish(cluster, experiment)
        assert status.exit_code == 4
        assert [process.restarts for process in status] == [2, 1]
        assert cluster.get_log("contract", "member") == "up\nup\n"

    # --- start order and readiness ---

    def test_a_process_starts_after_another_is_ready_and_reaches_its_ports(
        self, cluster: Cluster, experiment: Experiment
    ) -> None:
        first = self.add(experiment, "client", programs.CLIENT, env={"HOST_OF": "CONTROL"})
        first.connects(["control", "echo"]).starts_after("server")
        server = self.add(experiment, "server", programs.SERVER)
        server.binds(["control", "echo"]).ready(log="^listening", timeout=self.timeout)
        cluster.launch(experiment)
        status = cluster.wait("contract", timeout=self.timeout)
        client, server_status = status.processes
        assert status.exit_code == 0
        assert (client.started or 0) >= (server_status.started or 0)
        assert cluster.get_log("contract", "client") == "HELLO\n"

    def test_readiness_is_reported(self, cluster: Cluster, experiment: Experiment) -> None:
        process = self.add(experiment, "server", programs.SERVER, env={"CLIENTS": "1000"})
        process.binds("echo").ready(tcp="echo", timeout=self.timeout)
        late = self.add(experiment, "late", programs.FOREVER)
        late.ready(command="echo starting up; exit 3", timeout=self.timeout)
        cluster.launch(experiment)
        status = until(
            cluster,
            "contract",
            lambda now: now.processes[0].ready and now.processes[1].test_result != "",
            timeout=self.timeout,
        )
        assert status.processes[0].state is State.RUNNING
        assert status.processes[0].test_result == ""
        assert not status.processes[1].ready
        assert status.processes[1].test_result.endswith(": starting up")
        assert status.processes[1].reason.startswith("not ready yet: ")

    def test_a_process_that_stops_answering_is_restarted_as_after_a_failure(
        self, cluster: Cluster, experiment: Experiment
    ) -> None:
        self.can("policies")
        process = self.add(experiment, "server", programs.ANSWERS_FOR_A_WHILE)
        process.binds("echo").ready(tcp="echo", timeout=self.timeout)
        process.healthy(tcp="echo", every=1, failures=2, timeout=1)
        process.restart_policy("OnFailure", max_restarts=1, backoff=0.05)
        if "healthy" in {item.setting for item in cluster.manifest(experiment).ignored}:
            pytest.skip("the backend ignores healthy")
        status = self.finish(cluster, experiment)
        server = status.processes[0]
        # It has exited with 0 because of the signal, which is no success.
        assert (server.state, server.exit_code, server.restarts) == (State.FAILED, 0, 1)
        assert server.reason_code is ReasonCode.UNHEALTHY
        assert server.reason.startswith("unhealthy: ")
        assert status.exit_code == 1
        assert cluster.get_log("contract", "server") == "up\nup\n"
        kinds = [event.kind for event in cluster.iter_events("contract", ["server"])]
        assert EventKind.UNHEALTHY in kinds

    def test_a_process_whose_start_condition_cannot_be_met_has_failed(
        self, cluster: Cluster, experiment: Experiment
    ) -> None:
        self.add(experiment, "first", "raise SystemExit(5)")
        self.add(experiment, "second", programs.FOREVER).starts_after("first", "succeeded")
        status = self.finish(cluster, experiment)
        second = status.processes[1]
        assert second.state is State.FAILED
        assert second.started is None
        assert "first" in second.reason
        assert status.exit_code == 5

    # --- logs ---

    def test_logs_are_complete_and_since_omits_older_lines(
        self, cluster: Cluster, experiment: Experiment
    ) -> None:
        self.add(experiment, "worker", programs.COUNT, "5000")
        # A backend may record timestamps with one-second precision, and may record the first line's
        # timestamp late.
        program = "import time; print('old'); time.sleep(4); print('new', time.time())"
        self.add(experiment, "slow", program)
        self.finish(cluster, experiment)
        expected = [f"line {number}" for number in range(5000)]
        assert cluster.get_log("contract", "worker").splitlines() == expected
        assert cluster.get_log("contract", "worker", tail=3).splitlines() == expected[-3:]
        assert "".join(cluster.get_log("contract", "worker", follow=True)).splitlines() == expected
        old, new = cluster.get_log("contract", "slow", since="1h").splitlines()
        assert (old, new.split()[0]) == ("old", "new")
        since = _iso(float(new.split()[1]) - 1.0)
        assert cluster.get_log("contract", "slow", since=since) == f"{new}\n"

    def test_following_logs_stops_when_the_processes_have_exited(
        self, cluster: Cluster, experiment: Experiment
    ) -> None:
        self.add(experiment, "server", programs.SERVER).binds("echo")
        self.add(experiment, "client", programs.CLIENT).connects("echo")
        cluster.launch(experiment)
        output = list(cluster.iter_output("contract", follow=True, events=True))
        blocks = [item for item in output if isinstance(item, LogBlock)]
        lines = {(line.process, line.text) for line in to_lines(blocks)}
        assert lines == {("server", "listening"), ("client", "HELLO")}
        for block in blocks:
            exits = [
                index
                for index, item in enumerate(output)
                if isinstance(item, ExperimentEvent)
                and (item.process, item.kind) == (block.process, EventKind.EXITED)
            ]
            assert exits, f"the exit of {block.process} is missing"
            assert exits[0] > output.index(block)

    # --- commands, files and services ---

    def test_a_command_runs_in_the_environment_of_a_process(
        self, cluster: Cluster, experiment: Experiment
    ) -> None:
        self.can("exec")
        environment = {"COLOUR": "teal"}
        self.add(experiment, "worker", programs.FOREVER, env=environment, start_dir="/tmp")
        cluster.launch(experiment)
        until(cluster, "contract", all_running, timeout=self.timeout)
        program = (
            "import os; print(os.environ['COLOUR'], os.environ['SYMPHONY_ROLE'], "
            "os.environ.get('PWD', '/tmp')); raise SystemExit(6)"
        )
        result = cluster.exec_command("contract", "worker", [self.python, "-c", program])
        # A container may have no variable PWD.
        assert (result.stdout, result.exit_code) == ("teal worker /tmp\n", 6)

    def test_files_are_copied_to_and_from_a_process(
        self, cluster: Cluster, experiment: Experiment, tmp_path: Path
    ) -> None:
        self.can("copy")
        directory = f"symphony-contract-{secrets.token_hex(6)}"
        program = f"import os; os.mkdir({directory!r}); print('made'); {programs.FOREVER}"
        group = experiment.new_process_group("team")
        self.add(group, "worker", program, start_dir="/tmp").ready(
            log="^made", timeout=self.timeout
        )
        sent = tmp_path / "sent"
        (sent / "deep").mkdir(parents=True)
        (sent / "deep" / "tool").write_text("new")
        (sent / "deep" / "tool").chmod(0o750)
        (sent / "link").symlink_to("deep/tool")
        try:
            cluster.launch(experiment)
            cluster.wait("contract", timeout=self.timeout, until="ready")
            cluster.transfer_file("contract", str(sent), f"team/worker:{directory}")
            cluster.transfer_file(
                "contract", f"worker:/tmp/{directory}/sent", str(tmp_path / "back")
            )
            cluster.transfer_file("contract", f"worker:{directory}/sent/link", str(tmp_path))
            cluster.transfer_file(
                "contract", f"worker:{directory}", str(tmp_path / "dry"), dry_run=True
            )
            with pytest.raises(NotFound, match="no such file"):
                cluster.transfer_file("contract", f"worker:{directory}/nothing", str(tmp_path))
        finally:
            shutil.rmtree(Path("/tmp") / directory, ignore_errors=True)
        back = tmp_path / "back"
        assert sorted(str(path.relative_to(back)) for path in back.rglob("*")) == [
            "deep",
            "deep/tool",
            "link",
        ]
        assert (back / "deep" / "tool").stat().st_mode & 0o777 == 0o750
        assert (back / "link").readlink() == Path("deep/tool")
        assert (tmp_path / "link").read_text() == "new"
        assert not (tmp_path / "dry").exists()
        with pytest.raises(SpecError, match="both local paths"):
            cluster.transfer_file("contract", str(sent), str(back))
        with pytest.raises(NotFound, match="did you mean 'worker'"):
            cluster.transfer_file("contract", "wroker:x", str(tmp_path))

    def test_an_exposed_service_has_an_external_address(
        self, cluster: Cluster, experiment: Experiment
    ) -> None:
        self.can("external-url")
        self.add(experiment, "server", programs.SERVER).binds(["echo", "inner"]).exposes("echo")
        cluster.launch(experiment)
        # A backend with a queue does not know the host earlier.
        until(cluster, "contract", all_running, timeout=self.timeout)
        assert re.fullmatch(r"[^:/]+:\d+", cluster.external_url("contract", "echo"))
        with pytest.raises(NotFound, match="inner"):
            cluster.external_url("contract", "inner")
        assert list(cluster.exposed_services("contract")) == ["echo"]

    def test_the_next_command_replaces_a_killed_supervisor(
        self,
        cluster: Cluster,
        experiment: Experiment,
        kill_supervisor: Callable[[str], None],
        tmp_path: Path,
    ) -> None:
        gate = tmp_path / "gate"
        os.mkfifo(gate)
        self.add(experiment, "first", programs.READY_LATER, str(gate)).ready(
            log="^ready", timeout=self.timeout
        )
        self.add(experiment, "second", programs.FOREVER).starts_after("first", "ready")
        self.add(experiment, "failing", programs.FOREVER).restart_policy("Always")
        cluster.launch(experiment)
        before = cluster.describe_experiment("contract")
        assert [process.state.value for process in before] == ["running", "pending", "running"]
        kill_supervisor("contract")
        # Processes can exit while there is no supervisor.
        os.kill(before.processes[2].pid or 0, signal.SIGKILL)
        after = cluster.describe_experiment("contract")
        assert "a new one has been started" in after.note
        assert after.processes[0] == before.processes[0]
        gate.write_text("go")
        status = until(cluster, "contract", all_running, timeout=self.timeout)
        assert status.note == ""
        assert status.processes[0].pid == before.processes[0].pid
        assert status.processes[2].restarts == 1
        (stopped,) = cluster.stop_processes("contract", ["first"])
        assert stopped.exit_code == 0
        assert cluster.get_log("contract", "first") == "up\nready\n"

    # --- controlling processes ---

    def test_processes_are_stopped_and_started_again_while_others_run(
        self, cluster: Cluster, experiment: Experiment
    ) -> None:
        self.can("control")
        other = self.add(experiment, "other", programs.FOREVER)
        for number in range(2):
            # The restart policy must not start a stopped process.
            self.add(experiment, f"agent-{number}", programs.FOREVER).restart_policy(
                "Always"
            ).ready(log="^up", timeout=self.timeout)
            other.starts_after(f"agent-{number}", "ready")
        self.add(experiment, "once", "print('once')")
        other.starts_after("once", "succeeded")
        cluster.launch(experiment)
        before = cluster.wait("contract", timeout=self.timeout, until="ready")
        done = control(cluster, "stop", "agent")
        assert done == "stopped agent-0, agent-1 of contract"
        status = cluster.describe_experiment("contract")
        states = [process.displayed_state for process in status]
        assert states == ["running", "stopped", "stopped", "succeeded"]
        assert status.processes[0] == before.processes[0]
        assert status.exit_code == 0
        assert control(cluster, "start") == "started agent-0, agent-1 of contract"
        after = cluster.wait("contract", timeout=self.timeout, until="ready")
        assert after.processes[0] == before.processes[0]
        assert all(process.state is State.RUNNING for process in after.processes[:3])
        assert cluster.get_log("contract", "agent-1") == "up\nup\n"
        # A process that has succeeded does not run again, because another one waits only for its
        # success.
        assert cluster.get_log("contract", "once") == "once\n"
        with pytest.raises(NotFound, match="did you mean 'agent-"):
            cluster.stop_processes("contract", ["agnet"])

    def test_restarted_process_keeps_its_environment_and_its_log(
        self, cluster: Cluster, experiment: Experiment
    ) -> None:
        self.can("control")
        worker = self.add(experiment, "worker", f"{programs.REPORT}\n{programs.FOREVER}")
        worker.binds("echo").ready(log="^up", timeout=self.timeout)
        self.add(experiment, "other", programs.FOREVER).starts_after("worker", "ready")
        cluster.launch(experiment)
        before = until(cluster, "contract", all_running, timeout=self.timeout)
        assert control(cluster, "restart", "worker") == "restarted worker of contract"
        restarted = cluster.describe_process("contract", "worker")
        assert restarted.state is State.RUNNING
        assert restarted.started != before.processes[0].started
        after = cluster.wait("contract", timeout=self.timeout, until="ready")
        assert after.processes[1] == before.processes[1]
        first, _, second, _ = cluster.get_log("contract", "worker").splitlines()
        environments = [json.loads(report)["env"] for report in (first, second)]
        addresses = []
        for env in environments:
            given = {name: value for name, value in env.items() if name.startswith("SYMPH")}
            addresses.append(given)
        assert addresses[0] == addresses[1]

    def test_up_changes_what_differs_and_nothing_else(
        self, cluster: Cluster, tmp_path: Path
    ) -> None:
        self.can("up")
        here, elsewhere = tmp_path / "here", tmp_path / "elsewhere"
        here.mkdir()
        report = f"{programs.REPORT}\n{programs.FOREVER}"

        def describe(rate: str, last: str) -> Experiment:
            experiment = cluster.new_experiment("contract")
            experiment.file = here / "contract.yml"
            server = self.add(experiment, "server", programs.FOREVER).binds("echo")
            server.ready(log="^up", timeout=self.timeout)
            changed = self.add(experiment, "changed", report, env={"RATE": rate})
            changed.connects("echo").ready(log="^up", timeout=self.timeout)
            self.add(experiment, last, programs.FOREVER).starts_after("changed", "ready")
            return experiment

        old, new = describe("1", "removed"), describe("2", "added")
        assert cluster.up(old).launch == "it does not exist"
        before = cluster.wait("contract", until="ready", timeout=self.timeout)
        assert cluster.diff(old).is_empty
        assert cluster.diff(new).summary == "1 added, 1 removed, 1 restarted, 1 unchanged"
        new.file = elsewhere / "contract.yml"
        for act in (cluster.up, cluster.launch):
            with pytest.raises(AlreadyExists, match=re.escape(f"runs from {here}")):
                act(new)
        assert cluster.describe_experiment("contract") == before
        new.file = here / "contract.yml"
        assert cluster.up(new).names("restarted") == ["changed"]
        after = cluster.wait("contract", until="ready", timeout=self.timeout)
        assert [process.name for process in after] == ["server", "changed", "added"]
        assert after.processes[0] == before.processes[0]
        first, _, second, _ = cluster.get_log("contract", "changed").splitlines()
        environments = [json.loads(text)["env"] for text in (first, second)]
        assert [env["RATE"] for env in environments] == ["1", "2"]
        addresses = [env["SYMPH_ECHO_ADDR"] for env in environments]
        assert addresses[0] == addresses[1]
        assert cluster.diff(new).is_empty
        if "control" in find_backend(self.backend).capabilities:
            self._check_that_up_starts_what_should_run(cluster, new)

    def _check_that_up_starts_what_should_run(
        self, cluster: Cluster, experiment: Experiment
    ) -> None:
        """Check that `up` starts a stopped process, and that other callers can exclude it."""
        cluster.stop_processes("contract", ["added"])
        before = cluster.describe_experiment("contract")
        assert cluster.diff(experiment, start=[]).is_empty
        assert cluster.diff(experiment).names("started") == ["added"]
        assert cluster.up(experiment).lines() == [
            "start added (it was stopped; after changed is ready)"
        ]
        after = cluster.wait("contract", until="ready", timeout=self.timeout)
        assert [process.state for process in after] == [State.RUNNING] * 3
        assert after.processes[:2] == before.processes[:2]
        assert cluster.diff(experiment).is_empty

    def test_a_process_runs_the_code_of_the_snapshot_and_up_runs_the_edited_code(
        self, cluster: Cluster, tmp_path: Path
    ) -> None:
        self.can("code")
        project = tmp_path / "project"
        (project / "src").mkdir(parents=True)
        (project / "naïve text").write_text("first")
        (project / "src" / "main.py").write_text(programs.CODE_REPORT + programs.FOREVER)

        def describe() -> Experiment:
            experiment = cluster.new_experiment("contract", code=project)
            process = self.add(experiment, "coded", "", start_dir="src")
            process.command = [self.python, "-u", "main.py"]
            process.ready(log="^up", timeout=self.timeout).termination_grace_period(0)
            self.add(experiment, "other", programs.FOREVER).code(False)
            return experiment

        cluster.up(describe())
        cluster.wait("contract", until="ready", timeout=self.timeout)
        assert cluster.diff(describe()).is_empty
        (project / "naïve text").write_text("second")
        assert cluster.up(describe()).names("restarted") == ["coded"]
        cluster.wait("contract", until="ready", timeout=self.timeout)
        reports = cluster.get_log("contract", "coded").splitlines()
        assert [line for line in reports if line != "up"] == ["first src", "second src"]

    def test_up_changes_the_policies_without_a_restart(self, cluster: Cluster) -> None:
        self.can("up")

        def describe(**policies: Any) -> Experiment:
            experiment = cluster.new_experiment("contract", **policies)
            self.add(experiment, "server", programs.FOREVER)
            self.add(experiment, "learner", "pass")
            return experiment

        cluster.launch(describe())
        cluster.wait("contract", timeout=self.timeout, processes=["learner"], until="ended")
        cluster.wait("contract", timeout=self.timeout, until="started")
        changes = cluster.up(describe(ends_with=["learner"]))
        assert [change.setting for change in changes.policies] == ["ends_with"]
        status = cluster.wait("contract", timeout=self.timeout)
        assert [process.displayed_state for process in status] == ["stopped", "succeeded"]
        assert (status.exit_code, status.displayed_state) == (0, "succeeded")
        assert status.processes[0].restarts == 0

    def test_scale_removes_replicas_whose_logs_remain_and_adds_them_again(
        self, cluster: Cluster
    ) -> None:
        self.can("up")
        worker = {"command": [self.python, "-u", "-c", programs.FOREVER], "replicas": 2}
        if self.image is not None:
            worker["container_image"] = self.image
        cluster.launch(Experiment.load_dict({"name": "contract", "processes": {"worker": worker}}))
        assert next(iter(cluster.iter_logs("contract", ["worker-1"], follow=True))).text == "up"
        assert cluster.removed_processes("contract") == []
        before = cluster.wait("contract", timeout=self.timeout, until="started").processes[0]
        done = control(cluster, "scale", value="worker=1")
        assert done.startswith("contract: stop worker-1: ")
        assert done.endswith("; remove worker-1")
        assert list(cluster.describe_experiment("contract")) == [before]
        assert cluster.removed_processes("contract") == ["worker-1"]
        assert cluster.get_log("contract", "worker-1") == "up\n"
        lines = list(cluster.iter_logs("contract", ["worker-1"], follow=True))
        assert [(line.process, line.text) for line in lines] == [("worker-1", "up")]
        with pytest.raises(NotFound, match="has no process 'other'"):
            cluster.get_log("contract", "other")
        done = control(cluster, "scale", value="worker=+1")
        assert done == "contract: start worker-1 (new)"
        assert cluster.removed_processes("contract") == []

    def test_added_processes_join_the_output_that_is_followed(self, cluster: Cluster) -> None:
        self.can("up")

        def describe(*names: str) -> Experiment:
            experiment = cluster.new_experiment("contract")
            for name in names:
                self.add(experiment, name, programs.FOREVER)
            return experiment

        def next_line(lines: Iterator[LogLine]) -> tuple[str, str]:
            line = next(lines)
            return line.process, line.text

        def next_start(events: Iterator[ExperimentEvent]) -> str | None:
            return next(event.process for event in events if str(event.kind) == "started")

        cluster.launch(describe("worker-0"))
        events = iter(cluster.iter_events("contract", ["worker-*"], follow=True))
        assert next_start(events) == "worker-0"
        followed = [
            iter(cluster.iter_logs("contract", names, follow=True)) for names in (None, ["worker"])
        ]
        assert [next_line(lines) for lines in followed] == [("worker-0", "up")] * 2
        cluster.up(describe("worker-0", "worker-1"))
        assert [next_line(lines) for lines in followed] == [("worker-1", "up")] * 2
        assert next_start(events) == "worker-1"
        (change,) = [event for event in cluster.iter_events("contract") if event.kind == "changed"]
        assert change.text == "changed: start worker-1 (new)"

    def test_signal_reaches_the_processes_that_are_named(
        self, cluster: Cluster, experiment: Experiment
    ) -> None:
        self.can("control")
        team = experiment.new_process_group("team")
        self.add(team, "one", programs.SIGNALED).ready(log="^up", timeout=self.timeout)
        self.add(experiment, "two", programs.SIGNALED).starts_after("one", "ready")
        cluster.launch(experiment)
        cluster.wait("contract", timeout=self.timeout, until="ready")
        assert control(cluster, "signal", "team", value="USR1").startswith("sent USR1 to ")
        until(
            cluster,
            "contract",
            lambda status: status.processes[0].exit_code == 7,
            timeout=self.timeout,
        )
        with pytest.raises(BackendError, match="no signal was sent"):
            cluster.signal_processes("contract", None, "HUP")
        assert cluster.describe_process("contract", "two").state is State.RUNNING

    # --- deleting ---

    def test_delete_is_complete_and_idempotent_and_spares_other_programs(
        self, cluster: Cluster, experiment: Experiment
    ) -> None:
        self.add(experiment, "worker", programs.FOREVER)
        with self.foreign(cluster) as is_unchanged:
            assert list_own_experiments(cluster) == []
            cluster.launch(experiment)
            until(cluster, "contract", all_running, timeout=self.timeout)
            assert control(cluster, "delete") == "deleted contract"
            assert list_own_experiments(cluster) == []
            with pytest.raises(NotFound, match="contract"):
                cluster.describe_experiment("contract")
            cluster.delete("contract")
            assert is_unchanged()
            cluster.launch(experiment)
            assert list_own_experiments(cluster) == ["contract"]

    def recorded_runs(self, cluster: Cluster) -> list[Run]:
        """Return the runs of the experiment of these tests, without the runs of other tests."""
        runs = cluster.list_runs()
        return [run for run in runs if (run.experiment, run.backend) == ("contract", self.backend)]

    def test_the_record_of_a_run_remains_when_the_experiment_is_replaced_or_deleted(
        self, cluster: Cluster, experiment: Experiment
    ) -> None:
        self.can("runs")
        earlier = {run.name for run in self.recorded_runs(cluster)}
        worker = self.add(experiment, "worker", "print('first'); raise SystemExit(3)")
        self.finish(cluster, experiment)
        worker.command = [self.python, "-u", "-c", "print('second')"]
        self.finish(cluster, experiment)
        cluster.delete("contract")
        runs = self.recorded_runs(cluster)
        second, first = [run for run in runs if run.name not in earlier]
        assert (first.summary["exit_code"], second.summary["exit_code"]) == (3, 0)
        assert cluster.at_run(first).get_log("contract", "worker") == "first\n"
        assert cluster.at_run(second).get_log("contract", "worker") == "second\n"
        assert cluster.at_run(first).describe_experiment("contract").exit_code == 3
        cluster.launch(experiment)
        cluster.delete("contract", purge=True)
        assert [run.name for run in self.recorded_runs(cluster)] == [run.name for run in runs]

    def report(self, cluster: Cluster, process: str) -> dict[str, Any]:
        """Return the parsed output of a process that runs `programs.REPORT`."""
        report: dict[str, Any] = json.loads(cluster.get_log("contract", process))
        return report


def _read_until_error(watch: Callable[[], object], timeout: float) -> None:
    """Read a watch until it raises an error, for at most ``timeout`` seconds."""
    deadline = time.monotonic() + timeout
    while time.monotonic() < deadline:
        watch()
        time.sleep(0.05)


def _free_ports(count: int) -> list[int]:
    """Return ``count`` ports that are free on this machine.

    With constant port numbers, simultaneous runs of the contract tests could conflict. A backend
    that runs processes elsewhere can use any port.
    """
    with contextlib.ExitStack() as servers:
        ports: list[int] = []
        for _ in range(count):
            server = servers.enter_context(socket.socket())
            server.bind(("127.0.0.1", 0))
            ports.append(server.getsockname()[1])
    return ports


def _iso(at: float) -> str:
    from datetime import datetime, timezone

    return datetime.fromtimestamp(at, timezone.utc).isoformat()

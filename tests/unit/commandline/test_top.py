"""The screens of `top` without a terminal, for faults that no real backend has on demand."""

import asyncio
import os
from contextlib import asynccontextmanager, nullcontext

import pytest
from textual.drivers._writer_thread import WriterThread

from symphony.cluster import WatchedStatuses
from symphony.commandline.commands.table import TABLE
from symphony.commandline.top.app import TopApp
from symphony.commandline.top.terminal import LastingFile
from symphony.errors import BackendError, NotFound
from symphony.log_blocks import LogBlock
from symphony.model import Experiment
from symphony.plan.topology import Service, of_status
from symphony.process_details import ProcessDetails
from symphony.status import ExperimentStatus, ProcessStatus, State
from symphony.support.hidden_values import HiddenValues
from symphony.usage import ExperimentUsage, ProcessUsage
from symphony.views import feed

TIMEOUT = 20  # seconds


class ScriptedCluster:
    """A cluster with one experiment, whose statuses are given."""

    backend = "local"

    def __init__(self, status):
        self.status = status
        self.outage = ""

    def watch_experiment(self, experiment):
        return nullcontext(self._read)

    def _read(self):
        if isinstance(self.status, Exception):
            raise self.status
        return WatchedStatuses([self.status], self.outage)

    def describe_topology(self, experiment):
        service = Service(name="replay", owners=("learner",), port=7000, bound=True)
        return of_status(self.status, services=[service])

    def iter_events(self, experiment, *, follow):
        return iter(())

    def describe_experiment(self, experiment):
        return self.status

    def hidden_values(self, experiment):
        return HiddenValues([])

    def iter_output(self, experiment, processes, **options):
        yield LogBlock("learner", "one two\nthree four\n")

    def recorded_usage(self, experiment):
        learner = ProcessUsage(process="learner", cpu=1.5, memory=3 << 20)
        return [ExperimentUsage(at=1.0, processes=(learner,))]

    def iter_usage(self, experiment):
        return iter(())

    def explain_process(self, experiment, process):
        return ProcessDetails(status=self.status.processes[0], facts={"command": "run\x07"})

    def described_experiment(self, experiment):
        described = Experiment("rl", env={"LR": "0.1"})
        learner = described.new_process("learner", command="run", env={"API_KEY": "abc"})
        learner.set_env_secret("PASSPHRASE", "phrase")
        return described

    def stop_processes(self, experiment, processes):
        raise BackendError("the supervisor\x1b[2J does\nnot answer")


def process(name, state=State.RUNNING, **values):
    return ProcessStatus(name=name, state=state, **values)


def status(*processes, created=1.0, **values):
    return ExperimentStatus(
        name="rl", backend="local", processes=processes, created=created, **values
    )


@asynccontextmanager
async def started(cluster, *, size=(80, 24)):
    watch = nullcontext(lambda: WatchedStatuses([]))
    app = TopApp(lambda report: watch, None, TABLE.controls, (cluster, "rl"))
    async with app.run_test(size=size) as pilot:
        yield pilot


def screen(pilot):
    """Return the characters of the screen."""
    lines = pilot.app.screen._compositor.render_strips()
    return "\n".join(strip.text for strip in lines)


async def expect(pilot, *texts):
    """Wait until the screen contains texts."""
    deadline = asyncio.get_running_loop().time() + TIMEOUT
    while not all(text in screen(pilot) for text in texts):
        assert asyncio.get_running_loop().time() < deadline, f"{texts} not in:\n{screen(pilot)}"
        await pilot.pause(0.02)


@pytest.fixture(autouse=True)
def short_intervals(monkeypatch):
    monkeypatch.setattr(feed, "STATUS_INTERVAL_SECONDS", 0.06)
    monkeypatch.setattr(feed, "RETRY_SECONDS", 0.06)


def test_failed_processes_come_first_and_the_screens_show_faults():
    cluster = ScriptedCluster(
        status(
            process("learner", ready=True),
            process("agent", State.FAILED, exit_code=9, reason="<b>[red]\x1b[2J\udcff"),
            note="the supervisor was killed",
        )
    )

    async def scenario():
        async with started(cluster) as pilot:
            await expect(pilot, "✗ agent", "1.50", "3Mi", r"<b>[red]\x1b[2J\udcff")
            assert screen(pilot).index("✗ agent") < screen(pilot).index("● learner")
            await expect(pilot, "running: 1 failed, 1 running", "the supervisor was killed")
            cluster.outage = "the API server cannot be reached"
            await expect(pilot, "the API server cannot be reached")
            cluster.outage, cluster.status = "", NotFound("no experiment 'rl'")
            await expect(pilot, "deleted: 1 failed, 1 running", "no experiment 'rl'")
            cluster.status = status(process("other"), created=2.0)
            await expect(pilot, "● rl on local", "● other")
            assert "deleted" not in screen(pilot)

    asyncio.run(scenario())


@pytest.mark.one_python
def test_errors_of_controls_are_one_line_and_a_refused_control_does_nothing():
    cluster = ScriptedCluster(status(process("learner"), process("agent")))

    async def scenario():
        async with started(cluster) as pilot:
            await expect(pilot, "● agent")
            await pilot.press("down", "s")
            await expect(pilot, "Stop agent of rl?")
            await pilot.press("enter")
            await expect(pilot, "cancelled")
            await pilot.press("up", "space", "space")
            await expect(pilot, "2 marked")
            await pilot.press("s")
            await expect(pilot, "Stop agent, learner of rl?")
            await pilot.press("y")
            await expect(pilot, r"error: the supervisor\x1b[2J does not answer")

    asyncio.run(scenario())


@pytest.mark.one_python
def test_the_topology_selects_the_processes_of_a_node():
    agents = [process(f"agent-{number}") for number in range(6)]
    cluster = ScriptedCluster(status(process("learner"), *agents))

    async def scenario():
        async with started(cluster) as pilot:
            await expect(pilot, "● agent-5")
            await pilot.press("2")
            await expect(pilot, "binds replay:7000", "agent-0 … agent-5 (6)", "6 running")
            await pilot.press("end", "enter")
            await expect(pilot, "6 marked", "▶ ● agent-0")
            await pilot.press("slash", *"t-3", "enter")
            await expect(pilot, "1/1", "filter: t-3")
            await pilot.press("escape")
            await expect(pilot, "7", "● learner")
            assert "marked" not in screen(pilot)

    asyncio.run(scenario())


@pytest.mark.one_python
def test_the_mouse_opens_rows_and_tabs_and_copies_text():
    cluster = ScriptedCluster(status(process("learner"), process("agent")))

    async def scenario():
        async with started(cluster) as pilot:
            await expect(pilot, "● agent")
            await pilot.click("#tabs", offset=(35, 0))
            await expect(pilot, "Events", "no lines")
            await pilot.click("#tabs", offset=(27, 0))
            await expect(pilot, "learner | one two", "learner | three four")
            await pilot.mouse_down("#logs", offset=(14, 0))
            await pilot.hover("#logs", offset=(14, 1))
            await pilot.mouse_up("#logs", offset=(14, 1))
            await expect(pilot, "held")
            await pilot.press("ctrl+c")
            assert pilot.app.clipboard == "two\nlearner | three"
            await pilot.press("1")
            await pilot.click("#processes", offset=(6, 2))
            await expect(pilot, "2/2")
            await pilot.click("#processes", offset=(6, 1), times=2)
            await expect(pilot, "learner of rl", r"run\x07", "cores     1.50")
            await expect(pilot, "LR          0.1", "API_KEY     (hidden)", "(secret phrase)")

    asyncio.run(scenario())


def test_narrow_terminals_show_the_most_important_columns(monkeypatch):
    monkeypatch.setenv("LC_ALL", "C")
    reason = "exited with 1 because of a long reason"
    cluster = ScriptedCluster(status(process("learner", State.FAILED, reason=reason)))

    async def scenario():
        async with started(cluster, size=(40, 10)) as pilot:
            await expect(pilot, "! learner", "failed")
            assert {"NAME", "STATE", "REASON"} <= set(screen(pilot).split())
            assert "RESTARTS" not in screen(pilot)

    asyncio.run(scenario())


def test_a_defect_ends_the_application_and_is_reported(monkeypatch):
    def fail(self):
        raise ValueError("a defect")

    monkeypatch.setattr("symphony.commandline.top.experiment_screen.ExperimentScreen.draw", fail)

    async def scenario():
        with pytest.raises(ValueError, match="a defect"):
            async with started(ScriptedCluster(status())) as pilot:
                app = pilot.app
        return app.error

    assert str(asyncio.run(scenario())) == "a defect"


def test_a_closed_terminal_does_not_end_the_thread_that_writes_to_it():
    """Otherwise, the application would wait for the thread forever; see `LastingDriver`."""
    controller, terminal = os.openpty()
    os.close(controller)
    with open(terminal, "wb", buffering=0) as file:
        writer = WriterThread(LastingFile(_Text(file)))
        writer.start()
        for _ in range(100):
            writer.write("text")
        writer.stop()


class _Text:
    def __init__(self, file):
        self._file = file

    def write(self, text):
        self._file.write(text.encode())

    def flush(self):
        self._file.flush()

"""Sampling the resource use of real processes, and of GPUs that a module stands in for."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from symphony.supervised.processes.identity import ProcessId, Reading, identify
from symphony.supervised.usage import nvml, proportional_memory
from symphony.supervised.usage.cpu_time import SECONDS_PER_TICK, used_cores, used_seconds
from symphony.supervised.usage.process_trees import EXAMINE_AGAIN_SECONDS, ProcessTrees
from symphony.supervised.usage.proportional_memory import ProportionalMemory
from symphony.supervised.usage.sampler import UsageSampler, devices_of_processes

RUN = "0123456789abcdef"
MIB = 1 << 20
# This program prints a line for each process that has started, and runs until its input is closed.
WAIT = "import sys; print(flush=True); sys.stdin.read()"


@pytest.fixture
def start() -> Iterator[Callable[..., subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []

    def start(
        program: str, *, lines: int = 1, run: str = RUN, role: str = "p"
    ) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-S", "-c", program],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={"SYMPHONY_RUN": run, "SYMPHONY_ROLE": role},
        )
        started.append(process)
        for _ in range(lines):
            process.stdout.readline()  # type: ignore[union-attr]
        return process

    yield start
    for process in started:
        process.stdin.close()  # type: ignore[union-attr]
        # The output ends when the descendants have exited, too.
        process.stdout.read()  # type: ignore[union-attr]
        process.stdout.close()  # type: ignore[union-attr]
        process.wait()


def leader(process: subprocess.Popen[bytes]) -> ProcessId:
    found = identify(process.pid)
    assert found is not None
    return found


def wait_until_asleep(process: subprocess.Popen[bytes]) -> None:
    """Wait until a process that has no more to do waits for its input."""
    status = Path(f"/proc/{process.pid}/stat")
    while ") S " not in status.read_text():
        time.sleep(0.001)


def test_memory_and_files_include_child_processes(start) -> None:
    files = "f = [open('/dev/null') for _ in range(20)]; "
    program = f"import os; a = b'x' * {20 * MIB}; os.fork(); {files}{WAIT}"
    alone = leader(start(WAIT, role="alone"))
    pair = leader(start(program, lines=2, role="pair"))
    usage = UsageSampler(RUN).sample({"alone": alone, "pair": pair}, {"pair": ["3"]})
    single, both = usage.processes
    assert (single.process, both.process) == ("alone", "pair")
    assert both.open_files == 2 * (single.open_files + 20)
    assert both.memory > single.memory + 40 * MIB, "the RSS counts shared memory twice"
    assert single.pss + 20 * MIB < both.pss < single.pss + 40 * MIB
    assert both.devices == ("3",)
    assert usage.unavailable == {}


@pytest.mark.one_python
def test_cpu_use_counts_cores_and_exited_children(start) -> None:
    burn = "import time\ndef burn(s):\n    while time.process_time() < s: pass\n"
    program = f"{burn}import os\nif not os.fork(): burn(0.2); os._exit(0)\nos.wait()\n{WAIT}"
    # The parent waits for its first input before it begins.
    process = start(f"import sys; print(flush=True); sys.stdin.readline()\n{program}")
    sampler = UsageSampler(RUN)
    begin_of_first = time.monotonic()
    first = sampler.sample({"p": leader(process)})
    assert first.processes[0].cpu is None
    end_of_first = time.monotonic()
    process.stdin.write(b"\n")
    process.stdin.flush()
    process.stdout.readline()
    begin_of_second = time.monotonic()
    second = sampler.sample({"p": leader(process)})
    end_of_second = time.monotonic()
    # The process is read at an unknown point of each sample.
    cpu = second.processes[0].cpu
    assert cpu * (end_of_second - begin_of_first) > 0.2 - 0.05
    assert cpu * (begin_of_second - end_of_first) < 0.2 + 0.07
    wait_until_asleep(process)
    sampler.sample({"p": leader(process)})
    assert sampler.sample({"p": leader(process)}).processes[0].cpu == 0


def reading(
    pid: int, parent: int, own: int, reaped: int = 0, *, birth: float = 1.0, at: float = 0.0
) -> Reading:
    return Reading(pid, birth, parent, own, reaped, resident_pages=1, at=at)


def test_cpu_use_is_measured_between_the_readings_of_the_processes() -> None:
    one_core = round(0.25 / SECONDS_PER_TICK)
    before = {1: reading(1, 0, 5, at=10.5), 2: reading(2, 1, 3, at=10.6)}
    now = {1: reading(1, 0, 5 + one_core, at=10.75), 2: reading(2, 1, 3, at=10.85)}
    assert used_cores(before, now) == pytest.approx(1)


def test_cpu_time_of_an_exited_child_is_counted_once() -> None:
    before = {1: reading(1, 0, 100), 2: reading(2, 1, 50, 10), 3: reading(3, 2, 20)}
    # Process 2 has used 5 more ticks, and has collected 3, before 1 has collected it.
    collected = {1: reading(1, 0, 101, 50 + 10 + 20 + 5)}
    assert used_seconds(before, collected) == pytest.approx(6 * SECONDS_PER_TICK)
    ignoring_exits = {1: reading(1, 0, 101)}
    assert used_seconds(before, ignoring_exits) == pytest.approx(1 * SECONDS_PER_TICK)
    reused_pid = {**before, 2: reading(2, 1, 4, birth=2.0), 3: reading(3, 1, 20)}
    assert used_seconds(before, reused_pid) == pytest.approx(4 * SECONDS_PER_TICK)


def test_descendant_without_its_parent_is_found(start) -> None:
    # The child's parent exits at once, before the first scan.
    orphan = f"import os\nif os.fork(): os._exit(0)\nos.setsid()\n{WAIT}"
    own = start(WAIT)
    start(orphan)
    start(WAIT, run="fedcba9876543210")
    start(WAIT, role="other")
    trees = ProcessTrees(RUN).scan({"p": leader(own)})
    assert trees["p"][0].pid == own.pid
    assert len(trees["p"]) == 2


def test_child_without_the_variables_of_the_run_belongs_to_its_parent(start) -> None:
    child = f"subprocess.Popen([sys.executable, '-S', '-c', {WAIT!r}], env={{}})"
    own = start(f"import subprocess, sys; child = {child}; {WAIT}; child.wait()", lines=2)
    trees = ProcessTrees(RUN).scan({"p": leader(own)})
    assert len(trees["p"]) == 2


def test_program_that_starts_a_process_does_not_belong_to_it(start) -> None:
    """The shell of a tmux window has the same variables as the process that it starts."""
    shell = start(f"import os\nif os.fork(): os.wait(); os._exit(0)\n{WAIT}")
    children = Path(f"/proc/{shell.pid}/task/{shell.pid}/children").read_text()
    own = identify(int(children))
    trees = ProcessTrees(RUN).scan({"p": own})
    assert [reading.pid for reading in trees["p"]] == [own.pid]


def test_scan_reads_other_processes_only_once(start, monkeypatch) -> None:
    now = 0.0
    reads: list[int] = []
    trees = ProcessTrees(RUN, clock=lambda: now)
    read = trees._owner_in_environment
    monkeypatch.setattr(trees, "_owner_in_environment", lambda pid: reads.append(pid) or read(pid))
    leaders = {"p": leader(start(WAIT))}
    other = start(WAIT, run="fedcba9876543210").pid
    trees.scan(leaders)
    assert other in reads
    reads.clear()
    trees.scan(leaders)
    assert other not in reads
    now = EXAMINE_AGAIN_SECONDS + 1
    trees.scan(leaders)
    assert other in reads, "a pid can have been reused"


def test_pss_is_read_rarely(monkeypatch) -> None:
    now = 0.0
    reads: list[int] = []
    clock = SimpleNamespace(monotonic=lambda: now, thread_time=lambda: now)
    monkeypatch.setattr(proportional_memory, "time", clock)

    def read(pid: int) -> int:
        nonlocal now
        reads.append(pid)
        now += 0.03
        return pid

    monkeypatch.setattr(proportional_memory, "_read_pss", read)
    memory = ProportionalMemory()
    births = dict.fromkeys(range(1, 9), 1.0)
    memory.update(births)
    assert reads == [1, 2, 3, 4], "until the budget is used up"
    assert (memory.get(4), memory.get(5)) == (4, None)
    # Later reads use 0.5 % of a core: this is 1.2 s in 240 s, which is 40 reads.
    for _ in range(240):
        now += 1.0
        memory.update(births)
    assert len(reads) == pytest.approx(4 + 40, abs=3)
    assert set(reads) == set(births)
    memory.update({8: 2.0})
    assert memory.get(1) is None


# --- GPUs ---


class NvmlError(Exception):
    """The base class of the errors of the stand-in."""


class NotFoundError(NvmlError):
    """No process has used a GPU."""


def fake_nvml(memory, utilization) -> SimpleNamespace:
    """Return a module that stands in for pynvml, because few machines have an NVIDIA GPU.

    The arguments map the numbers of GPUs to the processes, or to an error.
    """

    def answer(table, gpu, *names):
        found = table.get(gpu, NotFoundError())
        if isinstance(found, Exception):
            raise found
        return [SimpleNamespace(**dict(zip(names, row, strict=True))) for row in found]

    return SimpleNamespace(
        NVMLError=NvmlError,
        NVMLError_NotFound=NotFoundError,
        nvmlInit=lambda: None,
        nvmlDeviceGetCount=lambda: 2,
        nvmlDeviceGetHandleByIndex=lambda index: index,
        nvmlDeviceGetComputeRunningProcesses=lambda gpu: answer(
            memory, gpu, "pid", "usedGpuMemory"
        ),
        nvmlDeviceGetGraphicsRunningProcesses=lambda gpu: [],
        nvmlDeviceGetProcessUtilization=lambda gpu, since: answer(
            utilization, gpu, "pid", "smUtil", "timeStamp"
        ),
    )


@pytest.fixture
def with_gpu(monkeypatch):
    monkeypatch.setattr(nvml, "nvidia_gpus", lambda: ["0", "1"])


def test_gpu_use_is_the_sum_over_gpus_and_processes(with_gpu, monkeypatch) -> None:
    memory = {0: [(10, 3 * MIB), (11, None)], 1: [(10, 4 * MIB)]}
    utilization = {0: [(10, 40, 1), (10, 60, 2), (11, 25, 2)]}
    monkeypatch.setitem(sys.modules, "pynvml", fake_nvml(memory, utilization))
    usage = nvml.open_gpus().read()
    assert usage.memory_of([10, 11]) == 7 * MIB
    assert usage.utilization_of([10, 11]) == pytest.approx(0.75)
    assert usage.is_used_by([11])
    assert not usage.is_used_by([12])


def test_gpu_that_reports_no_utilization(with_gpu, monkeypatch) -> None:
    stand_in = fake_nvml({0: [], 1: []}, {0: NvmlError("Not Supported")})
    monkeypatch.setitem(sys.modules, "pynvml", stand_in)
    usage = nvml.open_gpus().read()
    assert usage.unavailable == {"gpu_utilization": "GPU 0 does not report it: Not Supported"}
    assert usage.utilization_of([10]) is None
    assert usage.memory_of([10]) == 0


def test_gpus_that_cannot_be_read(with_gpu, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "pynvml", None)
    assert "pip install" in nvml.open_gpus().read().unavailable["gpu_memory"]
    monkeypatch.setattr(nvml, "nvidia_gpus", list)
    monkeypatch.setattr(nvml, "amd_gpus", lambda: ["0"])
    assert "AMD" in nvml.open_gpus().read().unavailable["gpu_utilization"]
    monkeypatch.setattr(nvml, "amd_gpus", list)
    assert nvml.open_gpus().read().unavailable == {}


def test_devices_of_processes() -> None:
    processes = [
        {"name": "a", "gpus": 2, "env": {"CUDA_VISIBLE_DEVICES": "1,GPU-7"}},
        {"name": "b", "gpus": 0, "env": {"CUDA_VISIBLE_DEVICES": "1"}},
    ]
    assert devices_of_processes(processes) == {"a": ("1", "GPU-7")}

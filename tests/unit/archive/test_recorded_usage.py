"""The record of the resource use: its limit, its statistics, and damaged files."""

from __future__ import annotations

from pathlib import Path

import pytest

from symphony.archive.archived_usage import USAGE_FILE, UsageLog, read_usage
from symphony.usage import ExperimentUsage, ProcessUsage

LIMIT = 8192


def sample(at: float, cpu: float = 0.5, memory: int = 100, process: str = "a") -> ExperimentUsage:
    usage = ProcessUsage(process=process, cpu=cpu, memory=memory)
    return ExperimentUsage(at=at, processes=(usage,))


def test_samples_are_read_as_they_were_written(tmp_path: Path) -> None:
    usages = (
        ProcessUsage(process="a", cpu=0.123, memory=5, pss=4, open_files=3),
        ProcessUsage(process="b", gpu_memory=7, gpu_utilization=0.25),
        ProcessUsage(process="c"),
    )
    written = ExperimentUsage(at=1795719995.004, processes=usages)
    UsageLog(tmp_path / USAGE_FILE).append(written)
    assert read_usage(tmp_path).samples == [written]
    assert (tmp_path / USAGE_FILE).stat().st_mode & 0o777 == 0o600


def test_limit_keeps_all_of_the_run_with_exact_statistics(tmp_path: Path) -> None:
    log = UsageLog(tmp_path / USAGE_FILE, max_bytes=LIMIT)
    count = 2_000
    for number in range(count):
        # One short peak, early in the run.
        log.append(sample(float(number), cpu=0.5, memory=900 if number == 17 else number % 100))
        assert (tmp_path / USAGE_FILE).stat().st_size <= LIMIT
    recorded = read_usage(tmp_path)
    times = [item.at for item in recorded.samples]
    assert times == sorted(times)
    assert times[-1] == count - 1
    assert times[0] < count / 20, "the beginning of the run is visible"
    assert times[-1] - times[-20] == 19, "the end has all samples"
    memory = recorded.summary["a"]["memory"]
    assert (memory.count, memory.peak) == (count, 900)
    assert memory.mean == pytest.approx((count * 49.5 + 900 - 17) / count)
    assert recorded.summary["a"]["cpu"].mean == pytest.approx(0.5)
    assert max(item.processes[0].memory or 0 for item in recorded.samples) == 900


def test_log_of_a_killed_supervisor_is_continued(tmp_path: Path) -> None:
    path = tmp_path / USAGE_FILE
    for at in (1.0, 2.0):
        UsageLog(path).append(sample(at))
    path.write_bytes(path.read_bytes()[:-20])
    UsageLog(path).append(sample(3.0))
    assert [item.at for item in read_usage(tmp_path).samples] == [1.0, 3.0]


def test_full_disk_leaves_no_part_of_a_line(tmp_path: Path, monkeypatch) -> None:
    path = tmp_path / USAGE_FILE
    log = UsageLog(path)
    log.append(sample(1.0))
    before = path.read_bytes()
    write = __import__("os").write
    monkeypatch.setattr("os.write", lambda descriptor, data: write(descriptor, data[:10]))
    log.append(sample(2.0))
    assert path.read_bytes() == before


@pytest.mark.parametrize(
    "line",
    [
        "[]", "{}", "null", '{"at": 1, "use": []}', '{"at": 1, "use": {"a": [true]}}',
        '{"at": "x", "use": {}}', '{"until": 1, "statistics": {"a": {"cpu": ["x"]}}}', "\0",
        '{"at": 1, "use": {"a": 5}}', '{"until": 1, "statistics": 5}',
    ],
)  # fmt: skip
def test_damaged_line_is_omitted(tmp_path: Path, line: str) -> None:
    path = tmp_path / USAGE_FILE
    path.write_text(f"{line}\n")
    UsageLog(path).append(sample(2.0))
    assert [item.at for item in read_usage(tmp_path).samples] == [2.0]


def test_nothing_was_recorded(tmp_path: Path) -> None:
    recorded = read_usage(tmp_path)
    assert (recorded.samples, recorded.summary) == ([], {})

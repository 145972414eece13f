"""The records of runs: what a deletion keeps of an experiment on a cluster."""

import pytest

from symphony.archive import archive, run_record
from symphony_kube.archive.log_writer import LogWriter
from tests.backends.kube.conftest import python


@pytest.fixture
def kube_cluster(local_pods_cluster):
    return local_pods_cluster


# A server that reports the end of its grace period, which is only known after the deletion began.
SERVER = """
import signal, sys
signal.signal(15, lambda *_: (print("bye"), sys.exit()))
print("up")
signal.pause()
"""


def lines(*texts, second=0):
    """Return lines as the API returns them."""
    return [f"2026-01-02T03:04:{second:02}.100000000Z {text}".encode() for text in texts]


def test_a_long_log_keeps_its_end(tmp_path):
    writer = LogWriter(tmp_path, "p", max_bytes=100)
    for second in range(50):
        writer.write(lines("x" * 8, second=second))
    writer.write(lines("end"), complete=False)
    writer.close()
    text = (tmp_path / "p.log").read_text()
    assert (writer.is_cut, len(text) <= 100, text[-13:]) == (True, True, "\nxxxxxxxx\nend")
    assert text.startswith("xxxxxxxx\n")
    pairs = [line.split() for line in (tmp_path / "p.when").read_text().splitlines()]
    assert pairs[-1][1] == str(len(text))
    assert [int(length) for _, length in pairs] == sorted(int(length) for _, length in pairs)


def test_an_empty_log_does_not_replace_that_of_an_earlier_attempt(tmp_path):
    for content in (lines("first"), [], [b"unable to retrieve container logs for docker://1"]):
        writer = LogWriter(tmp_path, "p", max_bytes=100)
        writer.write(content)
        writer.close()
    assert (tmp_path / "p.log").read_text() == "first\n"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p.log", "p.when"]


def test_the_record_contains_the_last_output_and_what_is_cut(shared, name, tmp_path, monkeypatch):
    monkeypatch.setenv("SYMPHONY_STATE_DIR", str(tmp_path))
    shared.configuration.update({"runs": {"max_log_size": 1}})
    exp = shared.new_experiment(name)
    python(exp, "server", SERVER).binds("store")
    python(exp, "long", "print('x' * 99_999); print('end'); import time; time.sleep(1000)")
    shared.launch(exp)
    (launched,) = shared.list_runs()
    assert shared.at_run(launched).describe_experiment(name).processes[0].name == "server"
    followed = shared.iter_logs(name, follow=True)
    assert {line.text for line in (next(followed), next(followed), next(followed))} >= {"up", "end"}
    # The experiment was launched on another machine.
    archive.remove(launched)
    shared.delete(name)
    (run,) = shared.list_runs()
    assert (run.name, run.is_archived) == (launched.name, True)
    assert run.summary["cut"] == [
        "the log of long was longer than 64 KiB, and only its end is kept"
    ]
    reader = shared.at_run(run)
    assert reader.get_log(name, "server") == "up\nbye\n"
    assert reader.get_log(name, "long") == "end\n"
    assert [process.displayed_state for process in reader.describe_experiment(name)] == [
        "stopped",
        "stopped",
    ]
    assert reader.describe_topology(name).services[0].name == "store"
    assert "image" in reader.explain_process(name, "long").facts
    assert "definition" not in run.load_record()
    assert (run.path / run_record.STATUS_FILE).stat().st_mode & 0o777 == 0o600

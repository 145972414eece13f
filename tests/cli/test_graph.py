"""``symphony graph``: formats, output files, states and errors."""

from __future__ import annotations

import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from symphony.status import ExperimentStatus
from tests.cli.conftest import FOREVER, TIMEOUT, Program
from tests.unit.topologies import GOLDEN, WIDTHS, example_experiment

CYAN, RED = "\x1b[36m", "\x1b[31m"


@pytest.fixture
def rl(program: Program) -> Path:
    """The file of the experiment in the golden drawings."""
    path = program.directory / "rl.yml"
    example_experiment().dump_file(path)
    return path


def golden(name: str) -> str:
    return (GOLDEN / name).read_text(encoding="utf-8")


# --- formats ---


@pytest.mark.parametrize(("form", "suffix"), [("mermaid", "mmd"), ("dot", "dot"), ("svg", "svg")])
def test_format_comes_from_the_option_or_the_suffix(
    program: Program, rl: Path, form: str, suffix: str
) -> None:
    assert program.ok("graph", "rl.yml", "--format", form) == golden(f"rl.{suffix}")
    assert program.ok("graph", "rl.yml", "--format", form, "--all") == golden(f"rl-all.{suffix}")
    done = program("graph", "rl.yml", "-o", f"topology.{suffix}")
    assert (done.returncode, done.stdout) == (0, "")
    assert done.stderr == f"symphony: wrote topology.{suffix}\n"
    output = program.directory / f"topology.{suffix}"
    assert output.read_text(encoding="utf-8") == golden(f"rl.{suffix}")


def test_text_is_the_default_format(program: Program, rl: Path) -> None:
    assert program.ok("graph", "rl.yml") == golden("rl-plain.txt")
    program("graph", "rl.yml", "-o", "topology.txt", LC_ALL="C")
    output = program.directory / "topology.txt"
    assert output.read_text(encoding="utf-8") == golden("rl-plain.txt")


def test_format_option_takes_precedence_over_the_suffix(program: Program, rl: Path) -> None:
    program("graph", "rl.yml", "-o", "readme.md", "--format", "mermaid")
    assert (program.directory / "readme.md").read_text(encoding="utf-8") == golden("rl.mmd")
    assert program.ok("graph", "rl.yml", "-o", "-", "--format", "dot") == golden("rl.dot")


def test_json_output_contains_every_process(program: Program, rl: Path) -> None:
    topology = program.json("graph", "rl.yml")
    assert list(topology) == [
        "experiment", "backend", "processes", "groups", "services", "links",
    ]  # fmt: skip
    assert (topology["experiment"], topology["backend"]) == ("rl", None)
    assert topology["groups"] == ["nonagent", "agents"]
    assert {"name": "agent-7", "group": "agents", "state": None} in topology["processes"]
    assert {
        "name": "db",
        "owners": ["db"],
        "port": 5432,
        "bound": True,
        "exposed": False,
        "encrypted": True,
    } in topology["services"]
    connects = {"kind": "connects", "source": "agents", "target": "log", "condition": None}
    after = {"kind": "starts-after", "source": "web", "target": "db", "condition": "ready"}
    assert connects in topology["links"]
    assert after in topology["links"]


def test_python_file_with_another_name(program: Program) -> None:
    (program.directory / "exp.py").write_text(
        "def build(exp):\n    exp.new_process('a', command='true')\n"
    )
    assert program.ok("graph", "exp.py", "--name", "mine") == "mine\n└─ a\n"


# --- terminals ---


@pytest.mark.parametrize("width", WIDTHS)
def test_drawing_fits_the_terminal(program: Program, rl: Path, width: int) -> None:
    screen = program.terminal("graph", "rl.yml", width=width, LC_ALL="C.UTF-8")
    assert screen.finish() == 0
    assert max(map(len, screen.text.splitlines())) <= width
    assert screen.text.splitlines()[0] == "rl"


@pytest.mark.parametrize(
    ("env", "line"),
    [
        ({"LC_ALL": "C"}, "`- alone"),
        ({"LC_ALL": "", "LC_CTYPE": "", "LANG": "de_DE.ISO-8859-1"}, "`- alone"),
        ({"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "ascii"}, "`- alone"),
        ({"LC_ALL": "C.UTF-8"}, "├─ alone"),
        ({"LC_ALL": "", "LC_CTYPE": "", "LANG": "en_GB.utf8"}, "├─ alone"),
    ],
)
def test_lines_are_ascii_unless_the_locale_is_utf8(
    program: Program, rl: Path, env: dict[str, str], line: str
) -> None:
    output = program("graph", "rl.yml", **env).stdout.replace("└", "├")
    assert line in output
    assert "?" not in output


# --- launched experiments ---


class Reached(Exception):
    """Raised when the experiment has the states to draw."""


def stop_waiting(status: ExperimentStatus) -> None:
    states = sorted(str(process.state) for process in status)
    if states == ["failed", "pending", "running", "running"]:
        raise Reached


@pytest.fixture
def running(program: Program) -> Path:
    """The file of a launched experiment: two running processes, one pending and one failed."""
    program.launch(
        "live",
        {
            "server": {"cmd": f"echo up; {FOREVER}", "binds": "db", "ready": {"log": "up"}},
            "bad": "exit 3",
            "clients": {"connects": "db", "processes": {"one": {"cmd": FOREVER}}},
            "late": {"cmd": "true", "starts_after": {"server": "succeeded"}},
        },
    )
    with pytest.raises(Reached):
        program.cluster.wait("live", timeout=TIMEOUT, on_change=stop_waiting)
    return program.directory / "live.yml"


def drawing_of_running(port: str = "") -> list[str]:
    """Return the expected drawing of the experiment ``live``."""
    return [
        "live  2 running, 1 failed, 1 pending",
        "├─ server  running",
        f"│  └─ binds db{port} ← clients",
        "├─ bad     failed",
        "├─ clients, a group of 1",
        f"│  ├─ connects db{port} → server",
        "│  └─ one  running",
        "└─ late    pending",
        "   └─ starts after server (succeeded)",
    ]


def test_file_is_drawn_with_the_states_of_its_experiment(program: Program, running: Path) -> None:
    assert program.ok("graph", running).splitlines() == drawing_of_running()
    assert "running" not in program.ok("graph", running, "--no-states")
    processes = program.json("graph", running)["processes"]
    states = {process["name"]: process["state"] for process in processes}
    assert states == {"server": "running", "bad": "failed", "one": "running", "late": "pending"}
    root = ElementTree.fromstring(program.ok("graph", running, "--format", "svg"))
    assert "2 running, 1 failed, 1 pending" in {item.text for item in root.iter()}


def test_experiment_is_drawn_with_its_actual_ports(program: Program, running: Path) -> None:
    running.unlink()
    topology = program.json("graph", "live")
    (service,) = topology["services"]
    assert topology["backend"] == "local"
    assert (service["name"], service["owners"], service["bound"]) == ("db", ["server"], True)
    expected = drawing_of_running(f":{service['port']}")
    assert program.ok("graph", "live").splitlines() == expected
    assert program("graph", "liv").stdout.splitlines() == expected
    for form in ("mermaid", "dot", "svg"):
        output = program.ok("graph", "live", "--format", form)
        assert f"db:{service['port']}" in output
        assert "running" in output


SCRIPT_WITHOUT_TOPOLOGY = """
from symphony.cluster.backend import Backend
from symphony.commandline import SymphonyParser
from symphony_local.cluster import LocalCluster

class Plain(LocalCluster):
    def describe_topology(self, experiment):
        return Backend.topology(self.implementation, experiment)

class Script(SymphonyParser):
    def create_cluster(self):
        return Plain()

Script().main()
"""


def test_backend_without_topology_is_drawn_without_services(
    program: Program, running: Path
) -> None:
    script = program.directory / "plain.py"
    script.write_text(SCRIPT_WITHOUT_TOPOLOGY)
    done = subprocess.run(
        [sys.executable, script, "graph", "live"],
        env=program.env,
        capture_output=True,
        text=True,
        timeout=TIMEOUT,
    )
    assert done.stdout.splitlines()[1:4] == [
        "├─ server  running",
        "├─ bad     failed",
        "├─ clients, a group of 1",
    ]
    assert done.stderr.startswith("symphony: drawn without services: the local backend ")


def test_states_are_coloured_only_on_a_terminal(program: Program, running: Path) -> None:
    screen = program.terminal("graph", running, LC_ALL="C.UTF-8")
    screen.finish()
    assert f"{CYAN}running\x1b[0m" in screen.shown
    assert f"1 {RED}failed\x1b[0m" in screen.shown
    assert "\x1b[" not in program.ok("graph", running)


def test_processes_that_the_file_does_not_contain_are_reported(
    program: Program, running: Path
) -> None:
    program.file("live", {"server": "true", "new": "true"})
    done = program("graph", running)
    assert done.stdout.splitlines() == ["live  1 running", "├─ server  running", "└─ new"]
    assert done.stderr.startswith("symphony: live ")
    assert done.stderr.endswith(": bad, one, late\n")


def test_file_is_drawn_without_states_if_the_backend_is_unreachable(
    program: Program, rl: Path
) -> None:
    pytest.importorskip("kubernetes")
    done = program("graph", "rl.yml", "-b", "kube", KUBECONFIG=str(program.directory / "none"))
    assert (done.returncode, done.stdout) == (0, golden("rl-plain.txt"))
    assert done.stderr.startswith("symphony: drawn without states: no kubeconfig")
    assert done.stderr.count("\n") == 1


# --- errors ---


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("rl",), "no experiment 'rl'"),
        (("rl",), "; to draw the file, run: symphony graph rl.yml"),
        (("nowhere",), "no experiment 'nowhere'"),
        (("nowhere.yml",), "nowhere.yml: no such file"),
        (("./rl",), "rl: has no file name extension"),
        (("rl.yml", "-o", "topology.png"), "topology.png"),
        (("rl.yml", "-o", "nowhere/x.svg"), "nowhere/x.svg cannot be written: No such file"),
        (("rl.yml", "--format", "png"), "unknown FORM 'png'"),
        (("rl.yml", "--json", "--format", "svg"), "--json and --format svg "),
        (("rl", "--name", "x"), "--name requires an experiment file, but 'rl' is an experiment"),
    ],
)
def test_errors_are_one_line(
    program: Program, rl: Path, words: tuple[str, ...], message: str
) -> None:
    done = program("graph", *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr

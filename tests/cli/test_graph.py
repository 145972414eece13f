"""``symphony graph``: drawings by the real program, in a pipe, on a terminal and into files."""

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
    """The experiment of the golden drawings as a file."""
    path = program.directory / "rl.yml"
    example_experiment().dump_file(path)
    return path


def golden(name: str) -> str:
    return (GOLDEN / name).read_text(encoding="utf-8")


# --- forms ---


def test_a_file_is_drawn_as_text(program: Program, rl: Path) -> None:
    assert program.ok("graph", "rl.yml") == golden("rl-plain.txt")


@pytest.mark.parametrize(("form", "suffix"), [("mermaid", "mmd"), ("dot", "dot"), ("svg", "svg")])
def test_other_forms_by_name_and_by_suffix(
    program: Program, rl: Path, form: str, suffix: str
) -> None:
    assert program.ok("graph", "rl.yml", "--format", form) == golden(f"rl.{suffix}")
    assert program.ok("graph", "rl.yml", "--format", form, "--all") == golden(f"rl-all.{suffix}")
    done = program("graph", "rl.yml", "-o", f"topology.{suffix}")
    assert (done.returncode, done.stdout, done.stderr) == (
        0,
        "",
        f"symphony: wrote topology.{suffix}\n",
    )
    assert (program.directory / f"topology.{suffix}").read_text(encoding="utf-8") == golden(
        f"rl.{suffix}"
    )


def test_text_goes_into_a_file_whole(program: Program, rl: Path) -> None:
    program("graph", "rl.yml", "-o", "topology.txt", LC_ALL="C")
    assert (program.directory / "topology.txt").read_text(encoding="utf-8") == golden(
        "rl-plain.txt"
    )


def test_the_form_asked_for_is_stronger_than_the_suffix(program: Program, rl: Path) -> None:
    program("graph", "rl.yml", "-o", "readme.md", "--format", "mermaid")
    assert (program.directory / "readme.md").read_text(encoding="utf-8") == golden("rl.mmd")
    assert program.ok("graph", "rl.yml", "-o", "-", "--format", "dot") == golden("rl.dot")


def test_json_has_each_process(program: Program, rl: Path) -> None:
    found = program.json("graph", "rl.yml")
    assert list(found) == ["experiment", "backend", "processes", "groups", "services", "links"]
    assert (found["experiment"], found["backend"], found["groups"]) == (
        "rl",
        None,
        ["nonagent", "agents"],
    )
    assert {"name": "agent-7", "group": "agents", "state": None} in found["processes"]
    service = {
        "name": "db",
        "owners": ["db"],
        "port": 5432,
        "bound": True,
        "exposed": False,
        "encrypted": True,
    }
    assert service in found["services"]
    assert {"kind": "connects", "source": "agents", "target": "log", "condition": None} in found[
        "links"
    ]
    assert {"kind": "starts-after", "source": "web", "target": "db", "condition": "ready"} in found[
        "links"
    ]


def test_a_python_file_and_another_name(program: Program) -> None:
    (program.directory / "exp.py").write_text(
        "def build(exp):\n    exp.new_process('a', command='true')\n"
    )
    assert program.ok("graph", "exp.py", "--name", "mine") == "mine\n└─ a\n"


# --- on a terminal ---


@pytest.mark.parametrize("width", WIDTHS)
def test_a_drawing_fits_the_terminal(program: Program, rl: Path, width: int) -> None:
    screen = program.terminal("graph", "rl.yml", width=width, LC_ALL="C.UTF-8")
    assert screen.finish() == 0
    assert max(map(len, screen.text.splitlines())) <= width
    assert screen.text.splitlines()[0] == "rl"


@pytest.mark.parametrize(
    ("env", "unicode"),
    [
        ({"LC_ALL": "C"}, False),
        ({"LC_ALL": "", "LC_CTYPE": "", "LANG": "de_DE.ISO-8859-1"}, False),
        ({"LC_ALL": "C.UTF-8", "PYTHONIOENCODING": "ascii"}, False),
        ({"LC_ALL": "C.UTF-8"}, True),
        ({"LC_ALL": "", "LC_CTYPE": "", "LANG": "en_GB.utf8"}, True),
    ],
)
def test_ascii_where_the_locale_has_no_utf_8(
    program: Program, rl: Path, env: dict[str, str], unicode: bool
) -> None:
    done = program("graph", "rl.yml", **env)
    assert ("├─ alone" in done.stdout or "└─ alone" in done.stdout) is unicode
    assert ("`- alone" in done.stdout) is not unicode
    assert "?" not in done.stdout


# --- what runs ---


@pytest.fixture
def running(program: Program) -> Path:
    """An experiment of which two run, one waits and one has failed, and its file."""
    program.launch(
        "live",
        {
            "server": {"cmd": f"echo up; {FOREVER}", "binds": "db", "ready": {"log": "up"}},
            "bad": "exit 3",
            "clients": {"connects": "db", "processes": {"one": {"cmd": FOREVER}}},
            "late": {"cmd": "true", "starts_after": {"server": "succeeded"}},
        },
    )
    with pytest.raises(Seen):
        program.cluster.wait("live", timeout=TIMEOUT, on_change=seen)
    return program.directory / "live.yml"


class Seen(Exception):
    """All is as it is to be drawn."""


def seen(status: ExperimentStatus) -> None:
    if sorted(str(process.state) for process in status) == [
        "failed",
        "pending",
        "running",
        "running",
    ]:
        raise Seen


def test_a_file_is_drawn_with_the_states_of_what_runs(program: Program, running: Path) -> None:
    assert program.ok("graph", running).splitlines() == [
        "live  2 running, 1 failed, 1 pending",
        "├─ server  running",
        "│  └─ binds db ← clients",
        "├─ bad     failed",
        "├─ clients, a group of 1",
        "│  ├─ connects db → server",
        "│  └─ one  running",
        "└─ late    pending",
        "   └─ starts after server (succeeded)",
    ]
    assert "running" not in program.ok("graph", running, "--no-states")
    states = {
        process["name"]: process["state"] for process in program.json("graph", running)["processes"]
    }
    assert states == {"server": "running", "bad": "failed", "one": "running", "late": "pending"}
    root = ElementTree.fromstring(program.ok("graph", running, "--format", "svg"))
    assert "2 running, 1 failed, 1 pending" in {item.text for item in root.iter()}


def test_a_name_is_drawn_as_it_was_launched_with_the_ports_in_use(
    program: Program, running: Path
) -> None:
    running.unlink()
    (service,) = program.json("graph", "live")["services"]
    assert (service["name"], service["owners"], service["bound"]) == ("db", ["server"], True)
    assert program.ok("graph", "live").splitlines() == [
        "live  2 running, 1 failed, 1 pending",
        "├─ server  running",
        f"│  └─ binds db:{service['port']} ← clients",
        "├─ bad     failed",
        "├─ clients, a group of 1",
        f"│  ├─ connects db:{service['port']} → server",
        "│  └─ one  running",
        "└─ late    pending",
        "   └─ starts after server (succeeded)",
    ]
    assert "└─ late" in program("graph", "liv").stdout
    assert program.json("graph", "live")["backend"] == "local"
    for form in ("mermaid", "dot", "svg"):
        shown = program.ok("graph", "live", "--format", form)
        assert f"db:{service['port']}" in shown
        assert "running" in shown


def test_where_a_backend_tells_of_no_services_the_rest_is_drawn(
    program: Program, running: Path
) -> None:
    """As another's backend may be."""
    script = program.directory / "plain.py"
    script.write_text(PLAIN)
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
    assert done.stderr == (
        "symphony: drawn without services: the local backend cannot report the connections of 'live'\n"
    )


PLAIN = """
from symphony.cluster import Cluster
from symphony.commandline import SymphonyParser
from symphony_local.cluster import LocalCluster

class Plain(LocalCluster):
    describe_topology = Cluster.describe_topology

class Script(SymphonyParser):
    def create_cluster(self):
        return Plain()

Script().main()
"""


def test_states_are_coloured_on_a_terminal_alone(program: Program, running: Path) -> None:
    screen = program.terminal("graph", running, LC_ALL="C.UTF-8")
    screen.finish()
    assert f"{CYAN}running\x1b[0m" in screen.shown
    assert f"1 {RED}failed\x1b[0m" in screen.shown
    assert "\x1b[" not in program.ok("graph", running)


def test_what_runs_beside_the_file_is_told(program: Program, running: Path) -> None:
    program.file("live", {"server": "true", "new": "true"})
    done = program("graph", running)
    assert done.stdout.splitlines() == ["live  1 running", "├─ server  running", "└─ new"]
    assert (
        done.stderr
        == "symphony: live was launched with processes that are not drawn: bad, one, late\n"
    )


def test_a_backend_that_does_not_answer_is_told_and_the_file_is_drawn(
    program: Program, rl: Path
) -> None:
    pytest.importorskip("kubernetes")
    done = program("graph", "rl.yml", "-b", "kube", KUBECONFIG=str(program.directory / "none"))
    assert (done.returncode, done.stdout) == (0, golden("rl-plain.txt"))
    assert done.stderr.startswith("symphony: drawn without states: no kubeconfig")
    assert done.stderr.count("\n") == 1


# --- wrong use ---


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (
            ("rl",),
            "no experiment 'rl'; existing experiments: none; "
            "to draw the file, run: symphony graph rl.yml",
        ),
        (("nowhere",), "no experiment 'nowhere'"),
        (("nowhere.yml",), "nowhere.yml: no such file"),
        (("./rl",), "rl: has no file name extension"),
        (("rl.yml", "-o", "topology.png"), "the format of topology.png is not known; use a suffix among .txt, "),
        (
            ("rl.yml", "-o", "nowhere/x.svg"),
            "nowhere/x.svg cannot be written: No such file or directory",
        ),
        (("rl.yml", "--format", "png"), "unknown FORM 'png'"),
        (("rl.yml", "--json", "--format", "svg"), "--json and --format svg contradict each other"),
        (
            ("rl", "--name", "x"),
            "--name requires an experiment file, but 'rl' is an experiment name",
        ),
        ((), "required: FILE|EXPERIMENT"),
    ],
)
def test_bad_input_is_one_clear_line(
    program: Program, rl: Path, words: tuple[str, ...], said: str
) -> None:
    done = program("graph", *words)
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_has_examples(program: Program) -> None:
    shown = program.ok("graph", "--help")
    assert "symphony graph rl.yml -o topology.svg" in shown
    assert "FILE|EXPERIMENT" in shown

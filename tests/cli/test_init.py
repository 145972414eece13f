"""`symphony init`: a project that runs as it is written, and never in place of somebody's files."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

from symphony.commandline.commands import init
from symphony.errors import SpecError
from tests.cli.conftest import TIMEOUT, Program

ROOT = Path(__file__).parents[2]
FILES = {"experiment.yml", "collector.py", "worker.py", "Dockerfile", ".dockerignore", "README.md"}


def there(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir()}


@pytest.fixture
def project(program: Program) -> Path:
    """A new project, in a folder whose name is no name; commands run in it."""
    program.ok("init", "My_Project")
    program.folder = program.folder / "My_Project"
    return program.folder


def test_it_says_what_it_wrote_and_how_to_go_on(program: Program) -> None:
    lines = program.ok("init", "work/my-project").splitlines()
    assert [line.removeprefix("wrote ") for line in lines[:6]] == [
        f"work/my-project/{name}" for name in init.FILES
    ]
    assert [line.split("  ")[1] for line in lines[6:]] == [
        "cd work/my-project",
        "symphony launch experiment.yml --follow",
        "symphony delete my-project",
        "docker build --tag my-project:1 .",
    ]
    assert there(program.folder / "work" / "my-project") == FILES == set(init.FILES)


def test_what_it_wrote_runs_on_this_machine(program: Program, project: Path) -> None:
    done = program("launch", "experiment.yml", "--follow")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "launched my-project on local: 2 processes" in done.stderr
    estimates = program.ok("logs", "my-project", "collector").splitlines()
    assert len(estimates) == 20
    assert estimates[-1].startswith("400000 darts: pi is about 3.14")
    assert program.ok("logs", "my-project", "worker").startswith("reported 20 times to 127.0.0.1:")


def test_what_it_wrote_is_rendered_for_kubernetes(program: Program, project: Path) -> None:
    shown = list(yaml.safe_load_all(program.ok("render", "experiment.yml", "-b", "kube")))
    assert [(item["kind"], item["metadata"]["name"]) for item in shown] == [
        ("Namespace", "my-project"),
        ("Service", "reports"),
        ("Pod", "collector"),
        ("Pod", "worker"),
    ]
    assert [item["spec"]["containers"][0]["image"] for item in shown[2:]] == ["my-project:1"] * 2
    assert [text for text in project.iterdir() if "my-experiment" in text.read_text()] == []


def test_a_second_worker_is_a_few_lines_more(program: Program, project: Path) -> None:
    """As its README says: each worker is served in a thread of its own."""
    spec = yaml.safe_load((project / "experiment.yml").read_text())
    workers = ["worker", "worker-2"]
    spec["processes"].update(dict.fromkeys(workers, spec["processes"]["worker"]))
    spec["processes"]["collector"]["command"][-1] = "40"
    (project / "experiment.yml").write_text(json.dumps(spec))
    done = program("launch", "experiment.yml", "--follow")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "800000 darts" in done.stdout


def test_the_name_may_be_given_and_the_folder_be_this_one(program: Program) -> None:
    (program.folder / "mine.py").write_text("x = 1\n")
    found = json.loads(program.ok("init", "--name", "pi", "--json"))
    assert found == {"experiment": "pi", "files": list(init.FILES)}
    assert (program.folder / "experiment.yml").read_text().count("name: pi\n") == 1
    assert (program.folder / "mine.py").read_text() == "x = 1\n"


@pytest.mark.parametrize("kind", ["file", "link", "folder"])
def test_nothing_is_overwritten_and_then_nothing_is_written(program: Program, kind: str) -> None:
    there_already = program.folder / "Dockerfile"
    if kind == "file":
        there_already.write_text("FROM mine")
    elif kind == "link":
        there_already.symlink_to("nowhere")
    else:
        there_already.mkdir()
    (program.folder / "README.md").write_text("mine")
    before = there(program.folder)
    done = program("init")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert (
        "error: nothing was written because these files exist: Dockerfile, README.md" in done.stderr
    )
    assert there(program.folder) == before
    assert (program.folder / "README.md").read_text() == "mine"


def test_nothing_is_left_of_what_cannot_be_written_whole(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="missing/b: cannot be written: No such file or directory"):
        init.write_files(tmp_path / "new" / "project", {"a": "text", "missing/b": "text"})
    assert there(tmp_path) == set()


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["file"], "file is not a directory"),
        (["file/below"], "file is not a directory, so file/below cannot be created"),
        (["--name", "My_Project"], "'my-project'"),
        (["/"], "pass --name"),
        (["a", "b"], "unknown argument 'b'"),
        (["--", "a"], "no arguments are accepted after --"),
    ],
)
def test_bad_input_is_one_line(program: Program, words: list[str], said: str) -> None:
    (program.folder / "file").write_text("")
    done = program("init", *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert said in done.stderr
    assert there(program.folder) == {"file"}


def test_on_a_terminal(program: Program) -> None:
    terminal = program.terminal("init", "pi")
    terminal.expect("docker build --tag pi:1 .")
    assert terminal.finish() == 0


def test_the_files_are_in_the_wheel(tmp_path: Path) -> None:
    pytest.importorskip("hatchling")
    subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "PYTHONWARNINGS": "ignore"},
        check=True,
        capture_output=True,
        timeout=TIMEOUT,
    )
    (wheel,) = tmp_path.glob("*.whl")
    kept = "symphony/commandline/starter"
    with zipfile.ZipFile(wheel) as archive:
        found = {name: archive.read(f"{kept}/{name}").decode() for name in FILES}
    assert found == {name: (ROOT / kept / name).read_text() for name in FILES}


def test_its_image_runs_on_kubernetes(program: Program, project: Path, kube_cluster: Any) -> None:
    engine = kube_cluster.engine
    image = f"{engine.registry}/{kube_cluster.namespace}-project:1"
    engine.docker(
        "build", "--build-arg", f"BASE={kube_cluster.image}", "--tag", image, str(project)
    )
    engine.docker("push", image)
    spec = (project / "experiment.yml").read_text()
    (project / "experiment.yml").write_text(spec.replace("my-project:1", image))
    where = [
        "-b",
        "kube",
        "--kubeconfig",
        str(kube_cluster.kubeconfig),
        "--namespace",
        kube_cluster.namespace,
    ]
    done = program("launch", "experiment.yml", "--follow", *where)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "400000 darts: pi is about 3.14" in done.stdout

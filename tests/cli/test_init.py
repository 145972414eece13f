"""``symphony init``."""

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

from symphony.commandline.commands.define import init
from symphony.errors import SpecError
from tests.cli.conftest import TIMEOUT, Program

ROOT = Path(__file__).parents[2]
FILES = {"experiment.yml", "collector.py", "worker.py", "Dockerfile", ".dockerignore", "README.md"}


def names_in(directory: Path) -> set[str]:
    return {path.name for path in directory.iterdir()}


@pytest.fixture
def project(program: Program) -> Path:
    """A new project, in a directory whose name is not a valid name. Commands run in it."""
    program.ok("init", "My_Project")
    program.directory = program.directory / "My_Project"
    return program.directory


def test_output_lists_the_files_and_the_next_commands(program: Program) -> None:
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
    assert names_in(program.directory / "work" / "my-project") == FILES == set(init.FILES)


def test_project_runs_on_this_machine(program: Program, project: Path) -> None:
    done = program("launch", "experiment.yml", "--follow")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "launched my-project on local: 2 processes" in done.stderr
    estimates = program.ok("logs", "my-project", "collector").splitlines()
    assert len(estimates) == 20
    assert estimates[-1].startswith("400000 darts: pi is about 3.14")
    assert program.ok("logs", "my-project", "worker").startswith("reported 20 times to 127.0.0.1:")


def test_project_is_rendered_for_kubernetes(program: Program, project: Path) -> None:
    objects = list(yaml.safe_load_all(program.ok("render", "experiment.yml", "-b", "kube")))
    found = [(item["kind"], item["metadata"]["name"]) for item in objects]
    # The other ConfigMap contains the script that stops programs.
    assert [item for item in found if not item[1].startswith("symphony-scripts-")] == [
        ("Namespace", "my-project"),
        ("Service", "reports"),
        ("Pod", "collector"),
        ("Pod", "worker"),
    ]
    assert [item["spec"]["containers"][0]["image"] for item in objects[-2:]] == ["my-project:1"] * 2
    assert [file for file in project.iterdir() if "my-experiment" in file.read_text()] == []


def test_collector_serves_a_second_worker(program: Program, project: Path) -> None:
    """The README of the project suggests this change."""
    spec = yaml.safe_load((project / "experiment.yml").read_text())
    spec["processes"]["worker-2"] = spec["processes"]["worker"]
    spec["processes"]["collector"]["command"][-1] = "40"
    (project / "experiment.yml").write_text(json.dumps(spec))
    done = program("launch", "experiment.yml", "--follow")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "800000 darts" in done.stdout


def test_name_option_and_current_directory(program: Program) -> None:
    (program.directory / "mine.py").write_text("x = 1\n")
    output = json.loads(program.ok("init", "--name", "pi", "--json"))
    assert output == {"experiment": "pi", "files": list(init.FILES)}
    assert (program.directory / "experiment.yml").read_text().count("name: pi\n") == 1
    assert (program.directory / "mine.py").read_text() == "x = 1\n"


@pytest.mark.parametrize("kind", ["file", "link", "directory"])
def test_existing_file_prevents_all_writes(program: Program, kind: str) -> None:
    existing = program.directory / "Dockerfile"
    if kind == "file":
        existing.write_text("FROM mine")
    elif kind == "link":
        existing.symlink_to("nowhere")
    else:
        existing.mkdir()
    (program.directory / "README.md").write_text("mine")
    done = program("init")
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert "nothing was written because these files exist: Dockerfile, README.md" in done.stderr
    assert names_in(program.directory) == {"Dockerfile", "README.md"}
    assert (program.directory / "README.md").read_text() == "mine"


def test_failed_write_removes_the_created_files(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="missing/b: cannot be written: No such file or directory"):
        init.write_files(tmp_path / "new" / "project", {"a": "text", "missing/b": "text"})
    assert names_in(tmp_path) == set()


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["file"], "file is not a directory"),
        (["file/below"], "file is not a directory, so file/below cannot be created"),
        (["--name", "My_Project"], "'my-project'"),
        (["/"], "pass --name"),
    ],
)
def test_errors_are_one_line(program: Program, words: list[str], message: str) -> None:
    (program.directory / "file").write_text("")
    done = program("init", *words)
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message in done.stderr
    assert names_in(program.directory) == {"file"}


def test_wheel_contains_the_project_files(tmp_path: Path) -> None:
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
    directory = "symphony/commandline/starter"
    with zipfile.ZipFile(wheel) as archive:
        packed = {name: archive.read(f"{directory}/{name}").decode() for name in FILES}
    assert packed == {name: (ROOT / directory / name).read_text() for name in FILES}


def test_image_runs_on_kubernetes(program: Program, project: Path, kube_cluster: Any) -> None:
    engine = kube_cluster.engine
    image = f"{engine.registry}/{kube_cluster.namespace}-project:1"
    engine.docker(
        "build", "--build-arg", f"BASE={kube_cluster.image}", "--tag", image, str(project)
    )
    engine.docker("push", image)
    spec = (project / "experiment.yml").read_text()
    (project / "experiment.yml").write_text(spec.replace("my-project:1", image))
    options = ["-b", "kube", "--kubeconfig", str(kube_cluster.kubeconfig)]
    options += ["--namespace", kube_cluster.namespace]
    done = program("launch", "experiment.yml", "--follow", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "400000 darts: pi is about 3.14" in done.stdout

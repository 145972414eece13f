"""Test the images that an experiment declares: planning, building, and the images of processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from symphony import BackendError, Experiment, SpecError
from symphony.addons import build_images
from symphony.addons.docker.images import plan_images
from tests.addons.fake_engine import DIGEST, FakeEngine, path_with

REPOSITORY = "127.0.0.1:5000/team/rl"


@pytest.fixture
def docker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    engine = FakeEngine(tmp_path / "bin", "docker")
    monkeypatch.setenv("PATH", path_with(engine))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.delenv("SYMPHONY_CONTAINER_ENGINE", raising=False)
    return engine


@pytest.fixture
def project(tmp_path: Path) -> Path:
    folder = tmp_path / "project"
    (folder / "app").mkdir(parents=True)
    (folder / "app" / "main.py").write_text("print()")
    (folder / "Dockerfile").write_text("FROM base\nCOPY app /app\n")
    return folder


@pytest.fixture
def experiment(project: Path) -> Experiment:
    exp = Experiment("rl-2")
    exp.base_dir = project
    exp.build_image(REPOSITORY, context_directories=[{"name": "app", "path": "app"}])
    exp.new_process("learner", container_image=REPOSITORY, command="learn")
    group = exp.new_process_group("agents")
    group.new_process("agent", container_image=f"{REPOSITORY}:rl-2", command="act")
    exp.new_process("pinned", container_image=f"{REPOSITORY}:v1", command="old")
    exp.new_process("other", container_image="base:1", command="c")
    exp.new_process("default", command="c")
    return exp


def images_of(experiment: Experiment) -> dict[str, str | None]:
    return {process.name: process.container_image for process in experiment.list_all_processes()}


def test_plan_of_images(
    experiment: Experiment, project: Path, tmp_path: Path, docker: FakeEngine
) -> None:
    (image,) = plan_images(experiment)
    assert (image.reference, image.processes) == (f"{REPOSITORY}:rl-2", ("learner", "agents/agent"))
    assert str(image) == (
        f"{REPOSITORY}:rl-2 from {project}/Dockerfile with app ({project}/app), and push it; "
        "used by learner, agents/agent"
    )
    assert Path(image.temp_directory).is_relative_to(tmp_path / "cache" / "symphony" / "images")
    assert docker.calls == []
    assert not (tmp_path / "cache").exists()


def test_each_image_has_its_own_temp_directory(experiment: Experiment, tmp_path: Path) -> None:
    experiment.build_image("base")
    experiment.get_process("other").container_image = "base"
    first = {image.temp_directory for image in plan_images(experiment)}
    experiment.base_dir = tmp_path
    assert len(first | {image.temp_directory for image in plan_images(experiment)}) == 4


def test_built_experiment_uses_pushed_digests(experiment: Experiment, docker: FakeEngine) -> None:
    before = experiment.dump_dict()
    steps: list[str] = []
    result = build_images(experiment, output=lambda _: None, on_step=steps.append)
    by_digest = f"{REPOSITORY}@{DIGEST}"
    assert images_of(result) == {
        "learner": by_digest,
        "agent": by_digest,
        "pinned": f"{REPOSITORY}:v1",
        "other": "base:1",
        "default": None,
    }
    assert experiment.dump_dict() == before
    assert result.dump_dict()["images"] == before["images"]
    assert result.base_dir == experiment.base_dir
    assert len(docker.commands("build", "--force-rm")) == len(docker.commands("push")) == 1
    assert docker.commands("push") == [["push", f"{REPOSITORY}:rl-2"]]
    assert steps[0].startswith(f"building {REPOSITORY}:rl-2 from ")
    assert steps[1] == f"pushed {REPOSITORY}:rl-2 as {DIGEST}"


def test_all_images_are_built_before_the_first_push(
    experiment: Experiment, project: Path, docker: FakeEngine
) -> None:
    experiment.build_image("base", dockerfile=project / "None")
    experiment.get_process("other").container_image = "base"
    with pytest.raises(SpecError, match="there is no Dockerfile .*/None"):
        build_images(experiment, output=lambda _: None)
    assert docker.commands("push") == docker.commands("tag") == []
    docker.change(fails=["build"])
    with pytest.raises(BackendError, match="the error message"):
        build_images(experiment, output=lambda _: None)
    assert docker.commands("push") == docker.commands("tag") == []


def test_paths_are_relative_to_the_experiment_file(
    project: Path, tmp_path: Path, docker: FakeEngine
) -> None:
    content = {
        "name": "rl",
        "images": {
            "rl": {
                "dockerfile": "../Other",
                "temp_directory": "t",
                "build_options": "--no-cache",
                "context_directories": [{"name": "a", "path": "./app", "force_update": True}],
            }
        },
        "processes": {"p": {"container_image": "rl", "command": "c"}},
    }
    (project / "rl.yml").write_text(json.dumps(content))
    experiment = Experiment.load_file(project / "rl.yml")
    (image,) = plan_images(experiment)
    assert (image.dockerfile, image.temp_directory) == (str(tmp_path / "Other"), str(project / "t"))
    assert (image.entries[0].path, image.entries[0].force_update) == (str(project / "app"), True)
    (tmp_path / "Other").write_text("FROM base\n")
    build_images(experiment, output=lambda _: None)
    (words,) = docker.commands("build", "--force-rm")
    assert "--no-cache" in words
    assert words[-1].startswith(str(project / "t"))


def test_experiment_without_images_is_rejected(experiment: Experiment) -> None:
    with pytest.raises(
        SpecError,
        match="experiment 'e' declares no image to build: add images: to its file, call",
    ):
        plan_images(Experiment("e"))


def test_unused_image_is_rejected(experiment: Experiment) -> None:
    experiment.build_image("127.0.0.1:5000/team/rll")
    message = (
        "declares to build '.*rll', but no process has it as container_image; "
        r"did you mean '127\.0\.0\.1:5000/team/rl'"
    )
    with pytest.raises(SpecError, match=message):
        plan_images(experiment)
    unused = Experiment("e").build_image("zzz")
    unused.new_process("p", container_image="base", command="c")
    with pytest.raises(SpecError, match="but no process has it as container_image; they use base$"):
        plan_images(unused)


def test_examples_in_the_documentation_can_be_planned(tmp_path: Path) -> None:
    page = (Path(__file__).parents[2] / "docs" / "howto" / "images.md").read_text()
    yml, python = [
        re.findall(rf"```{language}[^\n]*\n(.*?)```", page, re.S)[0]
        for language in ("yaml", "python")
    ]
    (tmp_path / "rl.yml").write_text(yml)
    (image,) = plan_images(Experiment.load_file(tmp_path / "rl.yml"))
    assert (image.reference, image.processes) == (
        "registry.example/team/rl:rl",
        ("learner", "agent"),
    )
    names: dict[str, Any] = {}
    exec(python, names)
    experiment = Experiment("rl")
    names["build"](experiment)
    assert plan_images(experiment)[0].processes == ("learner",)


# --- the command line ---


def symphony(project: Path, *words: str, **env: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "symphony", "launch", *words]
    given = {
        **os.environ,
        "SYMPHONY_STATE_DIR": str(project / "state"),
        "SYMPHONY_BACKEND": "",
        **env,
    }
    return subprocess.run(
        command, cwd=project, env=given, capture_output=True, text=True, timeout=60
    )


def write_file(experiment: Experiment, project: Path, **changes: Any) -> None:
    (project / "e.yml").write_text(json.dumps({**experiment.dump_dict(), **changes}))


@pytest.fixture
def unreachable_cluster(project: Path) -> list[str]:
    """Return the options of a Kubernetes cluster that cannot be reached."""
    pytest.importorskip("kubernetes")
    config = {
        "current-context": "c", "users": [],
        "clusters": [{"name": "c", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": ""}}],
    }  # fmt: skip
    (project / "kubeconfig").write_text(json.dumps(config))
    options = f"-b kube --kubeconfig {project}/kubeconfig --image base:1 --expose none"
    return options.split()


@pytest.mark.parametrize("backend", ["local", "tmux"])
def test_build_option_is_ignored_without_containers(
    experiment: Experiment, project: Path, docker: FakeEngine, backend: str
) -> None:
    if backend == "tmux":
        pytest.importorskip("libtmux")
    write_file(experiment, project)
    done = symphony(project, "e.yml", "--build", "--dry-run", "-b", backend)
    assert done.returncode == 0, done.stderr
    reason = f"the {backend} backend does not run processes in containers"
    assert done.stderr == f"symphony: --build is ignored: {reason}\n"
    assert "learner:" in done.stdout
    write_file(experiment, project, images={})
    assert symphony(project, "e.yml", "--build", "--dry-run", "-b", backend).returncode == 0
    assert docker.calls == []


def test_dry_run_reports_the_build(
    experiment: Experiment, project: Path, docker: FakeEngine, unreachable_cluster: list[str]
) -> None:
    write_file(experiment, project)
    done = symphony(project, "e.yml", "--build", "--dry-run", *unreachable_cluster)
    assert done.returncode == 0, done.stderr
    assert done.stderr == f"symphony: would build {plan_images(experiment)[0]}\n"
    assert done.stdout.count(f"image: '{REPOSITORY}:rl-2'\n") == 2
    assert f"image: '{REPOSITORY}:v1'\n" in done.stdout
    assert docker.calls == []
    without = symphony(project, "e.yml", "--dry-run", *unreachable_cluster)
    assert (without.stderr, without.stdout.count(f"image: '{REPOSITORY}'\n")) == ("", 1)


def test_errors_are_reported_before_the_build(
    experiment: Experiment, project: Path, docker: FakeEngine, unreachable_cluster: list[str]
) -> None:
    write_file(experiment, project, images={})
    done = symphony(project, "e.yml", "--build", *unreachable_cluster)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "experiment 'rl-2' declares no image to build" in done.stderr
    experiment.get_process("learner").connects("nothing")
    write_file(experiment, project)
    done = symphony(project, "e.yml", "--build", *unreachable_cluster)
    assert done.returncode == 2
    assert "process 'learner': connects to service 'nothing', which no process binds" in done.stderr
    assert docker.calls == []

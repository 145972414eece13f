"""The code of processes in Pods and Secrets, and the script that unpacks it."""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from symphony import Experiment, SpecError
from symphony.code.delta import difference
from symphony.code.pack import pack
from symphony.code.pack import unpack as unpack_code
from symphony.code.snapshot import CodeArchive, CodeArchives
from symphony.code.take_snapshots import take_snapshots
from symphony.model.settings.code import CodeSource
from symphony_kube.api.labels import SCRATCH, Scope
from symphony_kube.cluster import KubeCluster
from symphony_kube.render.experiment import NOT_REPLACED, render
from symphony_kube.render.file_objects.code_volumes import (
    MAX_CODE_BYTES,
    UNPACK_SCRIPT,
    code_objects,
)
from symphony_kube.render.file_objects.files import MAX_OBJECT_BYTES
from symphony_kube.render.manifest import KubeManifest
from symphony_kube.render.options import RenderOptions
from symphony_kube.render.snapshot import take_snapshot
from symphony_kube.render.stop_script import VOLUME as SCRIPTS
from symphony_kube.render.sync import RESTART_SCRIPT, START_SCRIPT
from tests.backends.kube.specimens import IMAGE, planned

Object = dict[str, Any]
SCOPE = Scope(experiment="e", namespace="e")


@pytest.fixture
def project(tmp_path: Path) -> Path:
    directory = tmp_path / "project"
    (directory / "src").mkdir(parents=True)
    (directory / "src/main.py").write_text("print()")
    return directory


def manifest_of(
    experiment: Experiment, archives: CodeArchives, options: RenderOptions | None = None
) -> KubeManifest:
    plan = planned(experiment, SCOPE)
    return render(plan, SCOPE, options or RenderOptions(image=IMAGE), {}, archives)


def specs(manifest: KubeManifest) -> dict[str, Object]:
    return {body["metadata"]["name"]: body["spec"] for body in manifest.units}


def mounts_of(container: Object) -> list[Object]:
    """Return the mounts of a container, without those that each process has."""
    mounts = container["volumeMounts"]
    return [item for item in mounts if not item["name"].startswith((SCRATCH, SCRIPTS))]


def test_the_processes_of_a_pod_share_the_unpacked_code(project: Path) -> None:
    experiment = Experiment("e", code=str(project))
    group = experiment.new_process_group("g", start_dir="src")
    first = group.new_process("first", container_image="own:1", command="python3")
    first.resource_limit(cpu=1, gpu=1).image_pull_policy("Always")
    first.container_yml = {"securityContext": {"runAsUser": 7}}
    group.new_process("second", command="python3", start_dir="/data")
    experiment.new_process("database", start_dir="/data", command="db").code(False)
    archives = take_snapshots(experiment)
    manifest = manifest_of(experiment, archives)
    spec = specs(manifest)["g"]
    (unpack,) = spec["initContainers"]
    assert unpack["image"] == "own:1"
    assert unpack["imagePullPolicy"] == "Always"
    assert unpack["resources"] == {"limits": {"cpu": "1"}}
    assert unpack["securityContext"] == {"runAsUser": 7}
    mounts = [mounts_of(container) for container in spec["containers"]]
    assert mounts[0] == mounts[1]
    assert [item["workingDir"] for item in spec["containers"]] == ["/symphony/code/src", "/data"]
    variables = [{item["name"]: item for item in c["env"]} for c in spec["containers"]]
    assert variables[1]["SYMPHONY_CODE_DIR"]["value"] == "/symphony/code"
    (secret,) = [item for item in manifest if item["kind"] == "Secret"]
    (source,) = spec["volumes"][0]["projected"]["sources"]
    assert source["secret"]["name"] == secret["metadata"]["name"]
    assert secret["immutable"] is True
    assert base64.b64decode(secret["data"]["part"]) == archives["first"].data
    assert "initContainers" not in specs(manifest)["database"]
    other = manifest_of(experiment, archives, RenderOptions(image=IMAGE, code_image="tar:1"))
    assert specs(other)["g"]["initContainers"][0]["image"] == "tar:1"


def test_a_dry_run_shows_the_snapshot_and_not_its_bytes(project: Path) -> None:
    experiment = Experiment("e", code=str(project))
    experiment.new_process("p", command="python3")
    archives = take_snapshots(experiment)
    archive = archives["p"]
    text = str(manifest_of(experiment, archives))
    assert f"# The code {project}: {archive.snapshot}\n" in text
    assert f"(1 file, 7 B, {len(archive.data)} B compressed)" in text
    assert base64.b64encode(archive.data).decode() not in text


def test_a_start_directory_must_exist_in_the_code(project: Path) -> None:
    experiment = Experiment("e", code=str(project), start_dir="src")
    experiment.new_process("p", command="python3", container_image=IMAGE)
    cluster = KubeCluster()
    cluster.manifest(experiment)
    experiment.get_process("p").start_dir = "/absolute"
    cluster.manifest(experiment)
    experiment.get_process("p").start_dir = "missing"
    with pytest.raises(SpecError, match=r"'p': start_dir .*/src/missing is not a directory"):
        cluster.manifest(experiment)


def large(project: Path, size: int) -> CodeArchive:
    return replace(pack(project, CodeSource(path=".")), data=os.urandom(size))


@pytest.mark.parametrize("size", [MAX_CODE_BYTES, MAX_CODE_BYTES + 1])
def test_a_process_is_started_again_after_a_drain_if_its_code_fits_into_secrets(
    project: Path, size: int
) -> None:
    """The dry run and the launch name the processes that are not."""
    experiment = Experiment("e", code=str(project))
    experiment.new_process("server", command="python3").restart_policy("Always")
    experiment.new_process("task", command="python3")
    archive = large(project, size)
    manifest = manifest_of(experiment, {"server": archive, "task": archive})
    fits = size <= MAX_CODE_BYTES
    assert [unit.replaced_if_lost for unit in manifest.roster] == [fits, False]
    assert manifest.needs_supervisor is fits
    expected = [] if fits else [(NOT_REPLACED, ("server",))]
    assert [(item.setting, item.processes) for item in manifest.ignored] == expected


def test_a_large_archive_is_divided_among_secrets(project: Path) -> None:
    archive = large(project, MAX_OBJECT_BYTES + 1)
    shared = Scope(experiment="mine", namespace="team", shared=True)
    secrets = code_objects([archive, archive], shared)
    parts = [base64.b64decode(item["data"]["part"]) for item in secrets]
    assert [len(part) for part in parts] == [MAX_OBJECT_BYTES, 1]
    assert b"".join(parts) == archive.data
    names = [item["metadata"]["name"] for item in secrets]
    digest = archive.snapshot.short_digest
    assert all(name.startswith(f"mine-symphony-code-{digest}-") for name in names)
    # The same code that was compressed by another version of zlib does not have the same name.
    assert names[0] != code_objects([large(project, 10)], shared)[0]["metadata"]["name"]


def test_code_above_the_limit_is_refused(project: Path) -> None:
    with pytest.raises(SpecError, match=r"project has 8\.0 MiB when it is compressed, and the"):
        code_objects([large(project, MAX_CODE_BYTES + 1)], SCOPE)


# --- the script ---


def unpack(parts: Path, target: Path, **options: Any) -> subprocess.CompletedProcess[str]:
    command = ["/bin/sh", "-c", UNPACK_SCRIPT, "/bin/sh", str(target), str(parts)]
    return subprocess.run(command, capture_output=True, text=True, check=False, **options)


def test_the_script_leaves_nothing_incomplete_and_can_be_repeated(
    project: Path, tmp_path: Path
) -> None:
    data = pack(project, CodeSource(path=".")).data
    parts, target = tmp_path / "parts", tmp_path / "target"
    parts.mkdir()
    target.mkdir()
    (parts / "0000").write_bytes(data[:50])
    for damaged in (b"", data[50:-20], b"\0" + data[51:]):
        (parts / "0001").write_bytes(damaged)
        assert unpack(parts, target).returncode != 0
        assert not (target / "code").exists()
    (parts / "0001").write_bytes(data[50:])
    for _ in range(2):
        assert unpack(parts, target).returncode == 0
        assert (target / "code/src/main.py").read_text() == "print()"
        assert [path.name for path in target.iterdir()] == ["code"]


def test_the_script_names_a_missing_program(tmp_path: Path) -> None:
    programs = tmp_path / "bin"
    programs.mkdir()
    (programs / "cat").symlink_to("/bin/cat")
    done = unpack(tmp_path, tmp_path, env={"PATH": str(programs)})
    assert done.returncode == 1
    expected = "the image has no gzip, which unpacks the code: set code_image\n"
    assert done.stderr == expected


# --- restarts in place ---

# Python uses a compiled module if the time and the size of its source have not changed.
MAIN = """
import os, signal, sys, module
signal.signal(signal.SIGTERM, lambda *_: sys.exit(7))
names = sorted(os.path.join(top, name) for top, _, files in os.walk(".") for name in files)
print(module.TEXT, *[name for name in names if "__pycache__" not in name], flush=True)
signal.pause()
"""


def run_restart_script(
    volume: Path, update: bytes, size: int
) -> subprocess.CompletedProcess[bytes]:
    command = ["/bin/sh", "-c", RESTART_SCRIPT, "/bin/sh", str(volume), str(size), "20"]
    command += ["/bin/sh", "-c", "kill -TERM $(cat program)"]
    return subprocess.run(command, input=update, capture_output=True, check=False)


def test_the_scripts_restart_a_program_with_the_changed_files(tmp_path: Path) -> None:
    project, volume = tmp_path / "project", tmp_path / "volume"
    (project / "kind").mkdir(parents=True)
    volume.mkdir()
    (project / "main.py").write_text(MAIN)
    (project / "module.py").write_text("TEXT = 'one'")
    (project / "kind" / "removed").write_text("")
    old = pack(project, CodeSource(path="."))
    unpack_code(old, volume / "code")
    command = ["/bin/sh", "-c", START_SCRIPT, "/bin/sh", str(volume)]
    command += [sys.executable, "main.py"]
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    with subprocess.Popen(
        command, cwd=volume / "code", env=environment, stdout=subprocess.PIPE, text=True
    ) as shell:
        assert shell.stdout is not None
        try:
            assert shell.stdout.readline() == "one ./kind/removed ./main.py ./module.py\n"
            (project / "module.py").write_text("TEXT = 'two'")
            (project / "kind" / "removed").unlink()
            (project / "kind").rmdir()
            (project / "kind").write_text("now a file")
            (project / "-new").write_text("")
            new = pack(project, CodeSource(path="."))
            update = difference(old, new)
            assert update is not None
            interrupted = run_restart_script(volume, update[:-9], len(update))
            assert (interrupted.returncode, interrupted.stderr) == (1, b"it is incomplete\n")
            assert run_restart_script(volume, update, len(update)).returncode == 0
            assert shell.stdout.readline() == "two ./-new ./kind ./main.py ./module.py\n"
            # The source of the module has the same size as before.
            (project / "module.py").write_text("TEXT = 'six'")
            update = difference(new, pack(project, CodeSource(path=".")))
            assert update is not None
            assert run_restart_script(volume, update, len(update)).returncode == 0
            assert shell.stdout.readline() == "six ./-new ./kind ./main.py ./module.py\n"
        finally:
            shell.send_signal(signal.SIGTERM)
        assert shell.wait(20) == 7
    assert sorted(path.name for path in volume.iterdir()) == ["code", "program"]


def test_programs_that_restart_in_place_have_their_own_copy_of_the_code(project: Path) -> None:
    experiment = Experiment("e", code={"path": str(project), "sync": True})
    group = experiment.new_process_group("g")
    group.new_process("first", command="python3").args = ["main.py"]
    group.new_process("second", command="python3")
    experiment.new_process("entry")
    archives = take_snapshots(experiment)
    specification = specs(manifest_of(experiment, archives))
    first, second = specification["g"]["containers"]
    assert first["command"][:2] == ["/bin/sh", "-c"]
    assert first["command"][-2:] == ["python3", "main.py"]
    volumes = [[mount["name"] for mount in mounts_of(item)] for item in (first, second)]
    digest = archives["first"].snapshot.short_digest
    assert volumes == [[f"code-{digest}-0"] * 2, [f"code-{digest}-1"] * 2]
    assert len(specification["g"]["initContainers"]) == 2
    assert "command" not in specification["entry"]["containers"][0]
    plan, options = planned(experiment, SCOPE), RenderOptions(image=IMAGE)
    processes = take_snapshot(plan, options, {}, archives).processes
    assert processes["first"].settings["sync"] is True
    assert "entry point" in processes["entry"].settings["sync"]


def test_a_difference_cannot_remove_a_name_with_a_line_break(project: Path) -> None:
    (project / "a\nb").write_text("")
    old = pack(project, CodeSource(path="."))
    (project / "a\nb").unlink()
    assert difference(old, pack(project, CodeSource(path="."))) is None

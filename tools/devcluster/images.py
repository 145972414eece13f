"""Create the test image without a registry.

The image contains Debian, Python, the project's dependencies, such as pyzmq, the packages that the
kube backend needs in the Pod of a supervisor, and the project's wheel.

An image is a tar file in the `docker save` format: layers, a configuration and a manifest
(https://github.com/moby/docker-image-spec, v1.2). Both docker and containerd can load such a file.
"""

from __future__ import annotations

import configparser
import hashlib
import io
import json
import shlex
import tarfile
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from email.parser import BytesHeaderParser
from pathlib import Path

from devcluster.node import PAUSE_IMAGE
from machines import packages, processes, sandbox, store
from machines.console import Console, RequirementError

NAME = "docker.io/library/symphony-test:devcluster"
# debootstrap does not resolve virtual packages, so the cffi backend, which pyzmq needs, is listed
# explicitly.
CONTENT = (
    "python3",
    "python3-cffi-backend",
    "python3-pluggy",
    "python3-psutil",
    "python3-yaml",
    "python3-zmq",
)
_SITE = "usr/local/lib/python3.11/dist-packages"
_ENV = (
    "PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
    "LANG=C.UTF-8",
    "PYTHONUNBUFFERED=1",
)
# The layers contain the bytecode of their modules. Without it, each Python in a container would
# compile the modules that it imports.
_FORM = "with bytecode"
_UNNEEDED = (
    "usr/share/doc",
    "usr/share/info",
    "usr/share/locale",
    "usr/share/man",
    "var/cache",
    "var/lib/apt/lists",
    "var/log",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Layer:
    """One layer: its tar file and the SHA-256 digest of that file."""

    path: Path
    digest: str


def base_cache_entry(cache: Path) -> Path:
    """Return the cache entry for the base layer."""
    return cache / "base" / store.key(packages.RELEASE, CONTENT, _UNNEEDED, _FORM)


def make_base(directory: Path, *, tools: Path, console: Console, log: Path) -> None:
    """Write a layer with Debian and the packages in CONTENT to `layer.tar` in `directory`."""
    root = shlex.quote(str(directory / "root"))
    mirror = shlex.quote(packages.main_mirror())
    unneeded = " ".join(f"{root}/{name}/*" for name in _UNNEEDED)
    script = (
        sandbox.overlay([tools])
        + f"debootstrap --variant=minbase --include={','.join(CONTENT)} "
        + f"{packages.RELEASE} {root} {mirror}\n"
        + f"rm -rf {unneeded}\n"
        + f"tar -C {root} --numeric-owner --sort=name --exclude=./dev/* "
        + f"-cf {shlex.quote(str(directory / 'layer.tar'))} .\n"
        + f"rm -rf {root}\n"
    )
    processes.run(sandbox.once(script), log=log, console=console)


def find_wheel(
    project: Path,
    cache: Path,
    *,
    given: Path | None,
    tools: Path,
    log: Path,
    report: Callable[[str], None],
) -> Path | None:
    """Return the wheel for the image: the given wheel, or a wheel built from the project's sources.

    Return None if the project has no pyproject.toml. A wheel is rebuilt only if a source file has
    changed.
    """
    if given is not None:
        if not zipfile.is_zipfile(given):
            raise RequirementError(
                f"{given} is not a wheel: pass the .whl file that 'pip wheel' created"
            )
        return given
    if not (project / "pyproject.toml").exists():
        return None
    entry = cache / "wheels" / _source_key(project)

    def build(directory: Path) -> None:
        script = sandbox.overlay([tools]) + shlex.join(
            [
                "/usr/bin/python3",
                "-m",
                "pip",
                "wheel",
                "--no-deps",
                "-w",
                str(directory),
                str(project),
            ]
        )
        processes.run(sandbox.once(script), log=log)

    store.ensure(entry, build, report=report)
    store.keep_only(entry.parent, [entry.name])
    return next(entry.glob("*.whl"))


def _source_key(project: Path) -> str:
    files = [project / "pyproject.toml"]
    for directory in ("symphony", "backends"):
        files += (path for path in (project / directory).rglob("*") if path.is_file())
    content = [
        (str(path.relative_to(project)), path.read_bytes())
        for path in sorted(files)
        if "__pycache__" not in path.parts
    ]
    return store.key(content)


def extra_requirements(wheel: Path, extra: str) -> tuple[str, ...]:
    """Return the requirements that a wheel's metadata lists for one of its extras."""
    found = []
    with zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if name.endswith(".dist-info/METADATA"):
                metadata = BytesHeaderParser().parsebytes(archive.read(name))
                for line in metadata.get_all("Requires-Dist", []):
                    requirement, _, marker = line.partition(";")
                    if marker.strip() == f"extra == '{extra}'":
                        found.append(requirement.strip())
    return tuple(found)


def libraries_cache_entry(cache: Path, requirements: Sequence[str]) -> Path:
    """Return the cache entry for the layer with the given requirements."""
    return cache / "libraries" / store.key(packages.RELEASE, *requirements, _FORM)


def make_libraries(directory: Path, requirements: Sequence[str], *, tools: Path, log: Path) -> None:
    """Install requirements for Debian's Python, and write them as a layer to `layer.tar`."""
    root = directory / "root"
    install = ["/usr/bin/python3", "-m", "pip", "install", "--no-compile"]
    script = (
        sandbox.overlay([tools])
        + shlex.join([*install, "--target", str(root / _SITE), *requirements])
        + "\n"
        + _compile(root)
        + f"tar -C {shlex.quote(str(root))} --numeric-owner --sort=name "
        + f"-cf {shlex.quote(str(directory / 'layer.tar'))} .\n"
        + f"rm -rf {shlex.quote(str(root))}\n"
    )
    processes.run(sandbox.once(script), log=log)


def cache_entry(cache: Path, *, base: Path, libraries: Path | None, wheel: Path | None) -> Path:
    """Return the cache entry for the image with the given layers and wheel."""
    parts = [base.name, libraries.name if libraries else None, _FORM]
    return cache / "images" / store.key(*parts, store.digest(wheel) if wheel else None)


def make(
    directory: Path,
    *,
    base: Path,
    libraries: Path | None,
    wheel: Path | None,
    tools: Path,
    log: Path,
) -> None:
    """Write the test image to `image.tar` in `directory`."""
    layers = [_layer(base / "layer.tar")]
    if libraries is not None:
        layers.append(_layer(libraries / "layer.tar"))
    if wheel is not None:
        (directory / "wheel.tar").write_bytes(wheel_layer(wheel))
        layers.append(_layer(directory / "wheel.tar"))
        make_bytecode(directory, wheel, tools=tools, log=log)
        layers.append(_layer(directory / "bytecode.tar"))
    write_image(directory / "image.tar", name=NAME, layers=layers, command=["python3"])


def make_bytecode(directory: Path, wheel: Path, *, tools: Path, log: Path) -> None:
    """Compile the modules of a wheel for Debian's Python, and write the bytecode as a layer to
    `bytecode.tar` in `directory`.
    """
    root = directory / "root"
    site = str(root / _SITE)
    script = (
        sandbox.overlay([tools])
        + shlex.join(["/usr/bin/python3", "-m", "zipfile", "--extract", str(wheel), site])
        + "\n"
        + _compile(root)
        + f"cd {shlex.quote(str(root))}\nfind . -name '*.pyc' | LC_ALL=C sort "
        + "| tar --owner=0 --group=0 --numeric-owner --files-from=- "
        + f"-cf {shlex.quote(str(directory / 'bytecode.tar'))}\n"
        + f"rm -rf {shlex.quote(str(root))}\n"
    )
    processes.run(sandbox.once(script), log=log)


def _compile(root: Path) -> str:
    """Return the shell command that compiles the modules below a directory for Debian's Python."""
    command = ["/usr/bin/python3", "-m", "compileall", "-q", "-s", str(root), "-p", "/"]
    # The times of the files differ in the image.
    command += ["--invalidation-mode", "unchecked-hash"]
    # The tests do not import the kubernetes package in Pods, and it has many files.
    command += ["-x", "/kubernetes/"]
    return shlex.join([*command, str(root / _SITE)]) + "\n"


def make_pause(directory: Path, *, pause: Path) -> None:
    """Write the pause image, which every Pod needs, to `image.tar` in `directory`."""
    make_of_program(directory, name=PAUSE_IMAGE, program=pause, path="pause")


def make_of_program(directory: Path, *, name: str, program: Path, path: str) -> None:
    """Write an image that contains one program, at `path`, to `image.tar` in `directory`."""
    layer = directory / "layer.tar"
    with tarfile.open(layer, "w") as tar:
        tar.add(program, path)
    write_image(directory / "image.tar", name=name, layers=[_layer(layer)], command=[f"/{path}"])
    layer.unlink()


def write_image(path: Path, *, name: str, layers: Sequence[Layer], command: Sequence[str]) -> None:
    """Write an image with the given layers in the `docker save` format."""
    config = json.dumps(
        {
            "architecture": "amd64",
            "os": "linux",
            "config": {"Cmd": list(command), "Env": list(_ENV)},
            "rootfs": {"type": "layers", "diff_ids": [f"sha256:{x.digest}" for x in layers]},
        }
    ).encode()
    config_name = f"{hashlib.sha256(config).hexdigest()}.json"
    manifest = [
        {
            "Config": config_name,
            "RepoTags": [name],
            "Layers": [f"{layer.digest}/layer.tar" for layer in layers],
        }
    ]
    with tarfile.open(path, "w") as tar:
        for layer in layers:
            tar.add(layer.path, f"{layer.digest}/layer.tar")
        _add(tar, config_name, config)
        _add(tar, "manifest.json", json.dumps(manifest).encode())


def wheel_layer(wheel: Path) -> bytes:
    """Return a layer, as a tar archive, with a pure Python wheel's files and commands."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar, zipfile.ZipFile(wheel) as archive:
        for name in archive.namelist():
            if not name.endswith("/"):
                _add(tar, f"{_SITE}/{name}", archive.read(name))
        for command, target in _commands(archive):
            module, _, function = target.partition(":")
            script = (
                f"#!/usr/bin/python3\nimport sys\nfrom {module} import {function}\n"
                f"sys.exit({function}())\n"
            )
            _add(tar, f"usr/local/bin/{command}", script.encode(), mode=0o755)
    return buffer.getvalue()


def _commands(archive: zipfile.ZipFile) -> Iterator[tuple[str, str]]:
    for name in archive.namelist():
        if name.endswith(".dist-info/entry_points.txt"):
            parser = configparser.ConfigParser(delimiters=("=",))
            parser.read_string(archive.read(name).decode())
            if parser.has_section("console_scripts"):
                yield from parser.items("console_scripts")


def _layer(path: Path) -> Layer:
    return Layer(path=path, digest=store.digest(path))


def _add(tar: tarfile.TarFile, name: str, content: bytes, mode: int = 0o644) -> None:
    info = tarfile.TarInfo(name)
    info.size, info.mode = len(content), mode
    tar.addfile(info, io.BytesIO(content))

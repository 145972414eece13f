"""Build the cluster's programs once, from Go modules whose checksums are in this package.

Each directory in `modules` contains the module files of one component. Its go.mod names the
programs, as tools, and the versions of all modules. Its go.sum contains their checksums, which Go
verifies. The directory of a version of Kubernetes can also contain the file `features.json`.
"""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from devcluster import golang
from machines import processes, store
from machines.console import Console, ToolError

MODULES = Path(__file__).with_name("modules")
# The longest builds are first, because two builds run at the same time.
COMPONENTS = ("kubernetes", "kueue", "kwok", "jobset", "containerd", "etcd", "cni", "pause")
# Without symbols and debug information, the programs are half as large and link faster.
LINKER_FLAGS = "-s -w"
# Without these tags, containerd contains snapshotters that need libraries in C.
TAGS = {"containerd": "no_aufs,no_btrfs,no_devmapper,no_zfs"}
# The directory of a module that its users need beside the programs: the manifests of a controller,
# and what kwok does with Pods.
KEPT = {"jobset": "config", "kueue": "config", "kwok": "kustomize/stage"}
# How long each build takes on two processors, in seconds. Several of them take less together,
# because they share packages.
SECONDS = {"kubernetes": 440, "kueue": 175, "kwok": 95, "jobset": 90, "containerd": 70, "etcd": 30}
# The parts of messages of Go that have the network as their cause.
_NETWORK = ("dial tcp", "no such host", "connection refused", "i/o timeout", "TLS handshake")


@dataclass(frozen=True, slots=True, kw_only=True)
class Component:
    """A component: the directory of its module files, the module of its programs and its version,
    the import paths of the programs, and the oldest version of Go that builds them.
    """

    name: str
    directory: Path
    module: str
    version: str
    imports: tuple[str, ...]
    go: golang.Version

    @property
    def programs(self) -> list[str]:
        """The names of the programs. A single program has the name of the component."""
        if len(self.imports) == 1:
            return [self.name]
        return [path.rpartition("/")[2] for path in self.imports]

    @property
    def title(self) -> str:
        """The name and the version, such as `etcd 3.7.3`."""
        return f"{self.name} {self.version}"

    def build_arguments(self) -> list[str]:
        """Return the arguments of `go build`, except for the output."""
        flags = ["-v", "-trimpath", "-buildvcs=false", "-mod=readonly"]
        if self.name in TAGS:
            flags.append(f"-tags={TAGS[self.name]}")
        linker = LINKER_FLAGS
        if self.name == "kubernetes":
            linker += _version_flags(self.version)
        return [*flags, f"-ldflags={linker}", *self.imports]


def versions() -> list[str]:
    """Return the versions of Kubernetes that can be built, such as `1.37`, the newest first."""
    found = [path.name.partition("-")[2] for path in MODULES.glob("kubernetes-*")]
    return sorted(found, key=golang.parse, reverse=True)


def module_directories() -> list[str]:
    """Return the names of the directories of all components, such as `etcd-3.7`."""
    return [path.name for path in MODULES.iterdir()]


def components(kubernetes: str) -> list[Component]:
    """Return all components of a cluster with a version of Kubernetes, such as `1.37`."""
    found = []
    for name in COMPONENTS:
        pattern = f"kubernetes-{kubernetes}" if name == "kubernetes" else f"{name}-*"
        (directory,) = MODULES.glob(pattern)
        found.append(read(directory, name))
    return found


def read(directory: Path, name: str) -> Component:
    """Return the component whose module files are in `directory`."""
    text = (directory / "go.mod").read_text()
    imports = tuple(_tools(text)) or (".",)
    required = dict(re.findall(r"^(?:require)?\s*(\S+) v(\S+)", text, re.MULTILINE))
    required["."] = directory.name.rpartition("-")[2]  # the version of programs in the directory
    matches = [module for module in required if f"{imports[0]}/".startswith(f"{module}/")]
    module = max(matches, key=len)
    minimum = re.search(r"^go (\S+)$", text, re.MULTILINE)
    return Component(
        name=name,
        directory=directory,
        module=module,
        version=required[module],
        imports=imports,
        go=golang.parse(minimum[1]) if minimum else (),
    )


def features(kubernetes: str) -> dict[str, Any]:
    """Return the feature gates and the API versions that a version of Kubernetes gets switched on.

    Both are empty if its directory has no file `features.json`.
    """
    path = MODULES / f"kubernetes-{kubernetes}" / "features.json"
    if not path.exists():
        return {"gates": [], "apis": []}
    content: dict[str, Any] = json.loads(path.read_text())
    return content


def cache_entry(cache: Path, component: Component) -> Path:
    """Return the cache entry for a component's programs.

    Its name depends on the module files and on how the programs are built.
    """
    files = [path for path in component.directory.iterdir() if path.suffix in _INPUTS]
    content = [path.read_bytes() for path in sorted(files)]
    inputs = store.key(component.build_arguments(), content, KEPT.get(component.name))
    return cache / "programs" / component.directory.name / f"{component.version}-{inputs}"


_INPUTS = (".go", ".mod", ".sum")


def ensure(
    cache: Path, wanted: Sequence[Component], *, tools: Path, logs: Path, console: Console
) -> dict[str, Path]:
    """Return the programs of the components by their names. Build those that are missing or
    damaged, two components at the same time.
    """
    todo = [each for each in wanted if store.damage(cache_entry(cache, each)) is not None]
    if todo:
        minutes = max(1, round(sum(SECONDS.get(each.name, 5) for each in todo) / 60))
        names = ", ".join(each.title for each in todo)
        hint = f"built once, some {minutes} min on 2 cores: {names}"
        with console.step("programs", hint):
            _build(cache, todo, tools=tools, logs=logs, console=console)
    return {name: cache_entry(cache, each) / name for each in wanted for name in each.programs}


def _build(
    cache: Path, todo: Sequence[Component], *, tools: Path, logs: Path, console: Console
) -> None:
    needed = max(each.go for each in todo)
    go = golang.find(cache, needed=needed, tools=tools, log=logs / "go.log", console=console)
    cancelled = threading.Event()
    with ThreadPoolExecutor(2) as pool:
        futures = [
            pool.submit(_ensure_one, cache, each, go, logs, console, cancelled) for each in todo
        ]
        try:
            for future in as_completed(futures):
                future.result()
        except BaseException:
            cancelled.set()
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _ensure_one(
    cache: Path,
    component: Component,
    go: Path,
    logs: Path,
    console: Console,
    cancelled: threading.Event,
) -> None:
    log = logs / f"build-{component.name}.log"
    make = partial(_make, component=component, go=go, log=log, console=console, cancelled=cancelled)
    with console.step(f"  {component.title}"):
        store.ensure(cache_entry(cache, component), make, report=console.report)


def _make(
    directory: Path,
    *,
    component: Component,
    go: Path,
    log: Path,
    console: Console,
    cancelled: threading.Event,
) -> None:
    """Build a component's programs in `directory`."""
    single = len(component.imports) == 1
    output = str(directory / component.name) if single else f"{directory}/"
    try:
        processes.run(
            [str(go), "build", f"-o={output}", *component.build_arguments()],
            log=log,
            console=console,
            cwd=component.directory,
            env=golang.environment(),
            label=component.name,
            cancelled=cancelled,
        )
    except ToolError as exc:
        if cancelled.is_set():
            raise
        raise ToolError(explain(component, processes.tail(log, 30), log)) from exc
    if kept := KEPT.get(component.name):
        shutil.copytree(_source(component, go) / kept, directory / Path(kept).name)


def _source(component: Component, go: Path) -> Path:
    """Return the directory with the source of a component's module, which Go has downloaded."""
    done = subprocess.run(
        [str(go), "list", "-mod=readonly", "-m", "-f={{.Dir}}", component.module],
        cwd=component.directory,
        env=golang.environment(),
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise ToolError(f"cannot find the source of {component.title}: {done.stderr.strip()}")
    return Path(done.stdout.strip())


def explain(component: Component, output: str, log: Path) -> str:
    """Return one line that says why a build failed and what to do. `output` is the end of Go's
    output.
    """
    lines = [line.strip() for line in output.splitlines() if line.strip()]
    for line in reversed(lines):
        if "checksum mismatch" in line or "SECURITY ERROR" in line:
            return (
                f"a module of {component.title} differs from its checksum in go.sum: run "
                f"'go clean -modcache' and try again, or set GOPROXY to another proxy; see {log}"
            )
        if any(part in line for part in _NETWORK):
            return (
                f"the modules of {component.title} cannot be downloaded ({line[:200]}): "
                "check the network, or set GOPROXY to a module proxy that this machine can reach"
            )
    last = lines[-1][:200] if lines else "no output"
    return f"{component.title} could not be built ({last}): see {log}, then try again"


def program(cache: Path, name: str, *, kubernetes: str = "") -> Path:
    """Return the path of a program for a version of Kubernetes, such as `1.37.2`.

    It is the newest version unless `kubernetes` is a version that can be built. The program may not
    have been built yet.
    """
    minor = kubernetes.rpartition(".")[0]
    for each in components(minor if minor in versions() else versions()[0]):
        if name in each.programs:
            return cache_entry(cache, each) / name
    raise KeyError(name)


def remove_old(cache: Path, wanted: Sequence[Component]) -> None:
    """Remove the programs of components that no longer exist, and those of the wanted components
    that were built from other module files.
    """
    store.keep_only(cache / "programs", module_directories())
    for each in wanted:
        entry = cache_entry(cache, each)
        store.keep_only(entry.parent, [entry.name])


def _tools(text: str) -> list[str]:
    """Return the import paths in the `tool` lines of a go.mod."""
    block = re.search(r"^tool \((.*?)^\)", text, re.MULTILINE | re.DOTALL)
    single = re.findall(r"^tool ([^\s(]+)$", text, re.MULTILINE)
    return [*(block[1].split() if block else []), *single]


def _version_flags(version: str) -> str:
    """Return the linker flags that set the version which Kubernetes reports to clients."""
    major, minor, _ = version.split(".")
    base = "k8s.io/component-base/version"
    values: Mapping[str, str] = {
        f"{base}.gitVersion": f"v{version}",
        f"{base}.gitMajor": major,
        f"{base}.gitMinor": minor,
        f"{base}.gitTreeState": "clean",
        "k8s.io/client-go/pkg/version.gitVersion": f"v{version}",
    }
    return "".join(f" -X {name}={value}" for name, value in values.items())

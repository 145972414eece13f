"""Build the Kubernetes binaries once, from Debian's source package."""

from __future__ import annotations

import shlex
import shutil
from pathlib import Path

from machines import processes, sandbox, store
from machines.console import Console, ToolError
from machines.packages import Apt

VERSION = "1.20.2"
# This is the checksum of Debian's upstream tarball. Debian builds only kubectl from the tarball,
# but the tarball contains all of Kubernetes.
SOURCE_SHA256 = "b83c0780efb182d928dc63d46488a847f161f04e40a94b96bf5247dd671ecdfc"
COMPONENTS = (
    "kube-apiserver",
    "kube-controller-manager",
    "kube-scheduler",
    "kubelet",
    "kube-proxy",
)
# Without symbols and debug information, the binaries are half as large and link faster.
LINKER_FLAGS = "-s -w"
PAUSE_SOURCE = Path(__file__).with_name("pause.go")

# The source is not a git checkout. Without this file, the binaries would report version v0.0.0 to
# clients.
_VERSION_FILE = f"""\
KUBE_GIT_COMMIT={"0" * 40}
KUBE_GIT_TREE_STATE=archive
KUBE_GIT_VERSION=v{VERSION}
KUBE_GIT_MAJOR={VERSION.split(".")[0]}
KUBE_GIT_MINOR={VERSION.split(".")[1]}
"""


def cache_entry(cache: Path) -> Path:
    """Return the cache entry for the binaries.

    Its name depends on the version, the source's checksum, the components, the linker flags and the
    pause program.
    """
    inputs = store.key(SOURCE_SHA256, COMPONENTS, LINKER_FLAGS, PAUSE_SOURCE.read_bytes())
    return cache / "binaries" / f"{VERSION}-{inputs}"


def make(directory: Path, *, apt: Apt, tools: Path, console: Console, log: Path) -> None:
    """Download and build the source, and leave the binaries in `directory`.

    Then remove the source and the directory `tools`.
    """
    work = directory / "work"
    home, source = work / "home", work / f"kubernetes-{VERSION}"
    home.mkdir(parents=True)
    processes.run(["tar", "-xzf", str(_fetch(apt, work)), "-C", str(work)], log=log)
    (source / ".go/src/k8s.io").mkdir(parents=True)
    (source / ".go/src/k8s.io/kubernetes").symlink_to("../../..")
    (work / "version").write_text(_VERSION_FILE)
    (work / "pause").mkdir()
    shutil.copy(PAUSE_SOURCE, work / "pause/main.go")
    script = _script(work=work, source=source, tools=tools)
    processes.run(sandbox.once(script), log=log, console=console)
    built = source / "_output/local/bin/linux/amd64"
    for binary in (*(built / name for name in COMPONENTS), work / "pause/pause"):
        shutil.copy(binary, directory)
    shutil.rmtree(work)
    shutil.rmtree(tools)


def _script(*, work: Path, source: Path, tools: Path) -> str:
    targets = " ".join(f"cmd/{name}" for name in COMPONENTS)
    path = shlex.quote
    return (
        sandbox.overlay([tools])
        + "export CGO_ENABLED=0 GO111MODULE=off GOFLAGS=\n"
        + f"export GOPATH={path(str(source / '.go'))} HOME={path(str(work / 'home'))}\n"
        + f"export KUBE_GIT_VERSION_FILE={path(str(work / 'version'))}\n"
        + f"cd {path(str(work / 'pause'))} && go build -ldflags '{LINKER_FLAGS}' -o pause .\n"
        + f"cd {path(str(source / '.go/src/k8s.io/kubernetes'))}\n"
        + f"make GOLDFLAGS='{LINKER_FLAGS}' WHAT='{targets}'\n"
    )


def _fetch(apt: Apt, work: Path) -> Path:
    """Download the source package, whose signature apt verifies, and return the tarball's path."""
    apt.run("source", "--download-only", "kubernetes", cwd=work)
    archive = next(work.glob("kubernetes_*.orig.tar.gz"), None)
    if archive is None or store.digest(archive) != SOURCE_SHA256:
        raise ToolError(
            f"Debian's source package is no longer Kubernetes {VERSION}: "
            f"put its new version and checksum into {Path(__file__).name}"
        )
    return archive

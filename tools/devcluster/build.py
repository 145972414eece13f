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


# Since Go 1.18, reflect.mapiterinit stores the state of an iteration in memory of the caller. The
# vendored reflect2 1.0.1 calls it as before, so that it writes to arbitrary memory: an API server
# crashes sooner or later, most often while it handles a patch or a custom resource. Each item
# consists of a file, a part of it, and the replacement.
_REFLECT2 = "vendor/github.com/modern-go/reflect2"
SOURCE_CHANGES = (
    (
        f"{_REFLECT2}/unsafe_link.go",
        "func mapiterinit(rtype unsafe.Pointer, m unsafe.Pointer) *hiter\n",
        "func mapiterinit(rtype unsafe.Pointer, m unsafe.Pointer, it *hiter)\n",
    ),
    (
        f"{_REFLECT2}/unsafe_link.go",
        "\t// rest fields are ignored\n",
        """\
\tt, h, buckets, bptr unsafe.Pointer
\toverflow, oldoverflow unsafe.Pointer
\tstartBucket uintptr
\toffset uint8
\twrapped bool
\tB, i uint8
\tbucket, checkBucket uintptr
""",
    ),
    (
        f"{_REFLECT2}/unsafe_map.go",
        "\treturn &UnsafeMapIterator{\n"
        "\t\thiter:      mapiterinit(type2.rtype, *(*unsafe.Pointer)(obj)),\n",
        "\tit := new(hiter)\n"
        "\tmapiterinit(type2.rtype, *(*unsafe.Pointer)(obj), it)\n"
        "\treturn &UnsafeMapIterator{\n"
        "\t\thiter:      it,\n",
    ),
)


def cache_entry(cache: Path) -> Path:
    """Return the cache entry for the binaries.

    Its name depends on the version, the source's checksum and changes, the components, the linker
    flags and the pause program.
    """
    inputs = store.key(
        SOURCE_SHA256, SOURCE_CHANGES, COMPONENTS, LINKER_FLAGS, PAUSE_SOURCE.read_bytes()
    )
    return cache / "binaries" / f"{VERSION}-{inputs}"


def make(directory: Path, *, apt: Apt, tools: Path, console: Console, log: Path) -> None:
    """Download and build the source, and leave the binaries in `directory`.

    Then remove the source and the directory `tools`.
    """
    work = directory / "work"
    home, source = work / "home", work / f"kubernetes-{VERSION}"
    home.mkdir(parents=True)
    processes.run(["tar", "-xzf", str(_fetch(apt, work)), "-C", str(work)], log=log)
    _change(source)
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


def _change(source: Path) -> None:
    """Make the `SOURCE_CHANGES`."""
    for name, old, new in SOURCE_CHANGES:
        path = source / name
        text = path.read_text()
        if text.count(old) != 1:
            raise ToolError(
                f"{name} of Kubernetes {VERSION} does not contain the part that "
                f"{Path(__file__).name} changes: {old.strip()!r}"
            )
        path.write_text(text.replace(old, new))


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

"""PyTorch for the tests of distributed programs.

The package index has no PyTorch for CPUs only, so Debian's packages are unpacked into the cache.
Programs run with it on this machine, and in a container whose only layer is the unpacked directory.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from collections.abc import Mapping
from functools import partial
from pathlib import Path

from devcluster import images
from devcluster.paths import Paths
from machines import packages, processes, store
from machines.console import Console
from machines.packages import Apt

# These are PyTorch and what it loads, including Python and the C library, so that nothing depends
# on what is installed. Packages that only rarely used parts of PyTorch need are omitted.
PACKAGES = (
    "dash",
    "libblas3",
    "libbz2-1.0",
    "libc6",
    "libcpuinfo0",
    "libdnnl2",
    "libexpat1",
    "libffi8",
    "libfmt9",
    "libgcc-s1",
    "libgflags2.2",
    "libgfortran5",
    "libgloo0",
    "libgomp1",
    "libgoogle-glog0v6",
    "libhiredis0.14",
    "libibverbs1",
    "liblapack3",
    "liblzma5",
    "libnl-3-200",
    "libnl-route-3-200",
    "libnuma1",
    "libonnx1",
    "libprotobuf32",
    "libpthreadpool0",
    "libpython3.11-minimal",
    "libpython3.11-stdlib",
    "libquadmath0",
    "libsleef3",
    "libssl3",
    "libstdc++6",
    "libtensorpipe0",
    "libtorch1.13",
    "libunwind8",
    "libuuid1",
    "libuv1",
    "libxnnpack0",
    "ocl-icd-libopencl1",
    "patchelf",
    "python3-astunparse",
    "python3-numpy",
    "python3-six",
    "python3-torch",
    "python3-typing-extensions",
    "python3.11-minimal",
    "zlib1g",
)
# PyTorch is linked to these libraries, but does not call them. Without them and the 240 libraries
# that they load, it starts in two thirds of the time.
_UNUSED = (
    "libav",
    "libleveldb",
    "liblmdb",
    "libopencv",
    "libsnappy",
    "libsw",
    "libzmq",
    "libzstd",
)
_LIBRARIES = "usr/lib/x86_64-linux-gnu"
_LOADER = f"{_LIBRARIES}/ld-linux-x86-64.so.2"
# Python finds its modules relative to the path of this program.
_PROGRAM = "usr/bin/torch-python"
_PROGRAM_TEXT = f"""\
#!/bin/sh
root=${{0%/{_PROGRAM}}}
libraries=$root/{_LIBRARIES}:$root/usr/lib
exec "$root/{_LOADER}" --argv0 "$0" --library-path "$libraries" "$root/usr/bin/python3.11" "$@"
"""
# Compile the modules that a training imports, so that not every rank does it.
_COMPILE = "import torch.distributed.run, torch.nn.parallel, torch.optim"


def cache_entry(cache: Path) -> Path:
    """Return the path of the cache entry, which may not exist yet."""
    content = (packages.RELEASE, PACKAGES, _UNUSED, _PROGRAM_TEXT, _COMPILE)
    return cache / "packages" / f"torch-{store.key(*content)}"


def root(cache: Path) -> Path:
    """Return the directory into which the packages are unpacked."""
    return cache_entry(cache) / "root"


def program(cache: Path) -> Path:
    """Return the path of the Python that has PyTorch."""
    return root(cache) / _PROGRAM


def prepare(paths: Paths, *, console: Console) -> Path:
    """Return the path of a Python that has PyTorch.

    Unpack the packages if they are missing or damaged, which requires Debian and root permissions.
    """
    paths.logs.mkdir(parents=True, exist_ok=True)
    log = paths.logs / "apt.log"
    apt = Apt(paths.cache / "apt", log=log, console=console)
    make = partial(_unpack, apt, log=log)
    store.ensure(cache_entry(paths.cache), make, report=console.report)
    return program(paths.cache)


def write_image(cache: Path, path: Path, *, name: str, files: Mapping[str, Path]) -> None:
    """Write an image with PyTorch and some files to `path`, in the `docker save` format.

    `files` are the files that the root directory of the image contains. `python3` is the Python
    that has PyTorch.
    """
    layers = []
    for number, content in enumerate(({".": root(cache)}, files)):
        layer = path.with_name(f"{path.stem}-{number}.tar")
        with tarfile.open(layer, "w") as tar:
            for target, source in content.items():
                tar.add(source, target)
        layers.append(images.Layer(path=layer, digest=store.digest(layer)))
    images.write_image(path, name=name, layers=layers, command=["python3"])
    for each in layers:
        each.path.unlink()


def _unpack(apt: Apt, directory: Path, *, log: Path) -> None:
    unpacked = directory / "root"
    packages.unpack_only(apt, PACKAGES, unpacked)
    shutil.rmtree(unpacked / "usr/share")
    for test in (unpacked / "usr/lib/python3/dist-packages/torch/bin").glob("*[Tt]est*"):
        test.unlink()
    # Debian's alternatives system and other packages would create these links.
    for library in ("blas", "lapack"):
        link = unpacked / _LIBRARIES / f"lib{library}.so.3"
        link.symlink_to(f"{library}/{link.name}")
    (unpacked / "usr/bin/python3").symlink_to("python3.11")
    (unpacked / "tmp").mkdir()
    command = unpacked / _PROGRAM
    command.write_text(_PROGRAM_TEXT)
    command.chmod(0o755)
    _remove_unused(unpacked, log)
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    processes.run([str(command), "-I", "-c", _COMPILE], log=log, env=environment)


def _remove_unused(unpacked: Path, log: Path) -> None:
    """Remove the names of the unused libraries from PyTorch's list of libraries."""
    libraries = unpacked / _LIBRARIES
    library = str(libraries / "libtorch_cpu.so.1.13.0")
    patchelf = [str(unpacked / _LOADER), "--library-path", str(libraries)]
    patchelf.append(str(unpacked / "usr/bin/patchelf"))
    needed = subprocess.run(
        [*patchelf, "--print-needed", library], stdout=subprocess.PIPE, text=True, check=True
    )
    options = []
    for name in needed.stdout.split():
        if name.startswith(_UNUSED):
            options += ["--remove-needed", name]
    processes.run([*patchelf, *options, library], log=log)

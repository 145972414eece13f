"""A fake docker or podman program. It records its command lines and replies as the engine would."""

from __future__ import annotations

import ast
import os
import sys
from pathlib import Path
from typing import Any

ID = f"sha256:{'1' * 64}"
DIGEST = f"sha256:{'d' * 64}"

# The program imports only modules that Python imports at its start. Importing json and pathlib
# would take longer than everything else.
_PROGRAM = """#!{python} -SE
import os, sys

home = {home!r}


def read(path):
    with open(path, encoding="utf-8") as file:
        return file.read()


def write(path, text, mode="w"):
    with open(path, mode, encoding="utf-8") as file:
        file.write(text)


behavior = eval(read(home + "/behavior"))
words = sys.argv[1:]
call = {{"words": words, "buildkit": os.environ.get("DOCKER_BUILDKIT")}}
images = behavior["images"]
podman = behavior["podman"]


def value(option):
    return words[words.index(option) + 1] if option in words else None


def main():
    if behavior["fails"] and words[: len(behavior["fails"])] == behavior["fails"]:
        print("\\n".join(f"line {{number}}" for number in range(1, 21)), file=sys.stderr)
        print("the error message", file=sys.stderr)
        return 7
    if words == ["--version"]:
        print("podman version 4.3.1" if podman else "Docker version 28.2.2, build e6534b4")
    elif words[0] == "version":
        if not behavior["daemon"]:
            error = "Cannot connect to the Docker daemon at unix:///x. Is the daemon running?"
            print(error, file=sys.stderr)
        return 0 if behavior["daemon"] else 1
    elif words == ["buildx", "version"]:
        return 0 if behavior["buildx"] else 1
    elif words == ["build", "--help"]:
        if os.environ.get("DOCKER_BUILDKIT") == "1":
            print("  --progress string" if behavior["buildkit"] else "")
            return 0 if behavior["buildkit"] else 1
    elif "build" in words[:2]:
        context = words[-1]
        call["context"] = {{
            os.path.relpath(os.path.join(directory, name), context): read(
                os.path.join(directory, name)
            )
            for directory, _, names in os.walk(context)
            for name in names
        }}
        print("step one", flush=True)
        print("step two", file=sys.stderr, flush=True)
        if behavior["keeps_image"]:
            images.append({id!r})
            if value("--tag"):
                images.append(value("--tag"))
        write(value("--iidfile"), {id!r})
    elif words[:2] == ["image", "inspect"]:
        if words[-1] not in images:
            return 1
        if "Id" in value("--format"):
            print({id!r}.removeprefix("sha256:") if podman else {id!r})
        else:
            print(behavior["digests"])
    elif words[0] == "tag":
        images.append(words[2])
    elif words[0] == "push":
        print("The push refers to repository")
        if podman:
            write(value("--digestfile"), {digest!r})
        elif behavior["reports_digest"]:
            print("1: digest: {digest} size: 1153")
    elif words[:2] == ["image", "ls"]:
        names = [name for name in images if ":" in name and name != {id!r}]
        print("\\n".join([*names, "<none>:<none>"]))
    elif words[:2] == ["image", "rm"]:
        images.remove(words[-1])
    return 0


code = main()
write(home + "/behavior", repr(behavior))
write(home + "/calls", repr(call) + "\\n", "a")
sys.exit(code)
"""


class FakeEngine:
    """A program ``docker`` or ``podman`` in its own directory, for the PATH of ``path_with``."""

    def __init__(self, home: Path, name: str, **behavior: Any) -> None:
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        default = {
            "podman": name == "podman", "daemon": True, "buildx": False, "buildkit": False,
            "fails": [], "images": [], "keeps_image": True, "digests": "", "reports_digest": True,
        }  # fmt: skip
        self._write({**default, **behavior})
        program = home / name
        program.write_text(
            _PROGRAM.format(python=sys.executable, home=str(home), id=ID, digest=DIGEST)
        )
        program.chmod(0o755)

    def _write(self, behavior: dict[str, Any]) -> None:
        (self.home / "behavior").write_text(repr(behavior))

    def _read(self) -> dict[str, Any]:
        behavior: dict[str, Any] = ast.literal_eval((self.home / "behavior").read_text())
        return behavior

    def change(self, **behavior: Any) -> None:
        """Change the behavior of the next calls."""
        self._write({**self._read(), **behavior})

    @property
    def images(self) -> list[str]:
        """Return the images that the engine has."""
        images: list[str] = self._read()["images"]
        return images

    @property
    def calls(self) -> list[dict[str, Any]]:
        """Return the recorded calls: their arguments, and for a build the files of its context."""
        calls = self.home / "calls"
        if not calls.exists():
            return []
        return [ast.literal_eval(line) for line in calls.read_text().splitlines()]

    def commands(self, *first: str) -> list[list[str]]:
        """Return the arguments of the calls that start with ``first``."""
        return [call["words"] for call in self.calls if call["words"][: len(first)] == list(first)]


def path_with(*engines: FakeEngine) -> str:
    """Return a PATH that has no engines except the given ones."""
    return os.pathsep.join([str(engine.home) for engine in engines] + ["/nowhere"])

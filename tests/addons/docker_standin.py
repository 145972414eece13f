"""A stand-in for docker or podman where none can run: it writes down what it is told, and answers as they do."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path
from typing import Any

ID = f"sha256:{'1' * 64}"
DIGEST = f"sha256:{'d' * 64}"

_PROGRAM = """#!{python} -SE
import json, os, pathlib, sys

home = pathlib.Path({home!r})
how = json.loads((home / "how.json").read_text())
words = sys.argv[1:]
call = {{"words": words, "buildkit": os.environ.get("DOCKER_BUILDKIT")}}
images = how["images"]
podman = how["podman"]


def value(option):
    return words[words.index(option) + 1] if option in words else None


def main():
    if how["fails"] and words[: len(how["fails"])] == how["fails"]:
        print("\\n".join(f"line {{number}}" for number in range(1, 21)), file=sys.stderr)
        print("what went wrong", file=sys.stderr)
        return 7
    if words == ["--version"]:
        print("podman version 4.3.1" if podman else "Docker version 28.2.2, build e6534b4")
    elif words[0] == "version":
        if not how["daemon"]:
            print("Cannot connect to the Docker daemon at unix:///x. Is the docker daemon running?", file=sys.stderr)
        return 0 if how["daemon"] else 1
    elif words == ["buildx", "version"]:
        return 0 if how["buildx"] else 1
    elif words == ["build", "--help"]:
        if os.environ.get("DOCKER_BUILDKIT") == "1":
            print("  --progress string" if how["buildkit"] else "")
            return 0 if how["buildkit"] else 1
    elif "build" in words[:2]:
        folder = pathlib.Path(words[-1])
        call["context"] = {{str(p.relative_to(folder)): p.read_text() for p in folder.rglob("*") if p.is_file()}}
        print("step one", flush=True)
        print("step two", file=sys.stderr, flush=True)
        if how["kept"]:
            images.append({id!r})
            if value("--tag"):
                images.append(value("--tag"))
        pathlib.Path(value("--iidfile")).write_text({id!r})
    elif words[:2] == ["image", "inspect"]:
        if words[-1] not in images:
            return 1
        if "Id" in value("--format"):
            print({id!r}.removeprefix("sha256:") if podman else {id!r})
        else:
            print(how["digests"])
    elif words[0] == "tag":
        images.append(words[2])
    elif words[0] == "push":
        print("The push refers to repository")
        if podman:
            pathlib.Path(value("--digestfile")).write_text({digest!r})
        elif how["tells"]:
            print("1: digest: {digest} size: 1153")
    elif words[:2] == ["image", "ls"]:
        print("\\n".join([*(name for name in images if ":" in name and name != {id!r}), "<none>:<none>"]))
    elif words[:2] == ["image", "rm"]:
        images.remove(words[-1])
    return 0


code = main()
(home / "how.json").write_text(json.dumps(how))
with (home / "calls").open("a") as calls:
    calls.write(json.dumps(call) + "\\n")
sys.exit(code)
"""


class StandIn:
    """A program ``docker`` or ``podman`` in a folder of its own, which ``path`` puts first."""

    def __init__(self, home: Path, name: str, **how: Any) -> None:
        self.home = home
        home.mkdir(parents=True, exist_ok=True)
        usual = {
            "podman": name == "podman", "daemon": True, "buildx": False, "buildkit": False, "fails": [], "images": [],
            "kept": True, "digests": "", "tells": True,
        }  # fmt: skip
        self._write({**usual, **how})
        program = home / name
        program.write_text(
            _PROGRAM.format(python=sys.executable, home=str(home), id=ID, digest=DIGEST)
        )
        program.chmod(0o755)

    def _write(self, how: dict[str, Any]) -> None:
        (self.home / "how.json").write_text(json.dumps(how))

    def change(self, **how: Any) -> None:
        """Let it be otherwise from now on."""
        self._write({**json.loads((self.home / "how.json").read_text()), **how})

    @property
    def images(self) -> list[str]:
        """What it has."""
        found: list[str] = json.loads((self.home / "how.json").read_text())["images"]
        return found

    @property
    def calls(self) -> list[dict[str, Any]]:
        """What it was told."""
        calls = self.home / "calls"
        return (
            [json.loads(line) for line in calls.read_text().splitlines()] if calls.exists() else []
        )

    def told(self, *first: str) -> list[list[str]]:
        """The commands that began with these words."""
        return [call["words"] for call in self.calls if call["words"][: len(first)] == list(first)]


def path(*stand_ins: StandIn) -> str:
    """A PATH on which there is no engine but these."""
    return os.pathsep.join([str(item.home) for item in stand_ins] + ["/nowhere"])

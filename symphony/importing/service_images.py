"""The images of services in compose files: how they are built, and what is known about them."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from symphony.errors import SpecError, SymphonyError
from symphony.importing import dockerfile
from symphony.importing.dockerfile import Program
from symphony.importing.paths import rebased
from symphony.importing.result import Imported
from symphony.model.settings import validators

# The commands and ports of images whose own command a compose file usually does not repeat.
COMMANDS = {
    "memcached": ["memcached"],
    "mongo": ["mongod"],
    "nats": ["nats-server"],
    "nginx": ["nginx", "-g", "daemon off;"],
    "redis": ["redis-server"],
    "valkey": ["valkey-server"],
}
PORTS = {
    "clickhouse-server": 8123,
    "elasticsearch": 9200,
    "etcd": 2379,
    "mariadb": 3306,
    "memcached": 11211,
    "minio": 9000,
    "mongo": 27017,
    "mysql": 3306,
    "nats": 4222,
    "nginx": 80,
    "postgres": 5432,
    "rabbitmq": 5672,
    "redis": 6379,
    "valkey": 6379,
}
# The clients in these images, which use no port themselves.
_CLIENT = re.compile(
    r"(?<![\w-])(redis-cli|valkey-cli|mysql|mysqldump|mysqladmin|mariadb|mariadb-dump|psql|pg_dump"
    r"|pg_dumpall|pg_restore|mongo|mongosh|mongodump|etcdctl|clickhouse-client|rabbitmqadmin|mc)"
    r"(?![\w-])"
)
# A larger directory is not listed in the build context.
_MAX_CONTEXT_ENTRIES = 200


class Images:
    """The images that an experiment builds.

    Relative paths in the compose file are relative to ``base``, and those in the result to
    ``directory``.
    """

    def __init__(self, imported: Imported, base: Path, directory: Path) -> None:
        self._imported = imported
        self._base = base
        self._directory = directory
        self.described: dict[str, Any] = {}

    def context(self, build: Any) -> str | None:
        """Return the directory from which an image is built, or None if there is none."""
        context = build.get("context", ".") if isinstance(build, Mapping) else build
        if not isinstance(context, str) or not (self._base / context).is_dir():
            return None
        return os.path.normpath(self._base / context)

    def program(self, build: Any) -> Program:
        """Return what the Dockerfile of an image runs, as far as the file contains it."""
        from symphony.model.document.documents import read_text

        context = self.context(build)
        options = build if isinstance(build, Mapping) else {}
        if context is None:
            return Program()
        text = options.get("dockerfile_inline")
        if text is None:
            path = Path(context, str(options.get("dockerfile", "Dockerfile")))
            try:
                text = read_text(path)
            except SymphonyError:
                return Program()
        return dockerfile.program(str(text), str(options.get("target") or ""))

    def ports(self, image: Any, build: Any) -> tuple[int, ...]:
        """Return the ports of an image that are in its Dockerfile, or usual for its name."""
        ports = () if build is None else self.program(build).ports
        usual = PORTS.get(short_name(image))
        return ports or (() if usual is None else (usual,))

    def translate(self, where: str, name: str, image: Any, build: Any) -> str | None:
        """Return the image of a process, and describe how it is built if ``build`` is not None.

        ``name`` is the name of the process.
        """
        if build is None:
            return None if image is None else str(image)
        where = f"{where}.build"
        context = self.context(build)
        if context is None:
            self._imported.omit(where, "the context is not a directory", "add the image to images")
            return str(image or name)
        repository = _repository(str(image or name), name)
        if image is not None and repository != str(image):
            problem = f"the image is {repository!r}, and its tag depends on its contents"
            self._imported.omit(f"{where}.image".replace(".build.", "."), problem)
        options = build if isinstance(build, Mapping) else {}
        relative = os.path.relpath(context, self._base)
        path = str(options.get("dockerfile", "Dockerfile"))
        self.described[repository] = {
            "dockerfile": self._path(os.path.normpath(Path(relative) / path)),
            "context_directories": [
                {"name": entry, "path": self._path(os.path.normpath(Path(relative) / entry))}
                for entry in self._entries(where, context)
            ],
            **_options(options),
        }
        for key in options:
            if key not in ("context", "dockerfile", "args", "target", "platforms"):
                fix = "use build_options"
                self._imported.omit(f"{where}.{key}", "there is no equivalent", fix)
        return repository

    def _entries(self, where: str, context: str) -> list[str]:
        """Return the names of the files in a build context."""
        entries = sorted(set(os.listdir(context)) - {".git"})
        if len(entries) > _MAX_CONTEXT_ENTRIES:
            problem = f"{context} has many files"
            self._imported.omit(where, problem, "add them to context_directories")
            return []
        self._imported.omit(
            where,
            "context_directories lists the files that exist now",
            "add new files; set the registry in the name of the image",
        )
        return entries

    def _path(self, path: str) -> str:
        return rebased(path, self._base, self._directory)


def has_client(words: Iterable[str]) -> bool:
    """Return whether a command contains a client of a server, and not only the server."""
    return any(_CLIENT.search(word) for word in words)


def short_name(image: Any) -> str:
    """Return the last part of the name of an image, without its tag."""
    name = str(image or "").partition("@")[0]
    return name.rpartition("/")[2].partition(":")[0]


def _repository(image: str, default: str) -> str:
    """Return the name of an image without its tag, or ``default`` if it is not valid."""
    name = image.partition("@")[0]
    head, colon, tag = name.rpartition(":")
    if colon and "/" not in tag:
        name = head
    try:
        return validators.repository(name)
    except SpecError:
        return default


def _options(build: Mapping[str, Any]) -> dict[str, list[str]]:
    options: list[str] = []
    given = build.get("args") or {}
    if isinstance(given, Mapping):
        given = [_build_argument(key, value) for key, value in given.items()]
    for argument in given:
        options += ["--build-arg", str(argument)]
    if build.get("target"):
        options += ["--target", str(build["target"])]
    if build.get("platforms"):
        options.append(f"--platform={','.join(map(str, build['platforms']))}")
    return {"build_options": options} if options else {}


def _build_argument(name: str, value: Any) -> str:
    """Return a build argument. One without a value has that of the variable of this name."""
    return name if value is None else f"{name}={value}"

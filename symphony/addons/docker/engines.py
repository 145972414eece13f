"""Container engines by their command lines: docker with each of its builders, and podman.

The command line, and no client library: only it has BuildKit, the user's logins, contexts and builders.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess

from symphony.addons.docker.subprocesses import Output, asked, failed, step

BUILDX, BUILDKIT, CLASSIC, PODMAN = "docker-buildx", "docker-buildkit", "docker-classic", "podman"

_BUILD = {
    BUILDX: ("buildx", "build", "--load", "--progress=plain"),
    BUILDKIT: ("build", "--progress=plain"),
    # Without the last it leaves the container of each step that failed.
    CLASSIC: ("build", "--force-rm"),
    PODMAN: ("build",),
}
# What docker itself is told of its builder.
_ENV: dict[str, dict[str, str]] = {
    BUILDX: {},
    BUILDKIT: {"DOCKER_BUILDKIT": "1"},
    CLASSIC: {"DOCKER_BUILDKIT": "0"},
    PODMAN: {},
}
# How docker begins to say what to do about the builder that it was told to use here: nothing to tell the user.
_NOTICE = "DEPRECATED: The legacy builder is deprecated"
_DIGEST = re.compile(r"\bdigest: (sha256:[0-9a-f]{64})\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """An engine of one ``kind``; ``program`` is its command line."""

    kind: str
    program: str
    env: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "env", _ENV[self.kind])

    # --- command lines ---

    def build_command(
        self, folder: Path, dockerfile: Path, answer: Path, tag: str | None, options: Iterable[str]
    ) -> list[str]:
        """The command that builds; it writes the image's id to ``answer``."""
        tagged = [] if tag is None else ["--tag", tag]
        files = ["--file", str(dockerfile), "--iidfile", str(answer)]
        return [self.program, *_BUILD[self.kind], *files, *tagged, *options, str(folder)]

    def push_command(self, reference: str, answer: Path) -> list[str]:
        """The command that pushes; podman writes the digest to ``answer``, docker prints it."""
        if self.kind != PODMAN:
            return [self.program, "push", reference]
        # docker by itself asks for no certificate on loopback
        plain = ["--tls-verify=false"] if _on_loopback(reference) else []
        return [self.program, "push", "--digestfile", str(answer), *plain, reference]

    # --- long steps ---

    def build(
        self,
        folder: Path,
        dockerfile: Path,
        answer: Path,
        tag: str | None,
        options: Iterable[str],
        output: Output,
    ) -> str | None:
        """Build; the image's id, or None where the engine does not keep what it built."""
        command = self.build_command(folder, dockerfile, answer, tag, options)
        step(f"building {dockerfile} by {self.kind}", command, self.env, output, without=_NOTICE)
        told = answer.read_text().strip() if answer.exists() else ""
        # With some builders the answer is the id of what was built, not of what was loaded; the tag tells then.
        return next(
            (found for name in (told, tag) if name and (found := self.image_id(name))), None
        )

    def push(self, reference: str, answer: Path, output: Output) -> str | None:
        """Push; the digest by which the registry knows the image, or None where nothing tells it."""
        repository = reference.rpartition(":")[0]
        lines = step(f"pushing {reference}", self.push_command(reference, answer), self.env, output)
        told = answer.read_text().strip() if answer.exists() else None
        return told or pushed_digest(lines) or _only_digest(self._digests(reference), repository)

    # --- short questions ---

    def image_id(self, image: str) -> str | None:
        """The id of an image that the engine has, as ``sha256:...``, else None."""
        done = self._ask("image", "inspect", "--format", "{{.Id}}", image)
        return (
            f"sha256:{done.stdout.strip().removeprefix('sha256:')}"
            if done.returncode == 0
            else None
        )

    def tag(self, image: str, reference: str) -> None:
        """Give an image one more name."""
        self._lines(f"tagging {reference}", "tag", image, reference)

    def images(self) -> list[str]:
        """The names of all images, as ``repository:tag``."""
        names = self._lines("listing images", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}")
        return [name for name in names if "<none>" not in name]

    def remove(self, image: str, *, force: bool) -> None:
        """Take a name from an image, and remove the image with its last one."""
        self._lines(f"removing {image}", "image", "rm", *(["--force"] if force else []), image)

    def _digests(self, reference: str) -> list[str]:
        """The digests by which registries know an image, as ``repository@sha256:...``."""
        done = self._ask(
            "image", "inspect", "--format", "{{range .RepoDigests}}{{.}} {{end}}", reference
        )
        return done.stdout.split() if done.returncode == 0 else []

    def _lines(self, what: str, *words: str) -> list[str]:
        done = self._ask(*words)
        if done.returncode:
            raise failed(what, done.returncode, (done.stderr or done.stdout).splitlines())
        return done.stdout.splitlines()

    def _ask(self, *words: str) -> CompletedProcess[str]:
        return asked([self.program, *words], self.env, timeout=None)


def pushed_digest(lines: Sequence[str]) -> str | None:
    """The digest that docker prints at the end of a push."""
    found = [match.group(1) for match in map(_DIGEST.search, lines) if match]
    return found[-1] if found else None


def _only_digest(digests: Iterable[str], repository: str) -> str | None:
    found = {
        digest
        for name, _, digest in (item.partition("@") for item in digests)
        if name == repository
    }
    return found.pop() if len(found) == 1 else None


def _on_loopback(reference: str) -> bool:
    host = reference.partition("/")[0].partition(":")[0]
    return host == "localhost" or host.startswith("127.")

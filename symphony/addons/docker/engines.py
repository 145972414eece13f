"""The command lines of container engines: docker with each of its builders, and podman.

symphony runs the command-line programs instead of using a client library, because only these
programs support BuildKit and use the user's logins, contexts and builders.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import CompletedProcess

from symphony.addons.docker.subprocesses import Output, run_query, step, step_error

BUILDX, BUILDKIT, CLASSIC, PODMAN = "docker-buildx", "docker-buildkit", "docker-classic", "podman"

_BUILD = {
    BUILDX: ("buildx", "build", "--load", "--progress=plain"),
    BUILDKIT: ("build", "--progress=plain"),
    # Without --force-rm, the builder would keep the container of each failed step.
    CLASSIC: ("build", "--force-rm"),
    PODMAN: ("build",),
}
# The environment variables that select the docker builder.
_ENV: dict[str, dict[str, str]] = {
    BUILDX: {},
    BUILDKIT: {"DOCKER_BUILDKIT": "1"},
    CLASSIC: {"DOCKER_BUILDKIT": "0"},
    PODMAN: {},
}
# The beginning of docker's deprecation notice for the classic builder. It is omitted from the
# output, because it is not useful to the user.
_NOTICE = "DEPRECATED: The legacy builder is deprecated"
_DIGEST = re.compile(r"\bdigest: (sha256:[0-9a-f]{64})\b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Engine:
    """A container engine. ``kind`` is its name, ``program`` is its command-line program, and
    ``env`` contains the environment variables that select its builder.
    """

    kind: str
    program: str
    env: Mapping[str, str] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "env", _ENV[self.kind])

    # --- command lines ---

    def build_command(
        self,
        context: Path,
        dockerfile: Path,
        id_file: Path,
        tag: str | None,
        options: Iterable[str],
    ) -> list[str]:
        """Return the command that builds an image. The command writes the image ID to
        ``id_file``.
        """
        tagged = [] if tag is None else ["--tag", tag]
        files = ["--file", str(dockerfile), "--iidfile", str(id_file)]
        return [self.program, *_BUILD[self.kind], *files, *tagged, *options, str(context)]

    def push_command(self, reference: str, digest_file: Path) -> list[str]:
        """Return the command that pushes an image.

        podman writes the digest to ``digest_file``, and docker prints the digest.
        """
        if self.kind != PODMAN:
            return [self.program, "push", reference]
        # By default, docker does not verify the TLS certificate of a registry on a loopback
        # address. Let podman do the same.
        insecure = ["--tls-verify=false"] if _on_loopback(reference) else []
        return [self.program, "push", "--digestfile", str(digest_file), *insecure, reference]

    # --- long steps ---

    def build(
        self,
        context: Path,
        dockerfile: Path,
        id_file: Path,
        tag: str | None,
        options: Iterable[str],
        output: Output,
    ) -> str | None:
        """Build an image. Return its ID, or None if the image is not in the engine's storage after
        the build.
        """
        command = self.build_command(context, dockerfile, id_file, tag, options)
        step(f"building {dockerfile} with {self.kind}", command, self.env, output, without=_NOTICE)
        reported_id = id_file.read_text().strip() if id_file.exists() else None
        # Some builders report the ID of the build result instead of the ID of the loaded image. In
        # this case, find the image by its tag.
        for name in (reported_id, tag):
            image_id = self.image_id(name) if name else None
            if image_id is not None:
                return image_id
        return None

    def push(self, reference: str, digest_file: Path, output: Output) -> str | None:
        """Push an image, and return its digest in the registry, or None if the digest cannot be
        determined.
        """
        repository = reference.rpartition(":")[0]
        command = self.push_command(reference, digest_file)
        lines = step(f"pushing {reference}", command, self.env, output)
        digest = digest_file.read_text().strip() if digest_file.exists() else pushed_digest(lines)
        return digest or _only_digest(self._digests(reference), repository)

    # --- queries ---

    def image_id(self, image: str) -> str | None:
        """Return the ID of an image in the engine's storage as ``sha256:...``, or None if the image
        does not exist.
        """
        done = self._query("image", "inspect", "--format", "{{.Id}}", image)
        if done.returncode:
            return None
        return f"sha256:{done.stdout.strip().removeprefix('sha256:')}"

    def tag(self, image: str, reference: str) -> None:
        """Add a name to an image."""
        self._lines(f"tagging {reference}", "tag", image, reference)

    def images(self) -> list[str]:
        """Return the names of all images as ``repository:tag``."""
        names = self._lines("listing images", "image", "ls", "--format", "{{.Repository}}:{{.Tag}}")
        return [name for name in names if "<none>" not in name]

    def remove(self, image: str, *, force: bool) -> None:
        """Remove the name ``image`` from an image. If this is the image's last name, the image is
        deleted.
        """
        self._lines(f"removing {image}", "image", "rm", *(["--force"] if force else []), image)

    def _digests(self, reference: str) -> list[str]:
        """Return an image's registry digests in the form ``repository@sha256:...``."""
        done = self._query(
            "image", "inspect", "--format", "{{range .RepoDigests}}{{.}} {{end}}", reference
        )
        return done.stdout.split() if done.returncode == 0 else []

    def _lines(self, what: str, *words: str) -> list[str]:
        done = self._query(*words)
        if done.returncode:
            raise step_error(what, done.returncode, (done.stderr or done.stdout).splitlines())
        return done.stdout.splitlines()

    def _query(self, *words: str) -> CompletedProcess[str]:
        return run_query([self.program, *words], self.env, timeout=None)


def pushed_digest(lines: Sequence[str]) -> str | None:
    """Return the digest that docker prints at the end of a push, or None if ``lines`` do not
    contain a digest.
    """
    found = [match.group(1) for match in map(_DIGEST.search, lines) if match]
    return found[-1] if found else None


def _only_digest(digests: Iterable[str], repository: str) -> str | None:
    """Return the only digest for ``repository``, or None if there are no digests or several
    different digests for it.
    """
    found = set()
    for item in digests:
        name, _, digest = item.partition("@")
        if name == repository:
            found.add(digest)
    return found.pop() if len(found) == 1 else None


def _on_loopback(reference: str) -> bool:
    host = reference.partition("/")[0].partition(":")[0]
    return host == "localhost" or host.startswith("127.")

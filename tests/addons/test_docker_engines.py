"""Test the choice of an engine and its command lines. The live image tests use real engines."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from symphony import BackendError, SpecError, Unreachable
from symphony.addons.docker.detect_engine import CHOICES, find
from symphony.addons.docker.engines import Engine, pushed_digest
from symphony.addons.docker.subprocesses import step
from tests.addons.fake_engine import FakeEngine, path_with


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that puts fake engines with the given behavior on the PATH."""
    for variable in ("SYMPHONY_CONTAINER_ENGINE", "DOCKER_BUILDKIT", "DOCKER_HOST"):
        monkeypatch.delenv(variable, raising=False)

    def install(**engines: dict[str, Any]) -> list[FakeEngine]:
        installed = [
            FakeEngine(tmp_path / f"bin-{name}", name, **behavior)
            for name, behavior in engines.items()
        ]
        monkeypatch.setenv("PATH", path_with(*installed))
        return installed

    return install


# --- choice of the engine ---

DOCKER: dict[str, Any] = {"docker": {}}
PODMAN: dict[str, Any] = {"podman": {}}


@pytest.mark.parametrize(
    ("engines", "choice", "kind"),
    [
        ({"docker": {"buildx": True, "buildkit": True}}, None, "docker-buildx"),
        ({"docker": {"buildkit": True}}, None, "docker-buildkit"),
        (DOCKER, None, "docker-classic"),
        (PODMAN, None, "podman"),
        ({**DOCKER, **PODMAN}, None, "docker-classic"),
        ({"docker": {"daemon": False}, **PODMAN}, None, "podman"),
        ({"docker": {"podman": True}}, None, "podman"),
        ({"docker": {"podman": True}}, "docker", "podman"),
        ({"docker": {"buildx": True}, **PODMAN}, "podman", "podman"),
        ({"docker": {"buildx": True}, **PODMAN}, "docker", "docker-buildx"),
        ({"docker": {"buildx": True}}, "docker-classic", "docker-classic"),
        ({"docker": {"buildx": True, "buildkit": True}}, "docker-buildkit", "docker-buildkit"),
    ],
)
def test_first_usable_engine_is_chosen(
    install: Any, engines: Any, choice: str | None, kind: str
) -> None:
    install(**engines)
    assert find(choice).kind == kind


def test_argument_overrides_the_variable(install: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    install(**DOCKER, **PODMAN)
    monkeypatch.setenv("SYMPHONY_CONTAINER_ENGINE", "podman")
    assert find().kind == "podman"
    assert find("docker").kind == "docker-classic"
    monkeypatch.setenv("SYMPHONY_CONTAINER_ENGINE", "")
    assert find().kind == "docker-classic"


def test_docker_buildkit_variable_is_respected(
    install: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(docker={"buildx": True})
    monkeypatch.setenv("DOCKER_BUILDKIT", "0")
    assert find().kind == "docker-classic"
    assert find("docker-buildx").kind == "docker-buildx"


def test_unknown_engine_is_rejected(install: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    install(**DOCKER)
    with pytest.raises(
        SpecError,
        match=f"engine must be one of {', '.join(CHOICES)}, not 'podmann'; did you mean 'podman'",
    ):
        find("podmann")
    monkeypatch.setenv("SYMPHONY_CONTAINER_ENGINE", "lxc")
    with pytest.raises(SpecError, match="SYMPHONY_CONTAINER_ENGINE must be one of .*, not 'lxc'"):
        find()


def test_missing_engine_is_reported(install: Any) -> None:
    install()
    with pytest.raises(
        BackendError,
        match="no container engine: docker is not on PATH; podman",
    ):
        find()
    install(docker={"daemon": False})
    with pytest.raises(
        Unreachable,
        match="docker does not respond: Cannot connect to the Docker daemon at .*; podman is not",
    ):
        find()
    with pytest.raises(
        BackendError, match="no container engine: podman is not on PATH; start or install"
    ):
        find("podman")


def test_missing_builder_is_reported(install: Any) -> None:
    install(**DOCKER)
    with pytest.raises(
        BackendError,
        match="engine docker-buildx was requested, but .*docker does not have it; request docker",
    ):
        find("docker-buildx")
    install(docker={"podman": True})
    with pytest.raises(
        BackendError, match="engine docker-buildx was requested, but .*docker is podman"
    ):
        find("docker-buildx")


def test_broken_engine_program_is_reported(install: Any) -> None:
    (docker,) = install(**DOCKER)
    (docker.home / "docker").write_text("#!/nowhere/python\n")
    with pytest.raises(
        Unreachable,
        match="docker does not respond: .*/docker cannot be run: No such file or directory",
    ):
        find()


# --- command lines ---

BUILD = {
    "docker-buildx": ["buildx", "build", "--load", "--progress=plain"],
    "docker-buildkit": ["build", "--progress=plain"],
    "docker-classic": ["build", "--force-rm"],
    "podman": ["build"],
}


@pytest.mark.parametrize("kind", BUILD)
def test_build_command(kind: str) -> None:
    engine = Engine(kind=kind, program="/bin/engine")
    files = ["--file", "/d/Dockerfile", "--iidfile", "/a"]
    words = engine.build_command(
        Path("/c"), Path("/d/Dockerfile"), Path("/a"), "rl:1", ["--platform=linux/amd64"]
    )
    options = [*BUILD[kind], *files, "--tag", "rl:1", "--platform=linux/amd64"]
    assert words == ["/bin/engine", *options, "/c"]
    assert "--tag" not in engine.build_command(Path("/c"), Path("/d"), Path("/a"), None, [])


@pytest.mark.parametrize(
    ("reference", "options"),
    [
        ("127.0.0.1:5000/rl:1", ["--tls-verify=false"]),
        ("localhost/rl:1", ["--tls-verify=false"]),
        ("registry.example/rl:1", []),
        ("rl:1", []),
    ],
)
def test_push_command(reference: str, options: list[str]) -> None:
    podman, docker = Engine(kind="podman", program="p"), Engine(kind="docker-buildx", program="d")
    command = ["p", "push", "--digestfile", "/a", *options, reference]
    assert podman.push_command(reference, Path("/a")) == command
    assert docker.push_command(reference, Path("/a")) == ["d", "push", reference]


def test_digest_is_read_from_the_last_line_of_a_push() -> None:
    one, two = "a" * 64, "b" * 64
    lines = [f"1: digest: sha256:{one} size: 1", f"2: digest: sha256:{two} size: 1", ""]
    assert pushed_digest(lines) == f"sha256:{two}"
    assert pushed_digest(["1: digest: sha256:abc size: 1", one]) is None


# --- execution ---


def shell(script: str) -> list[str]:
    return ["/bin/sh", "-c", script]


def test_output_of_both_streams_is_passed_line_by_line() -> None:
    lines: list[str] = []
    command = shell("echo one; echo two >&2; printf three; printf '\\377'")
    assert step("it", command, {}, lines.append) == ["one", "two", "three\ufffd"]
    assert lines == ["one\n", "two\n", "three\ufffd\n"]


def test_error_contains_the_last_lines() -> None:
    script = "for i in 1 2 3 4 5 6 7 8; do echo line $i; echo; done; echo ------; exit 3"
    lines = "line 3 | line 4 | line 5 | line 6 | line 7 | line 8"
    with pytest.raises(BackendError, match=f"^it failed with exit code 3: {re.escape(lines)}$"):
        step("it", shell(script), {})
    with pytest.raises(BackendError, match="it failed with exit code 1: there was no output"):
        step("it", ["/bin/false"], {})
    with pytest.raises(
        BackendError, match="/nowhere/docker cannot be run: No such file or directory"
    ):
        step("it", ["/nowhere/docker"], {})


def test_error_contains_no_escape_sequences() -> None:
    output = (
        r"\033[91merr\n\033[0m\033[31mred\033[0m words\n\033]0;title\007plain\033[K\n"
        r"\033(Bgrün\ttab\n\033[0m\nbell\a"
    )
    lines: list[str] = []
    with pytest.raises(BackendError) as caught:
        step("it", shell(f"printf '{output}'; exit 3"), {}, lines.append)
    message = "it failed with exit code 3: err | red words | plain | grün\ttab | bell"
    assert str(caught.value) == message
    # The lines that are passed on keep the escape sequences.
    assert lines[1] == "\x1b[0m\x1b[31mred\x1b[0m words\n"


NOTICE = """\
DEPRECATED: The legacy builder is deprecated and will be removed in a future release.
            BuildKit is currently disabled; enable it by removing the DOCKER_BUILDKIT=0
            environment-variable.

"""


def test_deprecation_notice_of_the_classic_builder_is_removed(install: Any, tmp_path: Path) -> None:
    """Similar lines in the output of the build itself are kept."""
    (docker,) = install(**DOCKER)
    (docker.home / "output").write_text(f"{NOTICE}Step 1/1 : RUN x\n DEPRECATED: x\n\nno\n")
    (docker.home / "docker").write_text(f"#!/bin/sh\n/bin/cat {docker.home}/output\n")
    lines: list[str] = []
    engine = Engine(kind="docker-classic", program=str(docker.home / "docker"))
    engine.build(tmp_path, tmp_path, tmp_path / "image-id", None, [], lines.append)
    assert "".join(lines) == "Step 1/1 : RUN x\n DEPRECATED: x\n\nno\n"


def test_interrupted_step_terminates_its_program(tmp_path: Path) -> None:
    def interrupt(_: str) -> None:
        raise KeyboardInterrupt

    script = f"trap 'touch {tmp_path}/exited; kill $!; exit' TERM; echo up; sleep 60 & wait"
    with pytest.raises(KeyboardInterrupt):
        step("it", shell(script), {}, interrupt)
    assert (tmp_path / "exited").exists()

"""Which engine is chosen, and what it is told. The real ones are tested with a cluster (test_images_live)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from symphony import BackendError, SpecError, Unreachable
from symphony.addons.docker.detect_engine import CHOICES, find
from symphony.addons.docker.engines import Engine, pushed_digest
from symphony.addons.docker.subprocesses import step
from tests.addons.docker_standin import StandIn, path


@pytest.fixture
def have(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A function that puts engines on the PATH, by name how they are."""
    for variable in ("SYMPHONY_CONTAINER_ENGINE", "DOCKER_BUILDKIT", "DOCKER_HOST"):
        monkeypatch.delenv(variable, raising=False)

    def have(**engines: dict[str, Any]) -> list[StandIn]:
        made = [StandIn(tmp_path / f"bin-{name}", name, **how) for name, how in engines.items()]
        monkeypatch.setenv("PATH", path(*made))
        return made

    return have


# --- choosing ---

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
def test_the_first_that_is_really_there_is_chosen(
    have: Any, engines: Any, choice: str | None, kind: str
) -> None:
    have(**engines)
    assert find(choice).kind == kind


def test_the_variable_chooses_and_the_argument_wins(
    have: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    have(**DOCKER, **PODMAN)
    monkeypatch.setenv("SYMPHONY_CONTAINER_ENGINE", "podman")
    assert find().kind == "podman"
    assert find("docker").kind == "docker-classic"
    monkeypatch.setenv("SYMPHONY_CONTAINER_ENGINE", "")
    assert find().kind == "docker-classic"


def test_what_the_user_told_docker_holds(have: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    have(docker={"buildx": True})
    monkeypatch.setenv("DOCKER_BUILDKIT", "0")
    assert find().kind == "docker-classic"
    assert find("docker-buildx").kind == "docker-buildx"


def test_a_choice_that_is_none_is_refused(have: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    have(**DOCKER)
    with pytest.raises(
        SpecError,
        match=f"engine must be one of {', '.join(CHOICES)}, not 'podmann'; did you mean 'podman'",
    ):
        find("podmann")
    monkeypatch.setenv("SYMPHONY_CONTAINER_ENGINE", "lxc")
    with pytest.raises(SpecError, match="SYMPHONY_CONTAINER_ENGINE must be one of .*, not 'lxc'"):
        find()


def test_where_there_is_none_it_is_told(have: Any) -> None:
    have()
    with pytest.raises(
        BackendError,
        match="no container engine: docker is not on PATH; podman",
    ):
        find()
    have(docker={"daemon": False})
    with pytest.raises(
        Unreachable,
        match="docker does not respond: Cannot connect to the Docker daemon at .*; podman is not",
    ):
        find()
    with pytest.raises(
        BackendError, match="no container engine: podman is not on PATH; start or install"
    ):
        find("podman")


def test_a_builder_that_is_not_there_is_told(have: Any) -> None:
    have(**DOCKER)
    with pytest.raises(
        BackendError,
        match="engine docker-buildx was requested, but .*docker does not have it; request docker",
    ):
        find("docker-buildx")
    have(docker={"podman": True})
    with pytest.raises(
        BackendError, match="engine docker-buildx was requested, but .*docker is podman"
    ):
        find("docker-buildx")


def test_a_program_that_cannot_be_run_does_not_answer(have: Any) -> None:
    (docker,) = have(**DOCKER)
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
def test_how_each_builds(kind: str) -> None:
    engine = Engine(kind=kind, program="/bin/engine")
    files = ["--file", "/d/Dockerfile", "--iidfile", "/a"]
    words = engine.build_command(
        Path("/c"), Path("/d/Dockerfile"), Path("/a"), "rl:1", ["--platform=linux/amd64"]
    )
    assert words == [
        "/bin/engine",
        *BUILD[kind],
        *files,
        "--tag",
        "rl:1",
        "--platform=linux/amd64",
        "/c",
    ]
    assert "--tag" not in engine.build_command(Path("/c"), Path("/d"), Path("/a"), None, [])


@pytest.mark.parametrize(
    ("reference", "plain"),
    [
        ("127.0.0.1:5000/rl:1", True),
        ("localhost/rl:1", True),
        ("registry.example/rl:1", False),
        ("rl:1", False),
    ],
)
def test_how_each_pushes(reference: str, plain: bool) -> None:
    podman = Engine(kind="podman", program="p").push_command(reference, Path("/a"))
    assert podman == [
        "p",
        "push",
        "--digestfile",
        "/a",
        *(["--tls-verify=false"] if plain else []),
        reference,
    ]
    assert Engine(kind="docker-buildx", program="d").push_command(reference, Path("/a")) == [
        "d",
        "push",
        reference,
    ]


def test_the_digest_is_read_from_the_end_of_a_push() -> None:
    one, two = "a" * 64, "b" * 64
    assert (
        pushed_digest([f"1: digest: sha256:{one} size: 1", f"2: digest: sha256:{two} size: 1", ""])
        == f"sha256:{two}"
    )
    assert pushed_digest(["1: digest: sha256:abc size: 1", one]) is None


# --- running ---


def test_output_comes_line_by_line_from_both_streams() -> None:
    lines: list[str] = []
    command = ["/bin/sh", "-c", "echo one; echo two >&2; printf three; printf '\\377'"]
    assert step("it", command, {}, lines.append) == ["one", "two", "three\ufffd"]
    assert lines == ["one\n", "two\n", "three\ufffd\n"]


def test_a_step_that_fails_tells_its_last_lines() -> None:
    with pytest.raises(BackendError) as caught:
        step(
            "it",
            [
                "/bin/sh",
                "-c",
                "for i in 1 2 3 4 5 6 7 8; do echo line $i; echo; done; echo ------; exit 3",
            ],
            {},
        )
    assert (
        str(caught.value)
        == "it failed with exit code 3: line 3 | line 4 | line 5 | line 6 | line 7 | line 8"
    )
    with pytest.raises(BackendError, match="it failed with exit code 1: there was no output"):
        step("it", ["/bin/false"], {})
    with pytest.raises(
        BackendError, match="/nowhere/docker cannot be run: No such file or directory"
    ):
        step("it", ["/nowhere/docker"], {})


def test_what_only_terminals_understand_is_not_in_an_error() -> None:
    said = r"\033[91merr\n\033[0m\033[31mred\033[0m words\n\033]0;title\007plain\033[K\n\033(Bgrün\ttab\n\033[0m\nbell\a"
    lines: list[str] = []
    with pytest.raises(BackendError) as caught:
        step("it", ["/bin/sh", "-c", f"printf '{said}'; exit 3"], {}, lines.append)
    assert (
        str(caught.value)
        == "it failed with exit code 3: err | red words | plain | grün\ttab | bell"
    )
    assert (
        lines[1] == "\x1b[0m\x1b[31mred\x1b[0m words\n"
    )  # on the way it is as the engine wrote it


NOTICE = """\
DEPRECATED: The legacy builder is deprecated and will be removed in a future release.
            BuildKit is currently disabled; enable it by removing the DOCKER_BUILDKIT=0
            environment-variable.

"""


def test_dockers_notice_of_the_builder_that_it_was_told_to_use_is_not_shown(
    have: Any, tmp_path: Path
) -> None:
    """The classic one; what a build itself says so stays."""
    (docker,) = have(**DOCKER)
    (docker.home / "said").write_text(f"{NOTICE}Step 1/1 : RUN x\n DEPRECATED: x\n\nno\n")
    (docker.home / "docker").write_text(f"#!/bin/sh\n/bin/cat {docker.home}/said\n")
    lines: list[str] = []
    engine = Engine(kind="docker-classic", program=str(docker.home / "docker"))
    engine.build(tmp_path, tmp_path, tmp_path / "answer", None, [], lines.append)
    assert "".join(lines) == "Step 1/1 : RUN x\n DEPRECATED: x\n\nno\n"


def test_a_step_that_is_broken_off_ends_its_program(tmp_path: Path) -> None:
    class Enough(Exception):
        pass

    def stop(_: str) -> None:
        raise Enough

    with pytest.raises(Enough):
        step(
            "it",
            [
                "/bin/sh",
                "-c",
                f"trap 'touch {tmp_path}/ended; kill $!; exit' TERM; echo up; sleep 60 & wait",
            ],
            {},
            stop,
        )
    assert (tmp_path / "ended").exists()

"""Test building, tagging and pushing one image, with a fake engine."""

from __future__ import annotations

import copy
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import pytest

from symphony import BackendError, SpecError
from symphony.addons import DockerBuilder
from symphony.addons.docker.context import DIRECTORY_NAME
from tests.addons.fake_engine import DIGEST, ID, FakeEngine, path_with


def install(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    """Put a fake engine on the PATH, and no other."""
    engine = FakeEngine(tmp_path / "bin", name)
    monkeypatch.setenv("PATH", path_with(engine))
    for variable in ("SYMPHONY_CONTAINER_ENGINE", "DOCKER_BUILDKIT"):
        monkeypatch.delenv(variable, raising=False)
    return engine


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FakeEngine:
    return install("docker", tmp_path, monkeypatch)


@pytest.fixture(params=["docker", "podman"])
def either(
    request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> FakeEngine:
    return install(request.param, tmp_path, monkeypatch)


@pytest.fixture
def settings(tmp_path: Path) -> dict[str, Any]:
    (tmp_path / "Dockerfile").write_text("FROM scratch\n")
    for name in ("app", "lib"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{name}.py").write_text(name)
    return {
        "dockerfile": str(tmp_path / "Dockerfile"),
        "context_directories": [
            {"name": "app", "path": str(tmp_path / "app"), "force_update": True},
            {"name": "inner", "path": str(tmp_path / "lib")},
        ],
        "temp_directory": str(tmp_path / "temp"),
    }


def builds(engine: FakeEngine) -> list[dict[str, Any]]:
    return [call for call in engine.calls if "context" in call]


def test_build_uses_the_collected_context(
    either: FakeEngine, settings: dict[str, Any], tmp_path: Path
) -> None:
    builder = DockerBuilder(**settings, verbose=False)
    assert builder.image_id is None
    assert builder.build() == builder.image_id == ID
    (call,) = builds(either)
    assert call["context"] == {"app/app.py": "app", "inner/lib.py": "lib"}
    assert call["words"][-1] == str(tmp_path / "temp" / DIRECTORY_NAME / "context")
    assert "--tag" not in call["words"]
    assert call["buildkit"] == (None if either.home.joinpath("podman").exists() else "0")


def test_build_with_tag_and_options(engine: FakeEngine, settings: dict[str, Any]) -> None:
    settings["build_options"] = ["--build-arg", "A=1"]
    DockerBuilder(**settings, verbose=False).build("registry.example:5000/rl:1")
    words = builds(engine)[0]["words"]
    options = ["--tag", "registry.example:5000/rl:1", "--build-arg", "A=1"]
    assert words[words.index("--tag") :][:4] == options


def test_tag_and_push(either: FakeEngine, settings: dict[str, Any]) -> None:
    builder = DockerBuilder(**settings, verbose=False)
    builder.build()
    assert builder.tag("127.0.0.1:5000/rl", "1") == "127.0.0.1:5000/rl:1"
    assert builder.push("127.0.0.1:5000/rl", "1") == DIGEST
    assert either.commands("tag") == [["tag", ID, "127.0.0.1:5000/rl:1"]]


def test_build_and_push(engine: FakeEngine, settings: dict[str, Any]) -> None:
    builder = DockerBuilder(**settings, verbose=False)
    assert builder.build_and_push("registry.example/rl", "v1.0") == DIGEST
    assert [words[-1] for words in engine.commands("push")] == ["registry.example/rl:v1.0"]


# --- failures ---


def test_failed_build_is_neither_tagged_nor_pushed(
    either: FakeEngine, settings: dict[str, Any]
) -> None:
    builder = DockerBuilder(**settings, verbose=False)
    builder.build_and_push("rl", "1")
    either.change(fails=["build"])
    with pytest.raises(BackendError) as caught:
        builder.build_and_push("rl", "2")
    lines = "line 16 | line 17 | line 18 | line 19 | line 20 | the error message"
    assert str(caught.value).endswith(f"failed with exit code 7: {lines}")
    assert "Dockerfile with" in str(caught.value)
    assert builder.image_id is None
    for call in (builder.tag, builder.push):
        with pytest.raises(BackendError, match="no image was built from .*Dockerfile: call build"):
            call("rl", "2")
    assert len(either.commands("tag")) == len(either.commands("push")) == 1


def test_failed_push_is_reported(either: FakeEngine, settings: dict[str, Any]) -> None:
    either.change(fails=["push"])
    with pytest.raises(
        BackendError, match=r"pushing rl:1 failed with exit code 7: line 16 \| .* the error message"
    ):
        DockerBuilder(**settings, verbose=False).build_and_push("rl", "1")


def test_failed_tag_is_not_pushed(engine: FakeEngine, settings: dict[str, Any]) -> None:
    engine.change(fails=["tag"])
    with pytest.raises(BackendError, match="tagging rl:1 failed"):
        DockerBuilder(**settings, verbose=False).build_and_push("rl", "1")
    assert engine.commands("push") == []


def test_push_requires_the_built_image(engine: FakeEngine, settings: dict[str, Any]) -> None:
    builder = DockerBuilder(**settings, verbose=False)
    with pytest.raises(BackendError, match="no image was built"):
        builder.push("rl", "1")
    builder.build()
    with pytest.raises(
        BackendError,
        match=r"rl:1 is not the image that was built: tag it first with tag\('rl', '1'\)",
    ):
        builder.push("rl", "1")
    assert engine.commands("push") == []


def test_build_without_an_image_is_reported(engine: FakeEngine, settings: dict[str, Any]) -> None:
    engine.change(keeps_image=False)
    with pytest.raises(
        BackendError, match="but did not keep the image: give the build a tag, or choose a builder"
    ):
        DockerBuilder(**settings, verbose=False).build()


def test_digest_is_read_from_the_image(
    tmp_path: Path, settings: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    docker = FakeEngine(
        tmp_path / "bin", "docker", reports_digest=False, digests=f"other@sha256:0 rl@{DIGEST} "
    )
    monkeypatch.setenv("PATH", path_with(docker))
    builder = DockerBuilder(**settings, verbose=False, engine="docker")
    assert builder.build_and_push("rl", "1") == DIGEST
    docker.change(digests=f"rl@{DIGEST} rl@sha256:0")
    with pytest.raises(
        BackendError, match="rl:1 was pushed, but docker-classic did not report its digest"
    ):
        builder.push("rl", "1")


# --- output ---


def test_output_is_passed_or_shown(
    engine: FakeEngine, settings: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    lines: list[str] = []
    DockerBuilder(**settings, output=lines.append).build()
    assert lines == ["collected 2 files: 2 linked, 0 copied\n", "step one\n", "step two\n"]
    DockerBuilder(**settings, verbose=False).build()
    assert capfd.readouterr() == ("", "")
    DockerBuilder(**settings).build()
    out, err = capfd.readouterr()
    assert (out, err.splitlines()[1:]) == ("", ["step one", "step two"])


# --- construction ---


def test_from_dict(engine: FakeEngine, settings: dict[str, Any]) -> None:
    settings = {
        **settings,
        "verbose": False,
        "name": "app",
        "registry": "registry.example",
        "other": {"keys": [1]},
        "engine": None,
    }
    before = copy.deepcopy(settings)
    builder = DockerBuilder.from_dict(settings)
    assert settings == before
    settings["context_directories"].clear()
    assert builder.build() == ID
    assert settings == {**before, "context_directories": []}
    assert builds(engine)[0]["context"] == {"app/app.py": "app", "inner/lib.py": "lib"}


def test_settings_without_a_dockerfile_are_refused(settings: dict[str, Any]) -> None:
    del settings["dockerfile"]
    with pytest.raises(SpecError, match="^a DockerBuilder needs a dockerfile; "):
        DockerBuilder.from_dict(settings)


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("context_dirs", "context_directories"),
        ("temp_directry", "temp_directory"),
        ("dockerFile", "dockerfile"),
    ],
)
def test_misspelled_key_is_reported(settings: dict[str, Any], key: str, meant: str) -> None:
    settings[key] = settings.pop(meant)
    message = f"^a DockerBuilder has the unknown key '{key}'; did you mean '{meant}'"
    with pytest.raises(SpecError, match=message):
        DockerBuilder.from_dict(settings)


def test_only_the_dockerfile_is_required(
    engine: FakeEngine, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    builder = DockerBuilder.from_dict(
        {"dockerfile": settings["dockerfile"], "name": "x", "verbose": False}
    )
    assert builder.build() == builder.build() == ID
    first, second = builds(engine)
    assert first["context"] == second["context"] == {}
    assert first["words"][-1].startswith(f"{scratch}/")
    assert list(scratch.iterdir()) == []
    entries = settings["context_directories"]
    assert DockerBuilder(settings["dockerfile"], entries, verbose=False).build() == ID
    assert builds(engine)[-1]["context"] == {"app/app.py": "app", "inner/lib.py": "lib"}
    assert list(scratch.iterdir()) == []
    assert (tmp_path / "app" / "app.py").read_text() == "app"


def test_paths_are_relative_to_the_current_directory_and_expand_home(
    engine: FakeEngine, settings: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "lib"))
    monkeypatch.chdir(tmp_path / "app")
    entries = [{"name": "app", "path": "."}, {"name": "home", "path": "~/lib.py"}]
    builder = DockerBuilder("../Dockerfile", entries, "~/../temp", verbose=False)
    monkeypatch.chdir("/")
    builder.build()
    (call,) = builds(engine)
    assert call["context"] == {"app/app.py": "app", "home": "lib"}
    assert str(tmp_path / "Dockerfile") in call["words"]
    assert (tmp_path / "temp" / DIRECTORY_NAME).is_dir()


INVALID: list[tuple[dict[str, Any], str]] = [
    ({"context_directories": "app"}, "context_directories must be a list such as"),
    ({"context_directories": [{"name": "a/b", "path": "x"}]},
     "must be a plain name.*not 'a/b'; for example 'b'"),
    ({"context_directories": [{"name": "..", "path": "x"}]}, "must be a plain name.*not '..'"),
    ({"context_directories": [{"name": "a", "path": ""}]}, "the path of a context entry is empty"),
    ({"context_directories": [{"name": "a", "paht": "x"}]},
     "a context entry has the unknown key 'paht'; did you mean 'path'"),
    ({"context_directories": [{"name": "a"}]}, "a context entry needs a path"),
    ({"context_directories": [{"name": "a", "path": "x", "force_update": 1}]},
     "must be true or false, not 1"),
    ({"context_directories": [{"name": "a", "path": "x"}, {"name": "a", "path": "y"}]},
     "two context entries are named 'a': x and y; rename one of them"),
    ({"dockerfile": ""}, "dockerfile is empty"),
    ({"temp_directory": ""}, "temp_directory is empty"),
    ({"verbose": "yes"}, "verbose must be true or false, not 'yes'"),
    ({"engine": "lxc"}, "engine must be one of docker, .*, not 'lxc'"),
]  # fmt: skip


@pytest.mark.parametrize(("setting", "message"), INVALID, ids=lambda item: ascii(item)[:60])
def test_invalid_setting_is_rejected(
    settings: dict[str, Any], setting: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        DockerBuilder(**{**settings, **setting})


def test_error_has_the_path_of_the_invalid_entry(settings: dict[str, Any]) -> None:
    settings["context_directories"][1]["name"] = "a/b"
    with pytest.raises(SpecError) as caught:
        DockerBuilder(**settings)
    assert caught.value.path == ("context_directories", 1, "name")


@pytest.mark.parametrize(
    ("repository", "tag", "message"),
    [
        (
            "rl:1",
            "1",
            "repository 'rl:1' must not have a tag or a digest; write 'rl'",
        ),
        ("localhost:5000/rl:1", "1", "write 'localhost:5000/rl'"),
        ("rl@sha256:1", "1", "write 'rl'"),
        ("team/RL", "1", "repository 'team/RL' is not valid: .*; for example 'team/rl'"),
        ("--help", "1", "repository '--help' is not valid"),
        ("", "1", "the repository of an image is empty"),
        ("rl", "", "tag '' is not valid"),
        ("rl", "-x", "tag '-x' is not valid"),
        ("rl", "a:b", "tag 'a:b' is not valid"),
    ],
)
def test_invalid_image_name_is_rejected_before_the_build(
    engine: FakeEngine, settings: dict[str, Any], repository: str, tag: str, message: str
) -> None:
    builder = DockerBuilder(**settings, verbose=False)
    with pytest.raises(SpecError, match=message):
        builder.build_and_push(repository, tag)
    with pytest.raises(SpecError):
        builder.build(f"{repository}:{tag}")
    assert engine.calls == []


def test_missing_dockerfile_is_reported(
    engine: FakeEngine, settings: dict[str, Any], tmp_path: Path
) -> None:
    builder = DockerBuilder(**{**settings, "dockerfile": str(tmp_path / "nowhere")})
    with pytest.raises(SpecError, match="there is no Dockerfile .*/nowhere"):
        builder.build()
    assert engine.calls == []


def test_import_and_construction_need_no_engine(settings: dict[str, Any], tmp_path: Path) -> None:
    program = (
        "import sys, symphony.addons\nfrom symphony.addons import *\n"
        "print(sorted(set(symphony.addons.__all__)))\n"
        f"DockerBuilder(**{settings!r})\n"
        "print([name for name in sys.modules if name in ('docker', 'yaml', 'pluggy')])"
    )
    env = {**os.environ, "PATH": "/nowhere"}
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, env=env, cwd=tmp_path
    )
    assert done.stdout == "['DockerBuilder', 'build_images', 'clean_images']\n[]\n", done.stderr
    assert not (tmp_path / "temp").exists()


def test_unknown_addon_raises_attribute_error() -> None:
    import symphony.addons

    assert "DockerBuilder" in dir(symphony.addons)
    with pytest.raises(
        AttributeError, match=r"module 'symphony\.addons' has no attribute 'Docker'"
    ):
        _ = symphony.addons.Docker

"""Configuration files: their locations, their formats, and errors in them."""

from __future__ import annotations

import importlib.util
import os
import re
import sys
from pathlib import Path

import pytest

from symphony import NotFound, SpecError, SymphonyConfig
from symphony.config import file_formats, read_sources
from symphony.config.locations import file_locations
from symphony.model.document import documents
from tests.unit.config_environment import ConfigEnvironment, environment

__all__ = ["environment"]

HAS_TOML = sys.version_info >= (3, 11) or importlib.util.find_spec("tomli") is not None
needs_toml = pytest.mark.skipif(not HAS_TOML, reason="no parser of TOML is installed")


def error_message(environment: ConfigEnvironment) -> str:
    """Return the error that reading the configuration raises, without the directory."""
    with pytest.raises(SpecError) as error:
        SymphonyConfig().settings()
    message = str(error.value)
    assert len(message.splitlines()) == 1
    return message.replace(f"{environment.work}/", "")


# --- locations ---


def test_the_nearest_directory_with_a_file_is_the_project(
    environment: ConfigEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = environment.work / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    environment.write_project("username: project\nimage: project\n")
    (environment.home / ".symphony.yml").write_text("username: home\n")
    config = SymphonyConfig()
    assert config.username == "project"
    (deep.parent / ".symphony.json").write_text('{"username": "nearer"}')
    config.reset()
    assert (config.username, config.get("image")) == ("nearer", None)


def test_directories_above_the_home_directory_are_not_searched(
    environment: ConfigEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    (environment.home.parent / ".symphony.yml").write_text("username: above\n")
    config = SymphonyConfig()
    assert config.username is None
    (environment.home / ".symphony.yml").write_text("username: home\n")
    config.reset()
    assert config.username == "home"
    outside = environment.home.parent / "outside"
    outside.mkdir()
    monkeypatch.chdir(outside)
    assert config.username == "above"


def test_the_user_file_is_in_the_xdg_directory(
    environment: ConfigEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.write_user("username: home\n")
    assert SymphonyConfig().username == "home"
    directory = environment.home / "xdg" / "symphony"
    directory.mkdir(parents=True)
    (directory / "config.yaml").write_text("username: xdg\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(directory.parent))
    assert SymphonyConfig().username == "xdg"
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert SymphonyConfig().username == "home"


def test_two_files_in_one_directory(environment: ConfigEnvironment) -> None:
    environment.write_project("username: a\n")
    (environment.work / ".symphony.json").write_text("{}")
    assert error_message(environment).endswith(
        ": .symphony.yml and .symphony.json are configurations of the same directory; "
        "keep one of them"
    )


def test_a_file_is_read_once(
    environment: ConfigEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.write_project("username: a\n")
    monkeypatch.setenv("SYMPHONY_CONFIG", str(environment.project_file))
    found = read_sources.read_sources({}, [environment.project_file], ".symphony.yml", [])
    assert len(found) == 1
    assert SymphonyConfig().username == "a"


def test_the_named_file_must_exist(
    environment: ConfigEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYMPHONY_CONFIG", "~/nowhere.yml")
    message = rf"SYMPHONY_CONFIG is {environment.home}/nowhere\.yml, but there is no such file"
    with pytest.raises(NotFound, match=message):
        SymphonyConfig().settings()
    monkeypatch.setenv("SYMPHONY_CONFIG", "")
    assert SymphonyConfig().username is None


def test_relative_paths_are_relative_to_the_file(
    environment: ConfigEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = environment.work / "deep"
    deep.mkdir()
    monkeypatch.chdir(deep)
    environment.write_project("experiment_folder: ../runs\nkubeconfig: ~/config\n")
    config = SymphonyConfig()
    assert config.experiment_folder == environment.home / "runs"
    assert config.get("kubeconfig") == str(environment.home / "config")
    monkeypatch.setenv("SYMPHONY_EXPERIMENT_FOLDER", "here")
    assert config.experiment_folder == deep / "here"


def test_file_locations(environment: ConfigEnvironment) -> None:
    user_file = environment.home / ".config" / "symphony" / "config.yml"
    assert file_locations(os.environ) == [
        ("project", environment.project_file, False),
        ("user", user_file, False),
    ]
    environment.write_user("")
    environment.write_named("")
    environment.write_project("")
    assert file_locations(os.environ) == [
        ("project", environment.project_file, True),
        ("SYMPHONY_CONFIG", environment.home / "named.yml", True),
        ("user", user_file, True),
    ]


# --- formats ---

CONTENTS = {
    "YAML": "username: sarah\nprofiles: {gke: {image: 'i'}}\n",
    "JSON": '{"username": "sarah", "profiles": {"gke": {"image": "i"}}}',
    "TOML": 'username = "sarah"\n[profiles.gke]\nimage = "i"\n',
}


@pytest.mark.parametrize("file_format", CONTENTS)
@pytest.mark.parametrize("has_suffix", [False, True])
def test_every_format_can_be_read(
    environment: ConfigEnvironment, file_format: str, has_suffix: bool
) -> None:
    if file_format == "TOML" and not HAS_TOML:
        pytest.skip("no parser of TOML is installed")
    path = environment.work / (f"rc.{file_format}" if has_suffix else "rc.conf")
    path.write_text(CONTENTS[file_format])
    config = SymphonyConfig()
    config.load_config_file(path)
    config.update({"profile": "gke"})
    assert (config.username, config.get("image")) == ("sarah", "i")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "YAML"),
        ("# note\n\nusername: a=b\n", "YAML"),
        ("---\nusername: a\n", "YAML"),
        ("  {}", "JSON"),
        ("# note\n[profiles.gke]\n", "TOML"),
        ("[[a]] # note\n", "TOML"),
        ("a.b = 1\n", "TOML"),
    ],
)
def test_the_format_is_detected_by_content(text: str, expected: str) -> None:
    assert file_formats.detect_format(Path("rc"), text) == expected


def test_text_fields_keep_the_text_of_the_file(environment: ConfigEnvironment) -> None:
    environment.write_project(
        "image: 010\nx-own: 010\nprofile: no\nprofiles: {no: {context: 1e3}}\n"
    )
    config = SymphonyConfig()
    assert (config.get("image"), config.get("context"), config.get("x-own")) == ("010", "1e3", 8)


def test_an_empty_file_sets_nothing(environment: ConfigEnvironment) -> None:
    environment.write_project("# username: sarah\n")
    assert SymphonyConfig().username is None


@needs_toml
def test_a_toml_date_is_read_as_text(environment: ConfigEnvironment) -> None:
    (environment.work / ".symphony.toml").write_text("x-when = 2024-01-01\n")
    assert SymphonyConfig().get("x-when") == "2024-01-01"


# --- errors ---


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (".symphony.yml", "username: [\n", ".symphony.yml:2:1: not YAML: "),
        (".symphony.yml", "- a\n", ".symphony.yml:1:1: a configuration "),
        (
            ".symphony.yml",
            "image: i\nusernam: a\n",
            ".symphony.yml:2:1: usernam: a configuration has no key 'usernam'; did you mean",
        ),
        (
            ".symphony.yml",
            "image: i\nprofiles:\n  gke:\n    imgae: i\n",
            ".symphony.yml:4:5: profiles.gke.imgae: profile 'gke' has no key 'imgae'; did you mean",
        ),
        (".symphony.yml", "resources:\n  cpu: x\n", ".symphony.yml:2:3: resources.cpu: cpu "),
        (".symphony.json", '{"image":\n }', ".symphony.json:2:2: not JSON: Expecting value"),
        (".symphony.json", '{"usernam": "a"}', ".symphony.json: usernam: a configuration has no"),
        pytest.param(
            ".symphony.toml",
            "image = 'a'\nb\n",
            ".symphony.toml:2:2: not TOML: Expected '='",
            marks=needs_toml,
        ),
        pytest.param(
            ".symphony.toml",
            "usernam = 'a'\n",
            ".symphony.toml: usernam: a configuration has no key",
            marks=needs_toml,
        ),
    ],
)
def test_an_error_contains_its_position(
    environment: ConfigEnvironment, name: str, text: str, message: str
) -> None:
    (environment.work / name).write_text(text)
    assert message in error_message(environment)


@needs_toml
@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a." * 50_000 + "a = 1\n", "1:200: nested more than 100 levels deep"),
        ('"a". ' * 101 + "a = 1\n", "1:499: nested more than 100 levels deep"),
        ("x = 1\n[" + "a." * 101 + "a]\n", "2:201: nested more than 100 levels deep"),
        ("x-a = " + "[" * 30_000, "1:107: nested more than 100 levels deep"),
        ("x-a = 1" + "0" * 300, "1:7: a number with more than 300 digits"),
    ],
    ids=lambda text: text[:20],
)
def test_toml_has_limits(environment: ConfigEnvironment, text: str, message: str) -> None:
    (environment.work / ".symphony.toml").write_text(text)
    assert error_message(environment) == f".symphony.toml:{message}"


@needs_toml
def test_text_and_comments_in_toml_have_no_limits(environment: ConfigEnvironment) -> None:
    text = "[" * 200 + "a." * 200 + "1" * 400
    lines = [f'x-a = "{text}" # {text}', f"x-b = '{text}'", f'x-c = """{text}"\n{text}"""']
    (environment.work / ".symphony.toml").write_text("\n".join(lines))
    assert SymphonyConfig().get("x-b") == text


def test_a_configuration_file_has_a_maximum_size(environment: ConfigEnvironment) -> None:
    environment.write_project("#" * (1 << 20) + "\n")
    assert error_message(environment) == (
        ".symphony.yml: larger than 1 MiB, which is the maximum size"
    )


def test_an_error_contains_its_variable(
    environment: ConfigEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYMPHONY_USERNAME", "Sarah")
    assert error_message(environment).startswith("SYMPHONY_USERNAME: user name 'Sarah' is not")


def test_a_missing_parser_of_toml(
    environment: ConfigEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    (environment.work / ".symphony.toml").write_text("a = 1\n")

    def import_module(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(documents.importlib, "import_module", import_module)
    message = error_message(environment)
    assert re.search(r"this version of Python needs the package 'toml(i|lib)'", message)

"""Files of configuration: where they are looked for, how their form is told, and what is said of one that is wrong."""

from __future__ import annotations

import importlib
import os
import re
import sys
from pathlib import Path

import pytest

from symphony import NotFound, SpecError, SymphonyConfig
from symphony.config import files, sources
from tests.unit.configured import Surroundings, surroundings

__all__ = ["surroundings"]

HAS_TOML = sys.version_info >= (3, 11) or importlib.util.find_spec("tomli") is not None
needs_toml = pytest.mark.skipif(not HAS_TOML, reason="no package reads TOML here")


def refusal(surroundings: Surroundings) -> str:
    """What is said of the project's file, without the folder."""
    with pytest.raises(SpecError) as caught:
        SymphonyConfig().settings()
    message = str(caught.value)
    assert len(message.splitlines()) == 1
    return message.replace(f"{surroundings.work}/", "")


# --- where ---


def test_the_nearest_of_the_folders_above_wins(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = surroundings.work / "a" / "b"
    deep.mkdir(parents=True)
    monkeypatch.chdir(deep)
    surroundings.project("username: project\nimage: project\n")
    (surroundings.home / ".symphony.yml").write_text("username: home\n")
    config = SymphonyConfig()
    assert config.username == "project"
    (deep.parent / ".symphony.json").write_text('{"username": "nearer"}')
    config.reset()
    assert (config.username, config.get("image")) == ("nearer", None)


def test_above_the_home_folder_none_is_looked_for(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (surroundings.home.parent / ".symphony.yml").write_text("username: above\n")
    config = SymphonyConfig()
    assert config.username is None
    (surroundings.home / ".symphony.yml").write_text("username: home\n")
    config.reset()
    assert config.username == "home"
    outside = surroundings.home.parent / "elsewhere"
    outside.mkdir()
    monkeypatch.chdir(outside)
    assert config.username == "above"


def test_the_users_own_is_in_the_xdg_folder(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    surroundings.user("username: home\n")
    assert SymphonyConfig().username == "home"
    folder = surroundings.home / "xdg" / "symphony"
    folder.mkdir(parents=True)
    (folder / "config.yaml").write_text("username: xdg\n")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(folder.parent))
    assert SymphonyConfig().username == "xdg"
    monkeypatch.setenv("XDG_CONFIG_HOME", "relative")
    assert SymphonyConfig().username == "home"


def test_two_in_one_folder_are_refused(surroundings: Surroundings) -> None:
    surroundings.project("username: a\n")
    (surroundings.work / ".symphony.json").write_text("{}")
    said = refusal(surroundings)
    assert said.endswith(
        ": .symphony.yml and .symphony.json are two configurations of one folder; keep one of them"
    )


def test_one_file_counts_once(surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch) -> None:
    surroundings.project("username: a\n")
    monkeypatch.setenv("SYMPHONY_CONFIG", str(surroundings.project_file))
    assert len(sources.of_surroundings({}, [surroundings.project_file], ".symphony.yml", [])) == 1
    assert SymphonyConfig().username == "a"


def test_the_file_that_is_named_has_to_be_there(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYMPHONY_CONFIG", "~/nowhere.yml")
    with pytest.raises(
        NotFound, match=rf"SYMPHONY_CONFIG names {surroundings.home}/nowhere\.yml, and there is no"
    ):
        SymphonyConfig().settings()
    monkeypatch.setenv("SYMPHONY_CONFIG", "")
    assert SymphonyConfig().username is None


def test_paths_are_relative_to_the_file(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    deep = surroundings.work / "deep"
    deep.mkdir()
    monkeypatch.chdir(deep)
    surroundings.project("experiment_folder: ../runs\nkubeconfig: ~/config\n")
    config = SymphonyConfig()
    assert config.experiment_folder == surroundings.home / "runs"
    assert config.get("kubeconfig") == str(surroundings.home / "config")
    monkeypatch.setenv("SYMPHONY_EXPERIMENT_FOLDER", "here")
    assert config.experiment_folder == deep / "here"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to others")
def test_what_a_stranger_left_in_a_folder_for_all_is_not_read(surroundings: Surroundings) -> None:
    surroundings.project("username: stranger\n")
    os.chown(surroundings.project_file, 12345, 12345)
    assert SymphonyConfig().username == "stranger"
    surroundings.work.chmod(0o1777)
    SymphonyConfig().reset()
    assert refusal(surroundings).startswith(
        ".symphony.yml: belongs to another user, in a folder that everybody may"
    )
    SymphonyConfig().reset()
    surroundings.monkeypatch.setenv("SYMPHONY_CONFIG", str(surroundings.project_file))
    surroundings.monkeypatch.chdir(surroundings.home)
    assert SymphonyConfig().username == "stranger"


# --- in which form ---

FORMS = {
    "YAML": "username: sarah\nprofiles: {gke: {image: 'i'}}\n",
    "JSON": '{"username": "sarah", "profiles": {"gke": {"image": "i"}}}',
    "TOML": 'username = "sarah"\n[profiles.gke]\nimage = "i"\n',
}


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", ["config", "rc.conf", "BY_NAME"])
def test_the_form_is_told_by_name_or_content(
    surroundings: Surroundings, form: str, name: str
) -> None:
    if form == "TOML" and not HAS_TOML:
        pytest.skip("no package reads TOML here")
    path = surroundings.work / (f"rc.{form}" if name == "BY_NAME" else name)
    path.write_text(FORMS[form])
    config = SymphonyConfig()
    config.load_config_file(path)
    config.update({"profile": "gke"})
    assert (config.username, config.get("image")) == ("sarah", "i")


@pytest.mark.parametrize(
    ("text", "form"),
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
def test_the_form_of_a_content(text: str, form: str) -> None:
    assert files.form(Path("rc"), text) == form


def test_what_is_text_is_taken_as_it_is_written(surroundings: Surroundings) -> None:
    surroundings.project("image: 010\nx-own: 010\nprofile: no\nprofiles: {no: {context: 1e3}}\n")
    config = SymphonyConfig()
    assert (config.get("image"), config.get("context"), config.get("x-own")) == ("010", "1e3", 8)


def test_an_empty_file_says_nothing(surroundings: Surroundings) -> None:
    surroundings.project("# username: sarah\n")
    assert SymphonyConfig().username is None


@needs_toml
def test_dates_of_toml_are_what_was_written(surroundings: Surroundings) -> None:
    (surroundings.work / ".symphony.toml").write_text("x-when = 2024-01-01\n")
    assert SymphonyConfig().get("x-when") == "2024-01-01"


# --- what is wrong ---


@pytest.mark.parametrize(
    ("name", "text", "said"),
    [
        (".symphony.yml", "username: [\n", ".symphony.yml:2:1: not YAML: while parsing a flow node"),
        (".symphony.yml", "username: a\nusername: b\n", ".symphony.yml:2:1: not YAML: the key 'username' stands twice"),
        (".symphony.yml", "- a\n", ".symphony.yml:1:1: a configuration is a mapping, not ['a']"),
        (".symphony.yml", "image: i\nusernam: a\n",
         ".symphony.yml:2:1: usernam: a configuration knows no 'usernam'; did you mean 'username'? (keys of your own"),
        (".symphony.yml", "image: i\nusername: A_b\n", ".symphony.yml:2:1: username: user name 'A_b' is not valid"),
        (".symphony.yml", "image: i\nprofiles:\n  gke:\n    imgae: i\n",
         ".symphony.yml:4:5: profiles.gke.imgae: profile 'gke' knows no 'imgae'; did you mean 'image'?"),
        (".symphony.yml", "resources:\n  cpu: much\n", ".symphony.yml:2:3: resources.cpu: cpu is an amount"),
        (".symphony.yml", b"image: \xff\n", ".symphony.yml: not UTF-8 text (byte 7)"),
        (".symphony.json", '{"image":\n }', ".symphony.json:2:2: not JSON: Expecting value"),
        (".symphony.json", '{"image": "a", "image": "b"}', ".symphony.json: a key stands twice: 'image'"),
        (".symphony.json", '{"usernam": "a"}', ".symphony.json: usernam: a configuration knows no 'usernam'"),
        (".symphony.json", "", ".symphony.json:1:1: not JSON"),
        pytest.param(".symphony.toml", "image = 'a'\nb\n", ".symphony.toml:2:2: not TOML: Expected '='",
                     marks=needs_toml),
        pytest.param(".symphony.toml", "usernam = 'a'\n", ".symphony.toml: usernam: a configuration knows no 'usernam'",
                     marks=needs_toml),
    ],
)  # fmt: skip
def test_a_wrong_file_is_told_with_its_place(
    surroundings: Surroundings, name: str, text: str | bytes, said: str
) -> None:
    (surroundings.work / name).write_bytes(text if isinstance(text, bytes) else text.encode())
    assert said in refusal(surroundings)


def test_a_variable_that_is_wrong_is_named(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYMPHONY_USERNAME", "Sarah")
    assert refusal(surroundings).startswith("SYMPHONY_USERNAME: user name 'Sarah' is not valid")


def test_without_a_reader_toml_says_what_to_install(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    (surroundings.work / ".symphony.toml").write_text("a = 1\n")

    def missing(name: str) -> None:
        raise ModuleNotFoundError(name)

    monkeypatch.setattr(importlib, "import_module", missing)
    assert re.search(
        r"reading TOML on this Python needs the package 'toml(i|lib)'", refusal(surroundings)
    )


def test_the_places_that_are_looked_at(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = surroundings.home / ".config" / "symphony" / "config.yml"
    assert sources.places(os.environ) == [
        ("project", surroundings.project_file, False),
        ("user", user, False),
    ]
    surroundings.user("")
    surroundings.named("")
    surroundings.project("")
    assert sources.places(os.environ) == [
        ("project", surroundings.project_file, True),
        ("SYMPHONY_CONFIG", surroundings.home / "named.yml", True),
        ("user", user, True),
    ]

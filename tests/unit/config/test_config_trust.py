"""Project files: settings that need trust, and files of other users."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from symphony import Cluster, SpecError, SymphonyConfig
from symphony.config import trust
from tests.unit.config_environment import ConfigEnvironment, environment

__all__ = ["environment"]

ANOTHER_USER = 12345
HARMLESS = "username: sarah\nexperiment_folder: runs\nimage: i\nresources: {cpu: 1}\nx-own: 1\n"
ADVICE = "read the file, and run 'symphony config trust' if you trust it"

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can change an owner")


def settings() -> dict[str, object]:
    """Return the effective settings except for those of `HARMLESS`, after reading all files."""
    config = SymphonyConfig()
    config.reset()
    harmless = {"experiment_folder", "image", "resources.cpu", "x-own", "username"}
    return {name: item.value for name, item in config.settings().items() if name not in harmless}


def notes(environment: ConfigEnvironment) -> list[str]:
    return [
        str(file).replace(f"{environment.home.parent}/", "")
        for file in SymphonyConfig().untrusted_files()
    ]


def trust_project(environment: ConfigEnvironment) -> None:
    trust.trust(environment.project_file, os.environ)


def give_away(path: Path) -> None:
    os.chown(path, ANOTHER_USER, -1, follow_symlinks=False)


@pytest.mark.parametrize(
    ("text", "ignored", "effective"),
    [
        ("", None, {"backend": "local"}),
        ("backend: tmux\nnamespace: n\n", None, {"backend": "tmux", "namespace": "n"}),
        (
            "profile: p\nprofiles: {p: {backend: tmux}}\n",
            None,
            {"backend": "tmux", "profile": "p"},
        ),
        ("kubeconfig: k\n", "kubeconfig", {"backend": "local"}),
        ("context: null\n", "context", {"backend": "local"}),
        ("runs: {keep: 0}\n", "runs.keep", {"backend": "local"}),
        (
            "options: {local: {preamble_cmds: [x], state_dir: s}}\n",
            "options.local.preamble_cmds, options.local.state_dir",
            {"backend": "local"},
        ),
        # Without the context, these settings would lead to another cluster.
        (
            "backend: kube\nnamespace: n\ncontext: c\nprofiles: {p: {backend: kube}}\n",
            "backend, namespace, context, profiles.p",
            {"backend": "local"},
        ),
        (
            "backend: tmux\nprofiles: {p: {context: c}, q: {image: i}}\n",
            "profiles.p",
            {"backend": "tmux"},
        ),
        (
            "profile: p\nprofiles: {p: {options: {kube: {expose: none}}}}\n",
            "profile, profiles.p",
            {"backend": "local"},
        ),
    ],
)
def test_only_some_settings_need_trust(
    environment: ConfigEnvironment, text: str, ignored: str | None, effective: dict[str, object]
) -> None:
    environment.write_project(HARMLESS + text, trusted=False)
    assert settings() == effective
    config = SymphonyConfig()
    assert (config.username, config.get("image"), config.get("x-own")) == ("sarah", "i", 1)
    if ignored is None:
        assert notes(environment) == []
        return
    assert notes(environment) == [
        f"home/project/.symphony.yml: ignored {ignored}, because the file is not trusted; {ADVICE}"
    ]
    trust_project(environment)
    settings()
    assert notes(environment) == []


def test_trust_ends_when_the_file_changes(environment: ConfigEnvironment) -> None:
    environment.write_project("context: a\n")
    assert settings() == {"backend": "local", "context": "a"}
    environment.write_project("context: b\n", trusted=False)
    assert settings() == {"backend": "local"}
    environment.write_project("context: a\n", trusted=False)
    assert settings() == {"backend": "local", "context": "a"}
    assert trust.withdraw(environment.project_file, os.environ)
    assert settings() == {"backend": "local"}
    assert not trust.withdraw(environment.project_file, os.environ)


def test_trust_applies_to_one_path(environment: ConfigEnvironment) -> None:
    environment.write_project("context: a\n")
    environment.work.rename(environment.home / "other")
    environment.monkeypatch.chdir(environment.home / "other")
    assert settings() == {"backend": "local"}


def test_file_that_a_variable_names_is_trusted(environment: ConfigEnvironment) -> None:
    environment.write_project("context: a\n", trusted=False)
    environment.monkeypatch.setenv("SYMPHONY_CONFIG", ".symphony.yml")
    assert settings() == {"backend": "local", "context": "a"}


def test_profile_that_is_ignored_cannot_be_selected(environment: ConfigEnvironment) -> None:
    environment.write_project("profiles: {gke: {context: a}}\n", trusted=False)
    environment.write_user("profiles: {gke: {backend: kube}}\n")
    environment.monkeypatch.setenv("SYMPHONY_PROFILE", "gke")
    with pytest.raises(SpecError, match="SYMPHONY_PROFILE: profile 'gke' cannot be used: .*/.symp"):
        settings()
    trust_project(environment)
    assert settings()["context"] == "a"


def test_program_gets_a_warning(environment: ConfigEnvironment) -> None:
    environment.write_project("options: {local: {start_dir: /}}\n", trusted=False)
    with pytest.warns(UserWarning, match="ignored options.local.start_dir, because") as warned:
        Cluster.new("local")
    assert warned[0].filename == __file__


def test_pipe_is_no_configuration_file(environment: ConfigEnvironment) -> None:
    os.mkfifo(environment.project_file)
    assert settings() == {"backend": "local"}


# --- files of other users ---


@as_root
@pytest.mark.parametrize("text", [HARMLESS, "username: [\n"])
def test_file_of_another_user_is_ignored(environment: ConfigEnvironment, text: str) -> None:
    environment.write_project(text, trusted=False)
    give_away(environment.project_file)
    assert settings() == {"backend": "local"}
    assert SymphonyConfig().username is None
    assert notes(environment) == [
        "home/project/.symphony.yml: ignored, because the file belongs to user 12345; " + ADVICE
    ]
    environment.write_project(HARMLESS, trusted=True)
    settings()
    assert SymphonyConfig().username == "sarah"


@as_root
def test_file_of_another_user_in_a_shared_directory_is_passed_over(
    environment: ConfigEnvironment,
) -> None:
    environment.write_project("username: another-user\n", trusted=False)
    (environment.home / ".symphony.json").write_text('{"username": "own"}')
    environment.work.chmod(0o1777)
    settings()
    assert SymphonyConfig().username == "another-user"
    give_away(environment.project_file)
    settings()
    assert (SymphonyConfig().username, notes(environment)) == ("own", [])
    with pytest.raises(SpecError, match="set SYMPHONY_CONFIG="):
        trust_project(environment)
    environment.monkeypatch.setenv("SYMPHONY_CONFIG", str(environment.project_file))
    environment.monkeypatch.chdir("/")
    settings()
    assert SymphonyConfig().username == "another-user"


@as_root
def test_link_of_another_user_is_a_file_of_another_user(environment: ConfigEnvironment) -> None:
    (environment.home / "own.yml").write_text("username: own\n")
    environment.project_file.symlink_to("../own.yml")
    settings()
    assert SymphonyConfig().username == "own"
    give_away(environment.project_file)
    settings()
    assert SymphonyConfig().username is None


@as_root
def test_user_file_and_records_of_another_user_are_not_used(
    environment: ConfigEnvironment,
) -> None:
    """This is the situation of a program that runs with ``sudo -E``."""
    environment.write_project("context: a\n")
    environment.write_user("username: another-user\n")
    give_away(environment.home / ".config" / "symphony" / "config.yml")
    give_away(environment.home)
    assert settings() == {"backend": "local"}
    project, user = notes(environment)
    assert project.startswith(
        "home/project/.symphony.yml: ignored context, because the file is not"
    )
    assert user.startswith(
        "home/.config/symphony/config.yml: ignored, because the file belongs to "
    )
    with pytest.raises(SpecError, match="the directory of trusted files .* is not used, because"):
        trust_project(environment)

"""`SymphonyConfig`: the priority of its sources, changes by the program, and handlers."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest

import symphony.engine
from symphony import Cluster, NotFound, PluginError, SpecError, SymphonyConfig
from symphony.config.fields import with_username
from tests.unit.config_environment import ConfigEnvironment, environment

__all__ = ["environment"]


def values(*fields: str) -> list[Any]:
    return [SymphonyConfig().get(field) for field in fields]


def test_every_call_returns_the_same_object() -> None:
    assert SymphonyConfig() is SymphonyConfig()
    assert symphony.engine.SymphonyConfig is SymphonyConfig


def test_built_in_values(environment: ConfigEnvironment) -> None:
    config = SymphonyConfig()
    assert config.is_empty()
    assert (config.username, config.experiment_folder, config.profile) == (None, None, None)
    assert config.settings() == {"backend": ("local", "built-in")}


# --- priority ---


@pytest.fixture
def all_sources(environment: ConfigEnvironment) -> ConfigEnvironment:
    """Files that all set an image and a context, and one more field each."""
    environment.write_user("image: user\ncontext: user\nusername: user\n")
    environment.write_named("image: named\ncontext: named\nnamespace: named\n")
    environment.write_project(
        "image: project\ncontext: project\nbackend: tmux\n"
        "profiles:\n  gke: {image: profile, context: profile}\n"
    )
    return environment


def test_priority_of_files(all_sources: ConfigEnvironment) -> None:
    assert values("image", "namespace", "username") == ["project", "named", "user"]
    all_sources.project_file.unlink()
    assert values("image", "backend") == ["project", "tmux"], "files are read once"
    SymphonyConfig().reset()
    assert values("image", "backend") == ["named", "local"]


def test_priority_of_profile_variables_and_program(
    all_sources: ConfigEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYMPHONY_PROFILE", "gke")
    assert values("image", "backend") == ["profile", "tmux"]
    monkeypatch.setenv("SYMPHONY_IMAGE", "variable")
    assert values("image", "context") == ["variable", "profile"]
    SymphonyConfig().update({"image": "program"})
    assert values("image", "context") == ["program", "profile"]


def test_a_profile_ranks_directly_below_the_source_that_selects_it(
    all_sources: ConfigEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SymphonyConfig()
    monkeypatch.setenv("SYMPHONY_IMAGE", "variable")
    config.update({"profile": "gke"})
    assert values("image") == ["profile"]
    config.reset()
    config.update({"context": "program"})
    config.set_command_line({"--profile": "gke", "--backend": "local"})
    assert values("image", "context", "backend") == ["profile", "profile", "local"]
    assert config.settings()["image"].source.endswith(".symphony.yml:5:9")


def test_every_value_has_its_source(
    all_sources: ConfigEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYMPHONY_NAMESPACE", "n")
    config = SymphonyConfig()
    config.set_username("sarah")
    config.set_command_line({"--backend": "kube"})
    assert {name: source for name, (_, source) in config.settings().items()} == {
        "username": "the program",
        "backend": "--backend",
        "namespace": "SYMPHONY_NAMESPACE",
        "image": f"{all_sources.project_file}:1:1",
        "context": f"{all_sources.project_file}:2:1",
    }
    config.set_command_line({})
    assert config.backend == "tmux"


def test_several_files_can_set_parts_of_one_profile(environment: ConfigEnvironment) -> None:
    environment.write_user(
        "profiles: {gke: {image: user, namespace: user, resources: {cpu: 1, memory: 1Gi}}}\n"
    )
    environment.write_project(
        "profile: gke\nimage: i\nprofiles: {gke: {image: project, resources: {mem: 2Gi}}}\n"
    )
    resources = {"memory": "2Gi", "cpu": "1"}
    assert values("image", "namespace", "resources") == ["project", "user", resources]


def test_the_profile_of_a_value(environment: ConfigEnvironment) -> None:
    environment.write_project("image: i\nprofile: gke\nprofiles: {gke: {backend: kube}}\n")
    fields = ("backend", "image", "context")
    assert [SymphonyConfig().profile_of(field) for field in fields] == ["gke", None, None]


@pytest.mark.parametrize(
    ("profile", "message"),
    [
        ("gek", "SYMPHONY_PROFILE: no profile 'gek'; did you mean 'gke'?"),
        ("x", "SYMPHONY_PROFILE: no profile 'x'; the profiles are gke"),
    ],
)
def test_unknown_profile(
    all_sources: ConfigEnvironment, monkeypatch: pytest.MonkeyPatch, profile: str, message: str
) -> None:
    monkeypatch.setenv("SYMPHONY_PROFILE", profile)
    with pytest.raises(SpecError) as error:
        SymphonyConfig().get("image")
    assert str(error.value) == message


def test_null_removes_the_values_of_lower_sources(
    environment: ConfigEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.write_user(
        "username: sarah\nimage: i\nresources: {cpu: 1}\noptions: {local: {start_dir: a}}\n"
    )
    environment.write_project(
        "username: null\nresources: null\noptions: {local: {start_dir: null}}\n"
    )
    config = SymphonyConfig()
    assert values("username", "resources", "options") == [None, None, None]
    monkeypatch.setenv("SYMPHONY_IMAGE", "")
    assert config.get("image", "none") == "none"
    config.update({"image": "again"})
    assert config.get("image") == "again"


def test_options_are_merged_key_by_key(environment: ConfigEnvironment) -> None:
    environment.write_user(
        "options: {kube: {expose: none, jobs_only: true}, local: {start_dir: a}}\n"
    )
    environment.write_project("options: {kube: {expose: NodePort}}\n")
    assert SymphonyConfig().get("options") == {
        "kube": {"expose": "NodePort", "jobs_only": True},
        "local": {"start_dir": "a"},
    }


def test_a_change_of_the_working_directory_is_noticed(
    environment: ConfigEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = environment.home / "other"
    other.mkdir()
    (other / ".symphony.yml").write_text("username: other\n")
    assert SymphonyConfig().username is None
    monkeypatch.chdir(other)
    assert SymphonyConfig().username == "other"


def test_the_working_directory_may_have_been_removed(
    environment: ConfigEnvironment, monkeypatch: pytest.MonkeyPatch
) -> None:
    environment.write_user("username: sarah\n")
    removed = environment.work / "removed"
    removed.mkdir()
    monkeypatch.chdir(removed)
    removed.rmdir()
    SymphonyConfig().update({"image": "i"})
    assert values("username", "image") == ["sarah", "i"]


# --- changes by the program ---


def test_the_last_change_wins_until_reset(environment: ConfigEnvironment) -> None:
    config = SymphonyConfig()
    config.set_username("sarah")
    config.update({"username": "tom", "x-own": {"deep": [1]}})
    config.set_experiment_folder("runs")
    assert values("username", "x-own") == ["tom", {"deep": [1]}]
    assert config.experiment_folder == environment.work / "runs"
    config.set_username(None)
    assert config.username is None
    config.reset()
    assert config.settings() == {"backend": ("local", "built-in")}


def test_a_loaded_file_ranks_above_files_that_are_found(environment: ConfigEnvironment) -> None:
    environment.write_project("username: project\nimage: project\n")
    path = environment.home / "given.toml"
    path.write_text("username = 'given'\nexperiment_folder = '../runs'\n")
    config = SymphonyConfig()
    config.load_config_file(path)
    assert values("username", "image") == ["given", "project"]
    assert config.experiment_folder == environment.home.parent / "runs"
    with pytest.raises(NotFound, match=r"nowhere\.yml: no such file"):
        config.load_config_file("nowhere.yml")


# The message of each begins with the path of the wrong key. The values of amounts and of other
# types are tested with the validators.
WRONG_SETTINGS: list[tuple[dict[str, Any], str]] = [
    ({"usernam": "x"}, "usernam: a configuration has no key 'usernam'; did you mean 'username'?"),
    ({"zzz": 1}, "the keys are username, experiment_folder, backend, profile, context"),
    ({"username": "Sarah K"}, "username: user name 'Sarah K' is not valid"),
    ({"username": ["a"]}, "username: username "),
    ({"namespace": "Team_A"}, "namespace: a namespace must consist of a-z, 0-9 and '-'"),
    ({"resources": {"cpus": 3}}, "resources.cpus: resources "),
    ({"resources": {"cpu": "many"}}, "resources.cpu: cpu "),
    ({"resources": {"mem": 1, "memory": 1}}, "resources: memory and mem are the same setting"),
    ({"runs": {"kep": 3}}, "runs.kep: runs "),
    ({"runs": {"keep": -1}}, "runs.keep: keep "),
    ({"runs": {"older_than": "soon"}}, "runs.older_than: older_than "),
    ({"options": {"kube": 3}}, "options.kube: options must be grouped by backend, as in {kube"),
    ({"profiles": []}, "profiles: profiles "),
    ({"profiles": {"gke": {"imge": "x"}}}, "profiles.gke.imge: profile 'gke' has no key 'imge'"),
    ({"profiles": {"gke": {"profile": "x"}}}, "profile 'gke' has no key 'profile'"),
    ({3: "x"}, "a configuration "),
]


@pytest.mark.parametrize(("settings", "message"), WRONG_SETTINGS, ids=ascii)
def test_a_wrong_update_changes_nothing(
    environment: ConfigEnvironment, settings: dict[str, Any], message: str
) -> None:
    config = SymphonyConfig()
    config.set_username("sarah")
    with pytest.raises(SpecError) as error:
        config.update({"image": "i", **settings})
    assert message in str(error.value)
    assert len(str(error.value).splitlines()) == 1
    assert values("username", "image") == ["sarah", None]


def test_get_of_an_unknown_field(environment: ConfigEnvironment) -> None:
    with pytest.raises(SpecError, match="has no key 'usernme'; did you mean 'username'"):
        SymphonyConfig().get("usernme")


# --- handlers ---


def test_a_handler_is_called_with_the_current_value_and_each_change(
    environment: ConfigEnvironment,
) -> None:
    environment.write_project("username: project\n")
    config, calls = SymphonyConfig(), []
    config.register_handler("username", calls.append)
    config.register_handler("image", lambda value: calls.append(("image", value)))
    config.set_username("sarah")
    config.set_username("sarah")
    config.update({"image": "i", "context": "c"})
    config.set_username(None)
    assert calls == ["project", "sarah", ("image", "i"), None]
    config.reset()
    config.set_username("tom")
    assert len(calls) == 4


def test_a_handler_adds_a_field(environment: ConfigEnvironment) -> None:
    config, calls = SymphonyConfig(), []
    with pytest.raises(SpecError, match="has no key 'wandb'"):
        config.update({"wandb": "x"})
    config.register_handler("wandb", calls.append)
    config.update({"wandb": {"project": "x"}})
    path = environment.work / "more.yml"
    path.write_text("wandb: {project: y}\n")
    config.load_config_file(path)
    assert calls == [{"project": "x"}, {"project": "y"}]
    assert config.get("wandb") == {"project": "y"}


def test_a_handler_that_raises_rejects_the_change(environment: ConfigEnvironment) -> None:
    config, calls = SymphonyConfig(), []

    def reject_bad(value: str) -> None:
        if value == "bad":
            raise ValueError("not this one")

    config.update({"image": "good", "context": "before"})
    config.register_handler("context", calls.append)
    config.register_handler("image", reject_bad)
    message = r"^image cannot be 'bad': its handler failed: ValueError: not this one$"
    with pytest.raises(SpecError, match=message):
        config.update({"context": "after", "image": "bad"})
    assert values("image", "context") == ["good", "before"]
    assert calls == ["before", "after", "before"], "the previous value is restored"


@pytest.mark.parametrize("has_another_handler", [False, True])
def test_a_handler_that_raises_at_once_is_not_registered(
    environment: ConfigEnvironment, has_another_handler: bool
) -> None:
    config = SymphonyConfig()
    config.update({"image": "i"})
    calls: list[str] = []
    if has_another_handler:
        config.register_handler("image", calls.append)
    with pytest.raises(SpecError, match="its handler failed: ZeroDivisionError"):
        config.register_handler("image", lambda _: 1 / 0)
    config.update({"image": "j"})
    assert config.get("image") == "j"
    assert calls == (["i", "j"] if has_another_handler else [])


@pytest.mark.parametrize(
    ("field", "handler"), [("", print), (3, print), ("image", "text"), ("profiles", print)]
)
def test_wrong_handlers(environment: ConfigEnvironment, field: Any, handler: Any) -> None:
    with pytest.raises(SpecError):
        SymphonyConfig().register_handler(field, handler)


# --- the user name in the names of experiments ---


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("rl", "sarah-rl"),
        ("sarah-rl", "sarah-rl"),
        ("sarahs-x", "sarah-sarahs-x"),
        ("sarah", "sarah-sarah"),
        ("x" * 57, f"sarah-{'x' * 57}"),
    ],
)
def test_experiment_names_begin_with_the_user_name(
    environment: ConfigEnvironment, name: str, expected: str
) -> None:
    SymphonyConfig().set_username("sarah")
    assert Cluster.new("local").new_experiment(name).name == expected
    assert with_username("sarah", expected) == expected


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x" * 58, "would have the name 'sarah-x+' with 64 characters, but at most 63 are allowed"),
        ("My_exp", "experiment name 'My_exp' is not valid.*'my-exp'"),
    ],
)
def test_experiment_names_that_are_not_valid_with_the_user_name(
    environment: ConfigEnvironment, name: str, message: str
) -> None:
    SymphonyConfig().set_username("sarah")
    with pytest.raises(SpecError, match=message):
        Cluster.new("local").new_experiment(name)


# --- creating clusters ---


def test_configured_options_of_a_cluster(environment: ConfigEnvironment) -> None:
    environment.write_project(
        "backend: subproc\nnamespace: team-a\nimage: i\n"
        "options:\n"
        "  local: {start_dir: /a}\n"
        "  SUBPROCESS: {preamble_cmds: 'true'}\n"
        "  slurm: {partition: x}\n"
    )
    cluster = Cluster.new()
    assert cluster.backend == "local"
    assert (cluster.defaults.start_dir, cluster.defaults.preamble_cmds) == ("/a", ("true",))
    assert Cluster.new("local", start_dir="/b").defaults.start_dir == "/b"
    without_namespace: Any = Cluster.new("kube", namespace=None)
    assert (without_namespace.namespace, without_namespace.options.image) == (None, "i")
    with_namespace: Any = Cluster.new("kube")
    assert with_namespace.namespace == "team-a"


def test_a_cluster_has_the_configuration_of_the_program(environment: ConfigEnvironment) -> None:
    cluster = Cluster.new("local")
    assert cluster.configuration is SymphonyConfig()
    assert type(cluster)().configuration is SymphonyConfig()
    SymphonyConfig().set_username("sarah")
    assert type(cluster)().new_experiment("rl").name == "sarah-rl"


def test_only_the_error_of_a_configured_option_has_a_position(
    environment: ConfigEnvironment,
) -> None:
    environment.write_project("options: {local: {preamble_cmds: 'true'}}\n")
    with pytest.raises(SpecError, match=r"^backend 'local' has no option 'start_dri'"):
        Cluster.new("local", start_dri="a")
    SymphonyConfig().update({"options": {"local": {"start_dri": "/a"}}})
    message = r"^options\.local\.start_dri in the configuration: backend 'local' has no option"
    with pytest.raises(SpecError, match=message):
        Cluster.new("local")


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        ("backend: locl\n", PluginError, r"yml:1:1: no backend 'locl'; did you mean 'local'"),
        (
            "options: {local: {start_dri: a}}\n",
            SpecError,
            r"yml:1:19: options\.local\.start_dri: .*no option .*; did you mean 'start_dir'",
        ),
        (
            "options: {kubee: {expose: none}}\n",
            SpecError,
            r"yml:1:11: options\.kubee: .*did you mean 'kube'",
        ),
        (
            "profile: x\nprofiles:\n  x:\n    options:\n      kubee:\n        expose: none\n",
            SpecError,
            r"\.symphony\.yml:5:7: options\.kubee: ",
        ),
        (
            "options: {local: {hold_ports: x}}\n",
            SpecError,
            r"yml:1:19: options\.local\.hold_ports: hold_ports ",
        ),
    ],
)
def test_wrong_options_in_a_file(
    environment: ConfigEnvironment, text: str, error: type[Exception], message: str
) -> None:
    environment.write_project(text)
    with pytest.raises(error, match=message):
        Cluster.new()


def test_resources_apply_to_processes_that_request_none(environment: ConfigEnvironment) -> None:
    environment.write_project("backend: kube\nimage: i\nresources: {cpu: 2, mem: 4Gi}\n")
    cluster = Cluster.new()
    experiment = cluster.new_experiment("rl")
    experiment.new_process("default", command="a")
    experiment.new_process("limited", command="a").resource_limit(cpu=1)
    experiment.new_process("own", command="a").resource_request(cpu=1, memory="1Gi")
    manifest: Any = cluster.manifest(experiment)
    pods = [item for item in manifest.to_dict()["objects"] if item["kind"] == "Pod"]
    assert {pod["metadata"]["name"]: pod["spec"]["containers"][0]["resources"] for pod in pods} == {
        "default": {"requests": {"cpu": "2", "memory": "4Gi"}},
        "limited": {"requests": {"memory": "4Gi"}, "limits": {"cpu": "1"}},
        "own": {"requests": {"cpu": "1", "memory": "1Gi"}},
    }


# --- imports ---

PRINT_IMPORTS = """
import sys
from symphony import Cluster, SymphonyConfig
config = SymphonyConfig()
config.username, config.experiment_folder, config.backend
Cluster.new()
prefixes = ("yaml", "tomllib", "symphony.config", "symphony.model")
print(*(name for name in sys.modules if name.startswith(prefixes)))
"""


def imported_modules(**env: str) -> set[str]:
    result = subprocess.run(
        [sys.executable, "-c", PRINT_IMPORTS],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **env},
    )
    return set(result.stdout.split())


@pytest.mark.without_coverage
def test_parsers_are_imported_only_if_there_is_a_file(environment: ConfigEnvironment) -> None:
    assert imported_modules() == {
        "symphony.config",
        "symphony.config.config",
        "symphony.config.configuration",
        "symphony.config.locations",
    }
    assert not {"yaml", "tomllib", "symphony.model"} & imported_modules(SYMPHONY_BACKEND="local")
    environment.write_project("username: sarah\n")
    assert "yaml" in imported_modules()


def test_what_was_configured_at_one_time_does_not_change(environment: ConfigEnvironment) -> None:
    environment.write_user("username: sarah\nresources: {cpu: '2'}\n")
    config = SymphonyConfig()
    before = config.current()
    config.update({"username": "kim", "resources": {"cpu": "4"}})
    assert (before.username, before.get("resources")) == ("sarah", {"cpu": "2"})
    assert (config.username, config.current().get("resources")) == ("kim", {"cpu": "4"})
    environment.write_user("username: eve\n")
    assert before.current().experiment_name("rl") == "sarah-rl"


def test_own_field_is_known_after_its_handler_was_registered(
    environment: ConfigEnvironment,
) -> None:
    config = SymphonyConfig()
    with pytest.raises(SpecError, match="no key 'room'"):
        config.current().get("room")
    config.register_handler("room", lambda _value: None)
    assert config.current().get("room") is None
    config.update({"room": "kitchen"})
    assert config.current().get("room") == "kitchen"

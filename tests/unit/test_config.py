"""The one object of the configuration: what wins over what, what the program sets, and who is told."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from symphony import Cluster, NotFound, PluginError, SpecError, SymphonyConfig
from symphony.config.naming import with_user
from tests.unit.configured import Surroundings, surroundings

__all__ = ["surroundings"]


def test_there_is_one_of_it(surroundings: Surroundings) -> None:
    assert SymphonyConfig() is SymphonyConfig()
    from symphony.engine import SymphonyConfig as Same

    assert Same is SymphonyConfig


def test_without_anything_there_are_the_built_in_values(surroundings: Surroundings) -> None:
    config = SymphonyConfig()
    assert (config.username, config.experiment_folder, config.backend, config.profile) == (
        None,
        None,
        "local",
        None,
    )
    assert config.settings() == {"backend": ("local", "built-in")}
    assert config.is_empty()


# --- what wins ---


@pytest.fixture
def every(surroundings: Surroundings) -> Surroundings:
    """Every source names an image and a context, and each says one field that those above it do not."""
    surroundings.user("image: user\ncontext: user\nusername: user\n")
    surroundings.named("image: named\ncontext: named\nnamespace: named\n")
    surroundings.project(
        "image: project\ncontext: project\nbackend: tmux\nprofiles:\n  gke: {image: profile, context: profile}\n"
    )
    return surroundings


def test_the_nearest_file_wins_then_the_one_that_is_named_then_the_users_own(
    every: Surroundings,
) -> None:
    config = SymphonyConfig()
    assert [config.get(field) for field in ("image", "namespace", "username")] == [
        "project",
        "named",
        "user",
    ]
    every.project_file.unlink()
    assert [config.get(field) for field in ("image", "backend")] == [
        "project",
        "tmux",
    ]  # until there is a reason
    config.reset()
    assert [config.get(field) for field in ("image", "backend")] == ["named", "local"]


def test_the_profile_wins_over_files_the_environment_over_it_and_the_program_over_both(
    every: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SymphonyConfig()
    monkeypatch.setenv("SYMPHONY_PROFILE", "gke")
    assert (config.get("image"), config.get("backend")) == ("profile", "tmux")
    monkeypatch.setenv("SYMPHONY_IMAGE", "variable")
    assert (config.get("image"), config.get("context")) == ("variable", "profile")
    config.update({"image": "program"})
    assert (config.get("image"), config.get("context")) == ("program", "profile")


def test_a_profile_stands_right_below_what_chose_it(
    every: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = SymphonyConfig()
    monkeypatch.setenv("SYMPHONY_IMAGE", "variable")
    config.update({"profile": "gke"})
    assert config.get("image") == "profile"
    config.reset()
    config.update({"context": "program"})
    config.set_command_line({"--profile": "gke", "--backend": "local"})
    assert [config.get(field) for field in ("image", "context", "backend")] == [
        "profile",
        "profile",
        "local",
    ]
    assert config.settings()["image"].source.endswith(".symphony.yml:5:9")


def test_each_value_tells_where_it_was_said(
    every: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SYMPHONY_NAMESPACE", "n")
    config = SymphonyConfig()
    config.set_username("sarah")
    config.set_command_line({"--backend": "kube"})
    assert {name: source for name, (_, source) in config.settings().items()} == {
        "username": "the program",
        "backend": "--backend",
        "namespace": "SYMPHONY_NAMESPACE",
        "image": f"{every.project_file}:1:1",
        "context": f"{every.project_file}:2:1",
    }
    config.set_command_line({})
    assert config.backend == "tmux"


def test_a_profile_may_be_said_in_parts_and_chosen_in_a_file(surroundings: Surroundings) -> None:
    surroundings.user(
        "profiles: {gke: {image: user, namespace: user, resources: {cpu: 1, memory: 1Gi}}}\n"
    )
    surroundings.project(
        "profile: gke\nimage: project\nprofiles: {gke: {image: near, resources: {mem: 2Gi}}}\n"
    )
    config = SymphonyConfig()
    assert (config.get("image"), config.get("namespace")) == ("near", "user")
    assert config.get("resources") == {"memory": "2Gi", "cpu": "1"}


@pytest.mark.parametrize(
    ("asked", "said"),
    [
        ("gek", "SYMPHONY_PROFILE: no profile 'gek'; did you mean 'gke'?"),
        ("x", "SYMPHONY_PROFILE: no profile 'x'; there are gke"),
    ],
)
def test_a_profile_that_is_not_there(
    every: Surroundings, monkeypatch: pytest.MonkeyPatch, asked: str, said: str
) -> None:
    monkeypatch.setenv("SYMPHONY_PROFILE", asked)
    with pytest.raises(SpecError) as caught:
        SymphonyConfig().get("image")
    assert str(caught.value) == said


def test_nothing_takes_away_what_is_said_further_down(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    surroundings.user(
        "username: sarah\nimage: i\nresources: {cpu: 1}\noptions: {local: {start_dir: a}}\n"
    )
    surroundings.project("username: null\nresources: null\noptions: {local: {start_dir: null}}\n")
    config = SymphonyConfig()
    assert (config.username, config.get("resources"), config.get("options")) == (None, None, None)
    monkeypatch.setenv("SYMPHONY_IMAGE", "")
    assert config.get("image", "none") == "none"
    config.update({"image": "again"})
    assert config.get("image") == "again"


def test_groups_of_settings_merge(surroundings: Surroundings) -> None:
    surroundings.user("options: {kube: {expose: none, jobs_only: true}, local: {start_dir: a}}\n")
    surroundings.project("options: {kube: {expose: NodePort}}\n")
    assert SymphonyConfig().get("options") == {
        "kube": {"expose": "NodePort", "jobs_only": True},
        "local": {"start_dir": "a"},
    }


def test_it_follows_the_working_directory(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = surroundings.work.parent / "other"
    other.mkdir()
    (other / ".symphony.yml").write_text("username: other\n")
    assert SymphonyConfig().username is None
    monkeypatch.chdir(other)
    assert SymphonyConfig().username == "other"


def test_a_working_directory_that_is_gone_is_no_trouble(
    surroundings: Surroundings, monkeypatch: pytest.MonkeyPatch
) -> None:
    surroundings.user("username: sarah\n")
    folder = surroundings.work / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    folder.rmdir()
    config = SymphonyConfig()
    assert config.username == "sarah"
    config.update({"image": "i"})
    assert config.get("image") == "i"


# --- what the program sets ---


def test_what_the_program_sets_last_wins_and_reset_forgets_it(surroundings: Surroundings) -> None:
    config = SymphonyConfig()
    config.set_username("sarah")
    config.update({"username": "tom", "x-own": {"deep": [1]}})
    config.set_experiment_folder("runs")
    assert (config.username, config.get("x-own")) == ("tom", {"deep": [1]})
    assert config.experiment_folder == surroundings.work / "runs"
    config.set_username(None)
    assert config.username is None
    config.reset()
    assert config.settings() == {"backend": ("local", "built-in")}


def test_a_file_that_the_program_loads_wins_over_those_that_are_found(
    surroundings: Surroundings,
) -> None:
    surroundings.project("username: project\nimage: project\n")
    path = surroundings.work.parent / "given.toml"
    path.write_text("username = 'given'\nexperiment_folder = '../runs'\n")
    config = SymphonyConfig()
    config.load_config_file(path)
    assert (config.username, config.get("image")) == ("given", "project")
    assert config.experiment_folder == surroundings.work.parent.parent / "runs"
    with pytest.raises(NotFound, match=r"nowhere\.yml: no such file"):
        config.load_config_file("nowhere.yml")


WRONG: list[tuple[dict[str, Any], str]] = [
    (
        {"usernam": "x"},
        "usernam: a configuration knows no 'usernam'; did you mean 'username'? (keys of your own begin",
    ),
    ({"zzz": 1}, "it knows username, experiment_folder, backend, profile, context"),
    ({"username": "Sarah K"}, "username: user name 'Sarah K' is not valid: use a-z, 0-9 and '-'"),
    ({"username": ["a"]}, "username: username is text, not ['a']"),
    ({"username": ""}, "username: username is empty"),
    ({"experiment_folder": {}}, "experiment_folder: experiment_folder is text, not {}"),
    (
        {"namespace": "Team_A"},
        "namespace: a namespace is a-z, 0-9 and '-', at most 63, not 'Team_A'",
    ),
    ({"resources": 3}, "resources: resources is a mapping, not 3"),
    ({"resources": {"cpus": 3}}, "resources.cpus: resources knows no 'cpus'; did you mean 'cpu'?"),
    (
        {"resources": {"cpu": "many"}},
        "resources.cpu: cpu is an amount such as 2, '500m' or '4Gi', not 'many'",
    ),
    (
        {"resources": {"mem": 1, "memory": 1}},
        "resources: memory and mem are one setting, and both are given",
    ),
    (
        {"options": {"kube": 3}},
        "options.kube: options are by backend, as in {kube: {expose: none}}, not 3",
    ),
    ({"profiles": []}, "profiles: profiles is a mapping, not []"),
    (
        {"profiles": {"gke": {"imge": "x"}}},
        "profiles.gke.imge: profile 'gke' knows no 'imge'; did you mean 'image'?",
    ),
    (
        {"profiles": {"gke": {"profile": "x"}}},
        "profiles.gke.profile: profile 'gke' knows no 'profile'",
    ),
    ({3: "x"}, "a configuration has a key that is not text: 3; quote it"),
]


@pytest.mark.parametrize(("settings", "said"), WRONG, ids=ascii)
def test_what_is_wrong_is_told_with_its_key_and_changes_nothing(
    surroundings: Surroundings, settings: dict[str, Any], said: str
) -> None:
    config = SymphonyConfig()
    config.set_username("sarah")
    with pytest.raises(SpecError) as caught:
        config.update({"image": "i", **settings})
    assert said in str(caught.value)
    assert len(str(caught.value).splitlines()) == 1
    assert (config.username, config.get("image")) == ("sarah", None)


def test_a_field_that_nobody_knows_cannot_be_asked_for(surroundings: Surroundings) -> None:
    with pytest.raises(SpecError, match="knows no 'usernme'; did you mean 'username'"):
        SymphonyConfig().get("usernme")


# --- handlers ---


def test_a_handler_is_told_what_is_set_already_and_every_change(surroundings: Surroundings) -> None:
    surroundings.project("username: project\n")
    config, seen = SymphonyConfig(), []
    config.register_handler("username", seen.append)
    config.register_handler("image", lambda value: seen.append(("image", value)))
    config.set_username("sarah")
    config.set_username("sarah")
    config.update({"image": "i", "context": "c"})
    config.set_username(None)
    assert seen == ["project", "sarah", ("image", "i"), None]
    config.reset()
    config.set_username("tom")
    assert len(seen) == 4


def test_a_field_of_ones_own_is_declared_by_its_handler(surroundings: Surroundings) -> None:
    config, seen = SymphonyConfig(), []
    with pytest.raises(SpecError, match="knows no 'wandb'"):
        config.update({"wandb": "x"})
    config.register_handler("wandb", seen.append)
    config.update({"wandb": {"project": "x"}})
    path = surroundings.work / "more.yml"
    path.write_text("wandb: {project: y}\n")
    config.load_config_file(path)
    assert seen == [{"project": "x"}, {"project": "y"}]
    assert config.get("wandb") == {"project": "y"}


def test_a_handler_that_fails_refuses_the_change(surroundings: Surroundings) -> None:
    config, seen = SymphonyConfig(), []

    def picky(value: str) -> None:
        if value == "bad":
            raise ValueError("not this one")

    config.update({"image": "good", "context": "before"})
    config.register_handler("context", seen.append)
    config.register_handler("image", picky)
    with pytest.raises(
        SpecError, match=r"^image cannot be 'bad': its handler failed: ValueError: not this one$"
    ):
        config.update({"context": "after", "image": "bad"})
    assert (config.get("image"), config.get("context")) == ("good", "before")
    assert seen == ["before", "after", "before"]


def test_a_handler_that_fails_at_once_is_not_registered(surroundings: Surroundings) -> None:
    config = SymphonyConfig()
    config.update({"image": "i"})
    with pytest.raises(SpecError, match="its handler failed: ZeroDivisionError"):
        config.register_handler("image", lambda _: 1 / 0)
    config.update({"image": "j"})
    assert config.get("image") == "j"
    seen: list[str] = []
    config.register_handler("image", seen.append)
    with pytest.raises(SpecError, match="its handler failed: ZeroDivisionError"):
        config.register_handler("image", lambda _: 1 / 0)
    config.update({"image": "k"})
    assert seen == ["j", "k"]
    for field, handler in (("", print), (3, print), ("image", "no function"), ("profiles", print)):
        with pytest.raises(SpecError):
            config.register_handler(field, handler)  # type: ignore[arg-type]


# --- names ---


@pytest.mark.parametrize(
    ("name", "becomes"),
    [
        ("rl", "sarah-rl"),
        ("sarah-rl", "sarah-rl"),
        ("sarahs-x", "sarah-sarahs-x"),
        ("sarah", "sarah-sarah"),
        ("x" * 57, f"sarah-{'x' * 57}"),
    ],
)
def test_a_user_name_begins_the_names_of_new_experiments_once(
    surroundings: Surroundings, name: str, becomes: str
) -> None:
    SymphonyConfig().set_username("sarah")
    assert Cluster.new("local").new_experiment(name).name == becomes
    assert with_user("sarah", becomes) == becomes


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "x" * 58,
            r"would be called 'sarah-x+', which is 64 characters long and at most 63 are allowed; shorten one",
        ),
        ("My_exp", r"experiment name 'My_exp' is not valid.*'my-exp'"),
    ],
)
def test_a_name_that_cannot_have_it(surroundings: Surroundings, name: str, said: str) -> None:
    SymphonyConfig().set_username("sarah")
    with pytest.raises(SpecError, match=said):
        Cluster.new("local").new_experiment(name)


# --- clusters ---


def test_an_option_of_the_programs_own_has_no_place_in_a_file(surroundings: Surroundings) -> None:
    surroundings.project("options: {local: {preamble_cmds: 'true'}}\n")
    with pytest.raises(SpecError, match=r"^backend 'local' knows no option 'start_dri'"):
        Cluster.new("local", start_dri="a")
    SymphonyConfig().update({"options": {"local": {"start_dri": "/a"}}})
    with pytest.raises(
        SpecError,
        match=r"^options\.local\.start_dri in the configuration: backend 'local' knows no",
    ):
        Cluster.new("local")


def test_the_profile_that_says_a_value_is_known(surroundings: Surroundings) -> None:
    surroundings.project("image: i\nprofile: gke\nprofiles: {gke: {backend: kube}}\n")
    config = SymphonyConfig()
    assert [config.profile_of(field) for field in ("backend", "image", "context")] == [
        "gke",
        None,
        None,
    ]


def test_a_cluster_has_the_options_that_are_configured_and_those_given_win(
    surroundings: Surroundings,
) -> None:
    surroundings.project(
        "backend: subproc\nnamespace: team-a\nimage: i\n"
        "options: {local: {start_dir: /a}, SUBPROCESS: {preamble_cmds: 'true'}, slurm: {partition: x}}\n"
    )
    cluster = Cluster.new()
    assert (cluster.backend, cluster.defaults.start_dir, cluster.defaults.preamble_cmds) == (
        "local",
        "/a",
        ("true",),
    )
    assert Cluster.new("local", start_dir="/b").defaults.start_dir == "/b"
    kube: Any = Cluster.new("kube", namespace=None)
    assert (kube.namespace, kube.options.image) == (None, "i")
    other: Any = Cluster.new("kube")
    assert other.namespace == "team-a"


@pytest.mark.parametrize(
    ("written", "error", "said"),
    [
        (
            "backend: locl\n",
            PluginError,
            r"\.symphony\.yml:1:1: no backend 'locl'; did you mean 'local'",
        ),
        (
            "options: {local: {start_dri: a}}\n",
            SpecError,
            r"\.symphony\.yml:1:19: options\.local\.start_dri: .*knows no option 'start_dri'; did you mean 'start_dir'",
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
            r"yml:1:19: options\.local\.hold_ports: hold_ports is ",
        ),
    ],
)
def test_what_a_backend_does_not_know_is_told(
    surroundings: Surroundings, written: str, error: type[Exception], said: str
) -> None:
    surroundings.project(written)
    with pytest.raises(error, match=said):
        Cluster.new()


def test_resources_are_for_processes_that_have_none(surroundings: Surroundings) -> None:
    surroundings.project("backend: kube\nimage: i\nresources: {cpu: 2, mem: 4Gi}\n")
    cluster = Cluster.new()
    experiment = cluster.new_experiment("rl")
    experiment.new_process("bare", command="a")
    experiment.new_process("limited", command="a").resource_limit(cpu=1)
    experiment.new_process("own", command="a").resource_request(cpu=1, memory="1Gi")
    manifest: Any = cluster.manifest(experiment)
    pods = [item for item in manifest.to_dict()["objects"] if item["kind"] == "Pod"]
    asked = {pod["metadata"]["name"]: pod["spec"]["containers"][0]["resources"] for pod in pods}
    assert asked["bare"] == {"requests": {"cpu": "2", "memory": "4Gi"}}
    assert asked["limited"] == {"requests": {"memory": "4Gi"}, "limits": {"cpu": "1"}}
    assert asked["own"] == {"requests": {"cpu": "1", "memory": "1Gi"}}


# --- start-up ---

LOADED = """
import sys
from symphony import Cluster, SymphonyConfig
config = SymphonyConfig()
config.username, config.experiment_folder, config.backend
Cluster.new()
print(*(name for name in sys.modules if name.startswith(("yaml", "tomllib", "symphony.config", "symphony.model"))))
"""


def loaded(**env: str) -> set[str]:
    import os

    done = subprocess.run(
        [sys.executable, "-c", LOADED],
        capture_output=True,
        text=True,
        check=True,
        env={**os.environ, **env},
    )
    return set(done.stdout.split())


def test_without_a_file_next_to_nothing_is_imported(surroundings: Surroundings) -> None:
    assert loaded() == {"symphony.config", "symphony.config.config", "symphony.config.finding"}
    assert not {"yaml", "tomllib", "symphony.model"} & loaded(SYMPHONY_BACKEND="local")


def test_with_a_file_it_is(surroundings: Surroundings) -> None:
    surroundings.project("username: sarah\n")
    assert "yaml" in loaded()


def test_the_surroundings_are_those_of_the_test(surroundings: Surroundings) -> None:
    assert Path.cwd() == surroundings.work

"""Volumes and mounts, and the Secrets and ConfigMaps that are created from files."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from symphony import Experiment, SpecError
from symphony_kube.api.labels import SCRATCH, Scope
from symphony_kube.render.experiment import read_files, render
from symphony_kube.render.file_objects.files import MAX_OBJECT_BYTES
from symphony_kube.render.options import RenderOptions
from symphony_kube.render.stop_script import VOLUME as SCRIPTS
from tests.backends.kube.render.test_render import by_kind, one, rendered, spec_of
from tests.backends.kube.specimens import IMAGE, SPECIMENS, planned

Object = dict[str, Any]


def volumes_of(spec: Object) -> list[Object]:
    """Return the volumes of a Pod, without those that each process has."""
    return [item for item in spec["volumes"] if not item["name"].startswith((SCRATCH, SCRIPTS))]


def mounted(spec: Object, container: str = "p") -> dict[str, Object]:
    """Return the volumes of a container by mount path, without their names and without those that
    each process has.
    """
    found = mounts_of(spec, container)
    found.pop("/symphony/scratch")
    found.pop("/symphony/scripts", None)
    return found


def mounts_of(spec: Object, container: str) -> dict[str, Object]:
    """Return the volumes of a container by mount path, without their names."""
    (found,) = [item for item in spec["containers"] if item["name"] == container]
    volumes = {item["name"]: item for item in spec["volumes"]}
    assert len(volumes) == len(spec["volumes"])
    return {
        mount["mountPath"]: {
            key: value for key, value in volumes[mount["name"]].items() if key != "name"
        }
        for mount in found["volumeMounts"]
    }


def test_similar_volumes_are_distinct() -> None:
    found = mounted(spec_of(SPECIMENS["volumes"].manifest(), "lone"), "lone")
    assert [found[path]["nfs"]["path"] for path in ("/a", "/b", "/i")] == [
        f"/exports/{x}" for x in "abc"
    ]
    paths = [found[path]["hostPath"] for path in ("/c", "/d", "/e", "/f", "/j")]
    assert paths == [
        {"path": "/one/data"},
        {"path": "/two/data"},
        {"path": "/one/data", "type": "Directory"},
        {"path": "/one/data"},
        {"path": "/three/data"},
    ]


def names_at(spec: Object, *paths: str) -> list[str]:
    mounts = {
        m["mountPath"]: m["name"] for item in spec["containers"] for m in item["volumeMounts"]
    }
    return [mounts[path] for path in paths]


def test_read_only_belongs_to_the_mount() -> None:
    exp, process = one()
    process.mount_host_path("/data", "/a").mount_host_path("/data", "/b", read_only=True)
    process.mount_pvc("claim", "/c").mount_pvc("claim", "/d", read_only=True).mount_pvc(
        "other", "/e", read_only=True
    )
    spec = spec_of(rendered(exp), "p")
    a, b, c, d, e = names_at(spec, "/a", "/b", "/c", "/d", "/e")
    assert (a, c) == (b, d)
    mounts = {
        mount["mountPath"]: mount.get("readOnly", False)
        for mount in spec["containers"][0]["volumeMounts"]
        if mount["name"] not in (SCRATCH, SCRIPTS)
    }
    assert mounts == {"/a": False, "/b": True, "/c": False, "/d": True, "/e": True}
    claims = {
        item["name"]: item["persistentVolumeClaim"]
        for item in volumes_of(spec)
        if "hostPath" not in item
    }
    assert claims == {c: {"claimName": "claim"}, e: {"claimName": "other", "readOnly": True}}


def group_of_two() -> tuple[Experiment, Any, Any, Any]:
    exp = Experiment("e")
    group = exp.new_process_group("g")
    return exp, group, group.new_process("a", command="c"), group.new_process("b", command="c")


@pytest.mark.parametrize(
    ("first", "second", "same"),
    [
        ({"mount_path": "/x"}, {"mount_path": "/x"}, True),
        ({"mount_path": "/x"}, {"mount_path": "/y"}, False),
        ({"mount_path": "/x"}, {"mount_path": "/x", "memory": True}, False),
        ({"mount_path": "/x", "size": "1Gi"}, {"mount_path": "/x", "size": "2Gi"}, False),
        ({"mount_path": "/x", "name": "n"}, {"mount_path": "/y", "name": "n"}, True),
        ({"mount_path": "/x", "name": "n"}, {"mount_path": "/x", "name": "m"}, False),
        ({"mount_path": "/x", "name": "n"}, {"mount_path": "/x"}, False),
        ({"mount_path": "/x", "name": "n"}, {"mount_path": "/x", "name": "n", "size": 1}, False),
    ],
)
def test_sharing_of_empty_directories_in_a_group(first: Object, second: Object, same: bool) -> None:
    exp, _, a, b = group_of_two()
    a.mount_empty_dir(**first)
    b.mount_empty_dir(**second)
    spec = spec_of(rendered(exp), "g")
    one_name, other_name = (item["volumeMounts"][0]["name"] for item in spec["containers"])
    assert (one_name == other_name) == same
    assert len(volumes_of(spec)) == (1 if same else 2)


def test_unique_user_names_are_kept() -> None:
    exp, process = one()
    process.mount_nfs("s", "/a", "/a")
    (generated,) = names_at(spec_of(rendered(exp), "p"), "/a")
    process.mount_nfs("t", "/b", "/b", name=generated).mount_pvc("c", "/c", name="x").mount_pvc(
        "c", "/d", name="x"
    )
    process.mount_pvc("c", "/e", name="symphony-secrets")
    spec = spec_of(rendered(exp), "p")
    first, own, c, d, reserved = names_at(spec, "/a", "/b", "/c", "/d", "/e")
    assert (own, c, d) == (generated, "x", "x")
    assert first != generated
    assert reserved != "symphony-secrets"
    assert mounted(spec)["/b"] == {"nfs": {"server": "t", "path": "/b"}}


def test_volumes_of_a_group_are_mounted_by_all_members() -> None:
    exp, group, *_ = group_of_two()
    group.mount_nfs("s", "/x", "/x").mount_shared_memory("1Gi")
    spec = spec_of(rendered(exp), "g")
    assert len(volumes_of(spec)) == 2
    assert mounted(spec, "a") == mounted(spec, "b")
    assert mounted(spec, "a")["/dev/shm"] == {"emptyDir": {"medium": "Memory", "sizeLimit": "1Gi"}}


REFUSED: list[tuple[Any, str]] = [
    (
        lambda p: p.mount_pvc("c", "/a:b"),
        "process 'p' mounts a volume at '/a:b': a mount path on Kubernetes has no ':'",
    ),
    (
        lambda p: p.mount_host_path("/a/../b", "/x"),
        "process 'p' mounts '/a/../b' of the node: a host path on Kubernetes has no",
    ),
    (
        lambda p: p.mount_pvc("Not Valid", "/x"),
        "process 'p': the claim 'Not Valid' is not valid on Kubernetes",
    ),
    (
        lambda p: p.mount_secret("Not_Valid", "/x"),
        "process 'p': the secret 'Not_Valid' is not valid on Kubernetes",
    ),
    (
        lambda p: p.mount_config("x" * 254, "/x"),
        "is not valid on Kubernetes: use a-z, 0-9, '-' and '.', at most 253",
    ),
    (
        lambda p: p.mount_pvc("c", "/etc/secrets/"),
        "the directory of the secrets of the experiment; choose another path",
    ),
    (
        lambda p: p.mount_config("c", "/x", files={"..a": "conf/blob"}),
        "the config 'c' has a file '..a': on Kube",
    ),
    (
        lambda p: p.mount_secret("symphony-secrets", "/x", files=["conf/blob"]),
        "the secret 'symphony-secrets' is created from different files by the experiment and "
        "process 'p'",
    ),
]


@pytest.mark.parametrize(("call", "message"), REFUSED)
def test_invalid_mounts_are_refused(call: Any, message: str) -> None:
    exp = Experiment("e", secrets={"wandb": "tokens/wandb"})
    call(exp.new_process("p", command="c"))
    with pytest.raises(SpecError) as refusal:
        rendered(exp)
    assert message in str(refusal.value)


# --- Secrets and ConfigMaps ---


def test_same_files_create_one_secret() -> None:
    exp = Experiment("e")
    for name in ("a", "b"):
        exp.new_process(name, command="c").mount_secret(
            "certs", f"/{name}", files={"ca.pem": "certs/ca.pem"}
        )
    exp.new_process("c", command="c").mount_secret("certs", "/c")
    manifest = rendered(exp, namespace="team-a")
    assert [item["metadata"]["name"] for item in by_kind(manifest)["Secret"]] == ["e-certs"]
    for name in ("a", "b", "c"):
        assert mounted(spec_of(manifest, name), name)[f"/{name}"] == {
            "secret": {"secretName": "e-certs"}
        }


def test_existing_objects_keep_their_names() -> None:
    exp, process = one()
    process.mount_secret("theirs", "/a").mount_config("my.conf", "/b")
    manifest = rendered(exp, namespace="team-a")
    assert set(by_kind(manifest)) == {"Pod"}
    found = mounted(spec_of(manifest, "p"))
    assert found == {
        "/a": {"secret": {"secretName": "theirs"}},
        "/b": {"configMap": {"name": "my.conf"}},
    }


@pytest.mark.parametrize("kind", ["secret", "config"])
def test_same_name_with_different_files_is_refused(kind: str) -> None:
    exp = Experiment("e")
    for name, source in (("a", "conf/blob"), ("b", "certs/ca.pem")):
        getattr(exp.new_process(name, command="c"), f"mount_{kind}")(
            "x", "/x", files={"file": source}
        )
    with pytest.raises(SpecError) as refusal:
        rendered(exp)
    assert str(refusal.value) == (
        f"the {kind} 'x' is created from different files by process 'a' and process 'b'; rename "
        "one of them"
    )


def planned_with(files: Any, tmp_path: Path) -> Any:
    exp, process = one()
    exp.base_dir = tmp_path
    process.mount_secret("s", "/s", files=files)
    return planned(exp, Scope(experiment="e", namespace="e"))


def test_paths_are_relative_to_the_experiment_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a").write_bytes(b"\x00\xff")
    (tmp_path / "b").write_bytes(b"")
    absolute = str(tmp_path / "b")
    plan = planned_with({"x": "a", "y": absolute}, tmp_path)
    assert read_files(plan) == {"a": b"\x00\xff", absolute: b""}
    monkeypatch.setenv("HOME", str(tmp_path))
    assert read_files(planned_with({"x": "~/a"}, tmp_path)) == {"~/a": b"\x00\xff"}
    monkeypatch.chdir(tmp_path)
    exp = Experiment("e", secrets=["a"])
    exp.new_process("p", command="c")
    assert read_files(planned(exp, Scope(experiment="e", namespace="e"))) == {"a": b"\x00\xff"}


def test_missing_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "directory").mkdir()
    for name in ("none", "directory"):
        with pytest.raises(SpecError) as refusal:
            read_files(planned_with({"x": name}, tmp_path))
        assert str(refusal.value) == f"secret 's', file 'x': there is no file {tmp_path / name}"
        assert refusal.value.path == ("processes", "p", "volumes", 0, "secret", "files")


def test_unreadable_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "mine").write_text("x")

    def refused(*_: object) -> None:  # root can read every file
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(Path, "open", refused)
    with pytest.raises(
        SpecError, match="secret 's', file 'x': .*/mine cannot be read by this user"
    ):
        read_files(planned_with({"x": "mine"}, tmp_path))


def test_files_above_the_limit_are_refused(tmp_path: Path) -> None:
    (tmp_path / "big").write_bytes(b"x" * (MAX_OBJECT_BYTES + 1))
    (tmp_path / "half").write_bytes(b"x" * (MAX_OBJECT_BYTES // 2))
    (tmp_path / "more").write_bytes(b"x" * (MAX_OBJECT_BYTES // 2 + 1))
    with pytest.raises(
        SpecError, match="big is larger than 1 MiB, the limit of Kubernetes; put it on a volume"
    ):
        read_files(planned_with({"x": "big"}, tmp_path))
    scope = Scope(experiment="e", namespace="e")
    for second, fits in (("half", True), ("more", False)):
        plan = planned_with({"x": "half", "y": second}, tmp_path)
        files = read_files(plan)
        if fits:
            render(plan, scope, RenderOptions(image=IMAGE), files)
            continue
        with pytest.raises(
            SpecError,
            match=r"the secret 's' has 1.00 MiB in 2 files, and the limit of Kubernetes is 1 MiB",
        ):
            render(plan, scope, RenderOptions(image=IMAGE), files)


def test_text_in_a_config_is_not_encoded() -> None:
    (config,) = by_kind(SPECIMENS["everything"].manifest())["ConfigMap"]
    assert config["data"] == {"train.toml": '# training\nrate = 0.1\nname = "naïve"\n'}
    assert set(config["binaryData"]) == {"blob"}


def test_binary_secret_in_a_variable_is_refused() -> None:
    exp = Experiment("e", secrets={"ssh": "tokens/ssh"})
    exp.new_process("p", command="c").set_env_secret("KEY", "ssh")
    with pytest.raises(SpecError, match="secret 'ssh' cannot be the value of a variable"):
        rendered(exp)


# --- configuration files and scratch directories ---


def test_containers_mount_their_configuration_files_and_an_empty_directory(tmp_path: Path) -> None:
    (tmp_path / "a.in").write_text("${s.addr}\n")
    (tmp_path / "b.in").write_text("other")
    exp = Experiment("e")
    exp.base_dir = tmp_path
    exp.new_process("s", command="c", container_image=IMAGE).binds("s").configs({"x": "a.in"})
    team = exp.new_process_group("team").configs({"x": "a.in"})
    team.new_process("p", command="c", container_image=IMAGE)
    team.new_process("q", command="c", container_image=IMAGE).configs({"x": "b.in"})
    manifest = rendered(exp)
    team_spec = spec_of(manifest, "team")
    found = {name: mounts_of(team_spec, name) for name in ("p", "q")}
    assert found["p"]["/symphony/scratch"] == {"emptyDir": {}}
    scratch = names_at({"containers": team_spec["containers"][:1]}, "/symphony/scratch")
    assert scratch != names_at({"containers": team_spec["containers"][1:]}, "/symphony/scratch")
    maps = {item["metadata"]["name"]: item["data"] for item in by_kind(manifest)["ConfigMap"]}
    assert [
        maps[volumes["/symphony/configs"]["configMap"]["name"]]
        for volumes in (mounted(spec_of(manifest, "s"), "s"), found["p"], found["q"])
    ] == [{"x": "s:7000\n"}, {"x": "s:7000\n"}, {"x": "other"}]
    # Processes with the same files share a ConfigMap.
    assert len(maps) == 2
    variables = {item["name"]: item.get("value") for item in team_spec["containers"][0]["env"]}
    assert variables["SYMPHONY_CONFIG_DIR"] == "/symphony/configs"
    assert variables["SYMPHONY_SCRATCH_DIR"] == "/symphony/scratch"

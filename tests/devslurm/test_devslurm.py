import os
from pathlib import Path

import pytest

from devslurm import cli, cluster, config, paths
from machines import sandbox
from machines.console import RequirementError
from machines.record import Record


def settings(**options):
    return config.Settings(
        run=Path("/state"), network="10.242.7", plugins=Path("/plugins"), **options
    )


def test_configuration_names_all_nodes_and_uses_cgroups_only_if_asked():
    text = config.slurm_conf(settings(version="22.05", extra=("MaxArraySize=5",)))
    assert "SlurmctldHost=head(10.242.7.10)" in text
    assert text.count("NodeName=") == 4
    assert "NodeName=n4 NodeAddr=10.242.7.14" in text
    assert "proctrack/linuxproc" in text
    assert text.endswith("MaxArraySize=5\n")
    text = config.slurm_conf(settings(version="22.05", cgroups=True))
    assert "proctrack/cgroup" in text
    assert "TaskPlugin=task/cgroup" in text
    assert "AccountingStorageType=accounting_storage/none" in text


@pytest.mark.parametrize(
    ("version", "cgroups", "plugin"),
    [
        ("22.05", False, "cgroup/v1"),
        ("24.11", False, "disabled"),
        ("26.05", False, "disabled"),
        ("26.05", True, "autodetect"),
    ],
)
def test_control_groups_of_each_version(version, cgroups, plugin):
    text = config.cgroup_conf(settings(version=version, cgroups=cgroups))
    assert f"CgroupPlugin={plugin}\n" in text


def test_every_machine_and_the_host_have_a_name():
    text = config.hosts(settings(version="22.05"))
    assert f"10.242.7.1 {os.uname().nodename}\n" in text
    for name in ("head", "login", "n1", "n4"):
        assert f" {name}\n" in text


def test_directories_that_other_users_cannot_read_are_rejected(tmp_path):
    tmp_path.chmod(0o700)
    with pytest.raises(RequirementError, match=f"because {tmp_path} is private"):
        paths.find({"XDG_STATE_HOME": str(tmp_path / "state")}, "22.05")


def test_private_directories_above_a_path_are_made_public_from_the_outermost_on(tmp_path):
    outer, inner = tmp_path / "home", tmp_path / "home" / "open" / "secret"
    (inner / "project").mkdir(parents=True)
    for directory in (outer, inner):
        directory.chmod(0o700)
    found = sandbox.private_directories([inner / "project"])
    assert [path for path in found if path.is_relative_to(tmp_path)][-2:] == [outer, inner]
    assert f"lowerdir={outer},upperdir=/run/public{outer}/upper" in sandbox.make_public(outer)


def test_commands_require_root(capsys, monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert cli.main(["up"]) == 2
    assert capsys.readouterr().err == (
        "devslurm: only root can create namespaces and mounts: run as root\n"
    )


def test_machine_without_packages_keeps_the_programs_of_the_host():
    init = ["python3", "reap.py"]
    script = sandbox.setup(packages=[], mounts={}, hostname="n1", init=init, extra="touch x\n")
    assert "overlay" not in script
    assert script.index("touch x\n") < script.index("exec python3 reap.py")


@pytest.mark.parametrize(("other_cgroups", "remain"), [(True, True), (False, False)])
def test_control_groups_that_another_cluster_uses_remain(
    tmp_path, monkeypatch, other_cgroups, remain
):
    group = tmp_path / "cgroup" / "freezer" / "slurm_n1" / "uid_0"
    group.mkdir(parents=True)
    monkeypatch.setattr(cluster, "_CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(cluster.network, "remove_bridge", lambda name: None)
    for version, cgroups in {"22.05": True, "24.11": other_cgroups}.items():
        started = paths.Paths(cache=tmp_path, state=tmp_path / "state" / version)
        started.run.mkdir(parents=True)
        text = config.cgroup_conf(settings(version=version, cgroups=cgroups))
        (started.run / "cgroup.conf").write_text(text)
    stopped = paths.Paths(cache=tmp_path, state=tmp_path / "state" / "22.05")
    Record(path=stopped.record).begin()  # without processes
    assert cluster.stop(stopped, "22.05")
    assert group.exists() is remain


def test_cluster_without_control_groups_removes_none(tmp_path, monkeypatch):
    group = tmp_path / "cgroup" / "freezer" / "slurm_n1"
    group.mkdir(parents=True)
    monkeypatch.setattr(cluster, "_CGROUPS", tmp_path / "cgroup")
    monkeypatch.setattr(cluster.network, "remove_bridge", lambda name: None)
    stopped = paths.Paths(cache=tmp_path, state=tmp_path / "state" / "26.05")
    stopped.run.mkdir(parents=True)
    (stopped.run / "cgroup.conf").write_text(config.cgroup_conf(settings(version="26.05")))
    Record(path=stopped.record).begin()  # without processes
    assert cluster.stop(stopped, "26.05")
    assert group.exists()

"""Finding and loading backends, and the message for each kind of broken plug-in.

The distributions are directories of modules with a ``.dist-info`` directory. The tests of imports
use a subprocess, whose `sys.modules` contains only what the code under test has imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from symphony.cluster import Cluster, plugins
from symphony.errors import PluginError
from symphony.local import LocalCluster
from symphony.support.install_hints import install_command

PLUGIN = """
from symphony.hookspecs import BackendInfo, hookimpl

@hookimpl
def symphony_backend():
    return BackendInfo(
        name={name!r}, summary="a fake", load={load!r}, aliases={aliases!r}, extra={extra!r}
    )
"""
PLUGIN_WITH_HOOK = "from symphony.hookspecs import hookimpl\n@hookimpl\ndef {hook}"
CLUSTER = """
from symphony.cluster import Cluster

class Fake(Cluster):
    backend = "fake"
"""
IMPORTS = """
import json, sys
from symphony.cluster import Cluster, plugins
{code}
modules = [name for name in sys.modules if name.startswith(("fake_", "symphony_"))]
print(json.dumps(sorted(modules)))
"""


def plugin(name: str, *aliases: str, load: str = "x:Y", extra: str | None = None) -> str:
    return PLUGIN.format(name=name, load=load, aliases=aliases, extra=extra)


class Site:
    """A directory on the import path with distributions."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory

    def module(self, name: str, text: str) -> None:
        path = self.directory.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        (path.parent / "__init__.py").touch()
        path.write_text(text)

    def distribution(self, name: str, entry_points: dict[str, str]) -> None:
        info = self.directory / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"{key} = {value}" for key, value in entry_points.items()]
        (info / "entry_points.txt").write_text("\n".join(["[symphony.backends]", *lines, ""]))

    def backend(
        self,
        name: str,
        *aliases: str,
        plugin_text: str | None = None,
        cluster: str = CLUSTER,
        load: str | None = None,
        extra: str | None = None,
        distribution: str | None = None,
    ) -> None:
        """Create a distribution with one backend. It is correct by default."""
        load = load or f"fake_{name}.cluster:Fake"
        text = plugin_text or plugin(name, *aliases, load=load, extra=extra)
        self.module(f"fake_{name}.plugin", text)
        self.module(f"fake_{name}.cluster", cluster)
        entry_points = dict.fromkeys((name, *aliases), f"fake_{name}.plugin")
        self.distribution(distribution or f"dist-{name}", entry_points)

    def imports(self, code: str) -> list[str]:
        """Return the modules of backends that are imported by running ``code``."""
        python_path = os.pathsep.join([str(self.directory), os.environ.get("PYTHONPATH", "")])
        result = subprocess.run(
            [sys.executable, "-c", IMPORTS.format(code=code)],
            env={**os.environ, "PYTHONPATH": python_path, "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            timeout=60,
            text=True,
        )
        assert result.returncode == 0, result.stderr
        modules: list[str] = json.loads(result.stdout)
        return modules


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    directory = tmp_path / "site"
    directory.mkdir()
    monkeypatch.syspath_prepend(directory)
    before = set(sys.modules)
    yield Site(directory)
    for name in set(sys.modules) - before:
        if name.startswith(("fake_", "other")):
            del sys.modules[name]


def open_error(name: str) -> str:
    with pytest.raises(PluginError) as error:
        plugins.open_backend(name, Cluster)
    assert "\n" not in str(error.value)
    return str(error.value)


# --- finding ---


def test_listing_names_imports_no_plugin(site: Site) -> None:
    site.backend("lsf", "bsub")
    site.backend("broken", plugin_text="raise RuntimeError('imported')")
    assert {"lsf", "bsub", "broken", "local", "subproc"} <= set(plugins.backend_names())
    assert site.imports("plugins.backend_names()") == []


def test_importing_cluster_imports_no_plugin(site: Site) -> None:
    site.backend("lsf")
    assert site.imports("__import__('symphony').Cluster") == []


def test_opening_a_backend_imports_only_that_backend(site: Site) -> None:
    site.backend("lsf")
    site.backend("broken", plugin_text="raise RuntimeError('imported')")
    modules = ["fake_lsf", "fake_lsf.cluster", "fake_lsf.plugin"]
    assert site.imports("plugins.open_backend('lsf', Cluster)") == modules
    local = ["symphony_local", "symphony_local.cluster", "symphony_local.plugin"]
    assert site.imports("plugins.open_backend('local', Cluster)") == local


def test_finding_a_backend_does_not_import_its_cluster(site: Site) -> None:
    site.backend("lsf")
    assert site.imports("plugins.find_backend('lsf')") == ["fake_lsf", "fake_lsf.plugin"]
    assert "fake_lsf.cluster" not in site.imports("plugins.installed_backends()")


@pytest.mark.parametrize("name", ["lsf", "LSF", "bsub", "Bsub"])
def test_names_and_aliases_ignore_case(site: Site, name: str) -> None:
    site.backend("lsf", "bsub")
    assert plugins.find_backend(name).name == "lsf"


def test_each_backend_is_listed_once(site: Site) -> None:
    site.backend("zeta", "aaa", "bbb")
    site.backend("lsf", "bsub")
    names = [info.name for info in plugins.installed_backends()]
    assert [name for name in names if name in ("local", "lsf", "zeta")] == [
        "local",
        "lsf",
        "zeta",
    ]
    assert len(names) == len(set(names))


def test_a_distribution_can_be_found_twice(
    site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.backend("lsf")
    (tmp_path / "again").symlink_to(site.directory)
    monkeypatch.syspath_prepend(tmp_path / "again")
    assert plugins.find_backend("lsf").name == "lsf"


def test_unknown_backend(site: Site) -> None:
    site.backend("lsf")
    error = open_error("lfs")
    assert error.startswith("no backend 'lfs'; did you mean 'lsf'?; installed backends: ")
    assert "local" in error


def test_backend_can_be_a_subclass_that_the_program_defines() -> None:
    class OurLabCluster(LocalCluster):
        pass

    assert type(Cluster.new("ourlab")) is OurLabCluster
    assert type(Cluster.new("local")) is LocalCluster


# --- broken plug-ins ---


def test_two_distributions_with_the_same_backend(site: Site) -> None:
    site.backend("lsf", "bsub", distribution="dist-one")
    site.module("other.plugin", plugin("lsf"))
    site.distribution("dist-two", {"Lsf": "other.plugin"})
    error = open_error("lsf")
    assert "two distributions provide the backend 'lsf'" in error
    assert "dist-one (fake_lsf.plugin) and dist-two (other.plugin)" in error
    assert plugins.open_backend("local", Cluster)
    listed = [info for info in plugins.installed_backends() if info.name in ("lsf", "bsub")]
    assert [info.name for info in listed] == ["lsf"]
    assert listed[0].summary.startswith("cannot be used: two distributions provide")


def test_another_distribution_cannot_replace_a_built_in_backend(site: Site) -> None:
    site.backend("local", distribution="dist-evil")
    error = open_error("local")
    assert "dist-evil (fake_local.plugin)" in error
    assert "symphony-launcher (symphony_local.plugin)" in error


def test_plugin_that_cannot_be_imported(site: Site) -> None:
    site.backend("bad", plugin_text="raise RuntimeError('boom\\nand more')")
    assert open_error("bad") == (
        "the plug-in 'fake_bad.plugin' of dist-bad (backend 'bad') cannot be imported: "
        "RuntimeError: boom"
    )


def test_plugin_that_does_not_exist(site: Site) -> None:
    site.distribution("dist-bad", {"bad": "nowhere.plugin"})
    error = open_error("bad")
    assert "'nowhere.plugin' of dist-bad" in error
    assert "No module named 'nowhere'" in error


HOOK = "the plug-in 'fake_bad.plugin' of dist-bad"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("X = 1", "must have a BackendInfo named BACKEND, or one hook symphony_backend"),
        ("BACKEND = 'bad'", "must have a BackendInfo named BACKEND, not 'bad'"),
        (
            PLUGIN_WITH_HOOK.format(hook="symphony_backend(): return None"),
            "one hook symphony_backend that returns a BackendInfo, not nothing",
        ),
        (
            PLUGIN_WITH_HOOK.format(hook="symphony_backend(): return {'name': 'bad'}"),
            "that returns a BackendInfo, not {'name': 'bad'}",
        ),
        (
            PLUGIN_WITH_HOOK.format(hook="symphony_backend(): 1 / 0"),
            "raises an error in its hook symphony_backend: ZeroDivisionError: division by zero",
        ),
        (
            PLUGIN_WITH_HOOK.format(hook="symphony_backend(config): ..."),
            "has a hook symphony_backend with parameters; it must have none",
        ),
        (
            PLUGIN_WITH_HOOK.format(hook="symphony_backnd(): ..."),
            "has an unknown hook 'symphony_backnd'; did you mean 'symphony_backend'?",
        ),
        (
            PLUGIN_WITH_HOOK.format(hook="symphony_backnd(): ...") + "\n" + plugin("bad"),
            "has an unknown hook 'symphony_backnd'; did you mean 'symphony_backend'?",
        ),
        (
            plugin("good", "fine"),
            "is installed as 'bad', but its BackendInfo has the names good, fine",
        ),
    ],
)
def test_wrong_hooks(site: Site, text: str, message: str) -> None:
    site.backend("bad", plugin_text=text)
    error = open_error("bad")
    assert error.startswith(HOOK)
    assert message in error


def test_a_broken_plugin_does_not_hide_the_others(site: Site) -> None:
    site.backend("bad", "worse", plugin_text="raise RuntimeError('boom')")
    site.backend("lsf")
    by_name = {info.name: info for info in plugins.installed_backends()}
    assert {"local", "lsf", "bad"} <= set(by_name)
    assert "worse" not in by_name
    assert (by_name["bad"].aliases, by_name["bad"].load) == (("worse",), "")
    assert by_name["bad"].summary.startswith(f"cannot be used: {HOOK}")


# --- broken clusters ---


def test_missing_package_of_an_extra(site: Site) -> None:
    site.backend("cube", extra="kube", cluster="import no_such_library.client\n" + CLUSTER)
    assert open_error("cube") == (
        "backend 'cube' needs the package 'no_such_library'; "
        f"install it with: {install_command('kube')}"
    )


def test_missing_package_without_an_extra(site: Site) -> None:
    site.backend("cube", cluster="import no_such_library\n" + CLUSTER)
    assert "module 'no_such_library' is not installed" in open_error("cube")


def test_wrong_module_of_the_cluster(site: Site) -> None:
    site.backend("cube", extra="kube", load="fake_cube.clustr:Fake")
    error = open_error("cube")
    assert "'fake_cube.clustr:Fake'" in error
    assert "pip install" not in error


def test_cluster_that_cannot_be_imported(site: Site) -> None:
    site.backend("cube", cluster="raise OSError('no driver')")
    assert open_error("cube").endswith("'fake_cube.cluster:Fake': OSError: no driver")


@pytest.mark.parametrize(
    ("attribute", "message"),
    [("Nothing", "AttributeError"), ("Path", "is not a subclass of symphony.Cluster")],
)
def test_wrong_class_of_the_cluster(site: Site, attribute: str, message: str) -> None:
    site.backend(
        "cube",
        load=f"fake_cube.cluster:{attribute}",
        cluster="from pathlib import Path\n" + CLUSTER,
    )
    error = open_error("cube")
    assert f"'fake_cube.cluster:{attribute}'" in error
    assert message in error

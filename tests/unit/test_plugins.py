"""Backends are found by metadata alone, opened one at a time, and each way to be wrong has its message.

The distributions here are fakes: a folder of modules beside a ``.dist-info`` folder, on the path of a
subprocess, where `sys.modules` shows what was imported.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

GOOD = """
from symphony.hookspecs import BackendInfo, hookimpl

@hookimpl
def symphony_backend():
    return BackendInfo(name={name!r}, summary="a fake", load={load!r}, aliases={aliases!r}, extra={extra!r})
"""
CLUSTER = """
from symphony.cluster import Cluster

class Fake(Cluster):
    backend = "fake"
"""


class Site:
    """A folder of fake distributions."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def module(self, name: str, text: str) -> None:
        path = self.folder.joinpath(*name.split(".")).with_suffix(".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        for package in [path.parent, *path.parent.parents]:
            if package == self.folder:
                break
            (package / "__init__.py").touch()
        path.write_text(text)

    def distribution(self, name: str, entries: dict[str, str]) -> None:
        info = self.folder / f"{name.replace('-', '_')}-1.0.dist-info"
        info.mkdir(parents=True)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        lines = [f"{key} = {value}" for key, value in entries.items()]
        (info / "entry_points.txt").write_text("\n".join(["[symphony.backends]", *lines, ""]))

    def backend(
        self,
        name: str,
        *aliases: str,
        plugin: str | None = None,
        cluster: str = CLUSTER,
        load: str | None = None,
        extra: str | None = None,
        distribution: str | None = None,
    ) -> None:
        """One distribution with one backend, all right unless said otherwise."""
        load = load or f"fake_{name}.cluster:Fake"
        self.module(
            f"fake_{name}.plugin",
            plugin or GOOD.format(name=name, load=load, aliases=aliases, extra=extra),
        )
        self.module(f"fake_{name}.cluster", cluster)
        entries = dict.fromkeys((name, *aliases), f"fake_{name}.plugin")
        self.distribution(distribution or f"dist-{name}", entries)

    def run(self, code: str) -> Any:
        """What an expression after ``from symphony.cluster import plugins`` gives, and the modules that it brought."""
        program = f"""
import json, sys
from symphony.cluster import plugins
from symphony.errors import PluginError
try:
    value = {code}
    error = None
except PluginError as exc:
    value, error = None, str(exc)
print(json.dumps([value, error, sorted(name for name in sys.modules if name.startswith(("fake_", "symphony_")))]))
"""
        path = os.pathsep.join([str(self.folder), *filter(None, [os.environ.get("PYTHONPATH")])])
        env = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1"}
        done = subprocess.run(
            [sys.executable, "-c", program], env=env, capture_output=True, timeout=60, text=True
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    def error(self, code: str) -> str:
        value, error, _ = self.run(code)
        assert error is not None, f"{code} gave {value!r}"
        assert "\n" not in error
        return str(error)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    folder = tmp_path / "site"
    folder.mkdir()
    return Site(folder)


# --- finding ---


def test_finding_names_imports_no_plugin(site: Site) -> None:
    site.backend("slurm", "sbatch")
    site.backend("broken", plugin="raise RuntimeError('never imported')")
    names, _, modules = site.run("plugins.backend_names()")
    assert {"slurm", "sbatch", "broken", "local", "subproc"} <= set(names)
    assert modules == []


def test_importing_symphony_imports_no_plugin(site: Site) -> None:
    site.backend("slurm")
    _, _, modules = site.run("__import__('symphony').Cluster.__name__")
    assert modules == []


def test_opening_a_backend_imports_that_one_alone(site: Site) -> None:
    site.backend("slurm")
    site.backend("broken", plugin="raise RuntimeError('never imported')")
    name, error, modules = site.run("plugins.open_backend('slurm').__module__")
    assert (name, error) == ("fake_slurm.cluster", None)
    assert modules == ["fake_slurm", "fake_slurm.cluster", "fake_slurm.plugin"]


def test_opening_local_imports_no_other(site: Site) -> None:
    site.backend("slurm")
    _, error, modules = site.run("plugins.open_backend('local').__name__")
    assert error is None
    assert modules == ["symphony_local", "symphony_local.cluster", "symphony_local.plugin"]


def test_finding_a_record_loads_no_cluster(site: Site) -> None:
    site.backend("slurm")
    _, error, modules = site.run("plugins.find_backend('slurm').load")
    assert error is None
    assert modules == ["fake_slurm", "fake_slurm.plugin"]


@pytest.mark.parametrize("name", ["slurm", "SLURM", "sbatch", "Sbatch"])
def test_a_backend_goes_by_its_aliases_and_in_any_case(site: Site, name: str) -> None:
    site.backend("slurm", "sbatch")
    assert site.run(f"plugins.find_backend({name!r}).name")[:2] == ["slurm", None]


def test_backends_lists_each_once_by_name(site: Site) -> None:
    site.backend("zeta", "aaa", "bbb")
    site.backend("slurm", "sbatch")
    found, error, modules = site.run("[record.name for record in plugins.installed_backends()]")
    assert error is None
    assert [name for name in found if name in ("local", "slurm", "zeta")] == [
        "local",
        "slurm",
        "zeta",
    ]
    assert len(found) == len(set(found))
    assert not [name for name in modules if name.endswith(".cluster")]


def test_a_distribution_that_stands_twice_on_the_path_is_one(site: Site, tmp_path: Path) -> None:
    site.backend("slurm")
    (tmp_path / "again").symlink_to(site.folder)
    code = f"sys.path.append({str(tmp_path / 'again')!r}) or plugins.find_backend('slurm').name"
    assert site.run(code)[:2] == ["slurm", None]


def test_an_unknown_name_gets_the_near_miss_and_the_list(site: Site) -> None:
    site.backend("slurm")
    error = site.error("plugins.open_backend('slrum')")
    assert error.startswith("no backend 'slrum'; did you mean 'slurm'?; installed backends: ")
    assert "local" in error


# --- wrong plug-ins ---


def test_two_distributions_that_claim_one_name_are_both_named(site: Site) -> None:
    site.backend("slurm", distribution="dist-one")
    site.module("other.plugin", GOOD.format(name="slurm", load="x:Y", aliases=(), extra=None))
    site.distribution("dist-two", {"Slurm": "other.plugin"})
    error = site.error("plugins.open_backend('slurm')")
    assert "two distributions provide the backend 'slurm'" in error
    assert "dist-one (fake_slurm.plugin) and dist-two (other.plugin)" in error
    assert site.run("plugins.open_backend('local').__name__")[1] is None


def test_a_third_party_cannot_take_a_built_in_name(site: Site) -> None:
    site.backend("local", distribution="dist-evil")
    error = site.error("plugins.open_backend('local')")
    assert "dist-evil (fake_local.plugin)" in error
    assert "symphony-launcher (symphony_local.plugin)" in error


def test_a_plugin_that_fails_to_import_is_named(site: Site) -> None:
    site.backend("bad", plugin="raise RuntimeError('boom\\nand more')")
    assert site.error("plugins.open_backend('bad')") == (
        "the plug-in 'fake_bad.plugin' of dist-bad (backend 'bad') cannot be imported: RuntimeError: boom"
    )


def test_a_plugin_that_is_not_there_is_named(site: Site) -> None:
    site.distribution("dist-bad", {"bad": "nowhere.plugin"})
    error = site.error("plugins.find_backend('bad')")
    assert "'nowhere.plugin' of dist-bad" in error
    assert "No module named 'nowhere'" in error


def test_a_plugin_without_the_hook_is_refused(site: Site) -> None:
    site.backend("bad", plugin="X = 1")
    assert site.error("plugins.find_backend('bad')") == (
        "the plug-in 'fake_bad.plugin' of dist-bad must have one hook symphony_backend that returns "
        "a BackendInfo, not nothing"
    )


@pytest.mark.parametrize(
    ("given", "said"), [("None", "nothing"), ("{'name': 'bad'}", "{'name': 'bad'}")]
)
def test_a_hook_that_returns_something_else_is_refused(site: Site, given: str, said: str) -> None:
    site.backend(
        "bad",
        plugin=f"from symphony.hookspecs import hookimpl\n@hookimpl\ndef symphony_backend(): return {given}",
    )
    assert site.error("plugins.find_backend('bad')").endswith(
        f"that returns a BackendInfo, not {said}"
    )


def test_a_hook_that_fails_is_told(site: Site) -> None:
    site.backend(
        "bad",
        plugin="from symphony.hookspecs import hookimpl\n@hookimpl\ndef symphony_backend(): 1 / 0",
    )
    error = site.error("plugins.find_backend('bad')")
    assert error.endswith(
        "raises an error in its hook symphony_backend: ZeroDivisionError: division by zero"
    )


def test_a_hook_with_arguments_is_refused(site: Site) -> None:
    site.backend(
        "bad",
        plugin="from symphony.hookspecs import hookimpl\n@hookimpl\ndef symphony_backend(config): ...",
    )
    assert "symphony_backend with parameters" in site.error("plugins.find_backend('bad')")


@pytest.mark.parametrize("right_one_too", [False, True])
def test_a_misspelled_hook_gets_the_near_miss(site: Site, right_one_too: bool) -> None:
    misspelled = "from symphony.hookspecs import hookimpl\n@hookimpl\ndef symphony_backnd(): ..."
    good = GOOD.format(name="bad", load="x:Y", aliases=(), extra=None) if right_one_too else ""
    site.backend("bad", plugin=misspelled + "\n" + good)
    assert site.error("plugins.find_backend('bad')") == (
        "the plug-in 'fake_bad.plugin' of dist-bad has an unknown hook 'symphony_backnd'; "
        "did you mean 'symphony_backend'?"
    )


def test_a_record_of_another_name_is_refused(site: Site) -> None:
    site.backend("bad", plugin=GOOD.format(name="good", load="x:Y", aliases=("fine",), extra=None))
    assert "is installed as 'bad', but its BackendInfo has the names good, fine" in site.error(
        "plugins.find_backend('bad')"
    )


# --- wrong clusters ---


def test_a_missing_extra_gets_the_command_that_installs_it(site: Site) -> None:
    site.backend("cube", extra="kube", cluster="import no_such_library.client\n" + CLUSTER)
    assert site.error("plugins.open_backend('cube')") == (
        "backend 'cube' needs the package 'no_such_library'; install it with: pip install 'symphony-launcher[kube]'"
    )


def test_a_missing_package_of_no_extra_is_named(site: Site) -> None:
    site.backend("cube", cluster="import no_such_library\n" + CLUSTER)
    assert "module 'no_such_library' is not installed" in site.error("plugins.open_backend('cube')")


def test_a_module_that_the_record_misspells_is_no_missing_extra(site: Site) -> None:
    site.backend("cube", extra="kube", load="fake_cube.clustr:Fake")
    error = site.error("plugins.open_backend('cube')")
    assert "'fake_cube.clustr:Fake'" in error
    assert "pip install" not in error


def test_a_cluster_that_fails_to_import_is_told(site: Site) -> None:
    site.backend("cube", cluster="raise OSError('no driver')")
    assert site.error("plugins.open_backend('cube')").endswith(
        "'fake_cube.cluster:Fake': OSError: no driver"
    )


@pytest.mark.parametrize("attribute", ["Nothing", "Path"])
def test_what_is_loaded_must_be_a_cluster(site: Site, attribute: str) -> None:
    site.backend(
        "cube",
        load=f"fake_cube.cluster:{attribute}",
        cluster="from pathlib import Path\n" + CLUSTER,
    )
    error = site.error("plugins.open_backend('cube')")
    assert f"'fake_cube.cluster:{attribute}'" in error
    assert ("is not a subclass of symphony.Cluster" in error) == (attribute == "Path")


# --- listing what is broken ---


def test_a_broken_backend_does_not_hide_the_others(site: Site) -> None:
    site.backend("bad", "worse", plugin="raise RuntimeError('boom')")
    site.backend("slurm")
    found, error, _ = site.run(
        "[(r.name, r.aliases, r.summary, r.load) for r in plugins.installed_backends()]"
    )
    assert error is None
    by_name = {name: (aliases, summary, load) for name, aliases, summary, load in found}
    assert {"local", "slurm", "bad"} <= set(by_name)
    assert "worse" not in by_name
    aliases, summary, load = by_name["bad"]
    assert (aliases, load) == (["worse"], "")
    assert summary.startswith("cannot be used: the plug-in 'fake_bad.plugin' of dist-bad")


def test_a_name_that_two_claim_is_listed_once_and_says_so(site: Site) -> None:
    site.backend("slurm", "sbatch", distribution="dist-one")
    site.module("other.plugin", GOOD.format(name="slurm", load="x:Y", aliases=(), extra=None))
    site.distribution("dist-two", {"slurm": "other.plugin"})
    found, _, _ = site.run(
        "[(r.name, r.summary) for r in plugins.installed_backends() if r.name in ('slurm', 'sbatch')]"
    )
    assert [name for name, _ in found] == ["slurm"]
    assert found[0][1].startswith("cannot be used: two distributions provide the backend 'slurm'")

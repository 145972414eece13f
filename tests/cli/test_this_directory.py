"""Commands without the name of a file or an experiment, and the habits of other programs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from symphony.commandline.commands.lookup import this_directory
from symphony.config import trust
from tests.cli.conftest import FOREVER, TIMEOUT, Program

WORKERS = {"cmd": FOREVER, "replicas": 2}
CREW = {"processes": {"agent": {"cmd": FOREVER}}}


@pytest.fixture
def shop(program: Program) -> str:
    """A running experiment that was launched from the only experiment file of the directory."""
    api = {"cmd": f"echo started; {FOREVER}", "exposes": "api"}
    return program.launch("shop", {"api": api, "worker": WORKERS, "crew": CREW})


def in_directory(program: Program, name: str) -> Program:
    """Return the same program in a new subdirectory."""
    (program.directory / name).mkdir()
    other = Program(program.directory)
    other.directory = program.directory / name
    return other


class TestFile:
    def test_conventional_name_precedes_other_files(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        assert this_directory.experiment_files() == []
        Path("compose.yml").write_text("services: {web: {image: nginx}}")
        Path("process-compose.yml").write_text("processes: {web: {command: nginx}}")
        Path("broken.yaml").write_text("name: a\nprocesses: {")
        assert this_directory.experiment_files() == [Path("broken.yaml")]
        Path("rl.yml").write_text("name: rl\nprocesses: {p: {cmd: 'true'}}")
        assert this_directory.experiment_files() == [Path("broken.yaml"), Path("rl.yml")]
        Path("experiment.yml").touch()
        assert this_directory.experiment_files() == [Path("experiment.yml")]
        Path("symphony.yaml").touch()
        assert this_directory.experiment_files() == [Path("symphony.yaml")]
        assert this_directory.unused_files(Path("symphony.yaml")) == ["experiment.yml"]

    def test_nearest_parent_with_an_experiment_file_is_used(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        experiment = "name: rl\nprocesses: {p: {cmd: 'true'}}"
        inner = tmp_path / "a" / "b" / "c"
        inner.mkdir(parents=True)
        monkeypatch.chdir(inner)
        (tmp_path / "a" / "b" / "experiment.yml").write_text("entries: 1")
        (tmp_path / "a" / "b" / "rl.yml").write_text(experiment)
        assert this_directory.parent_file() is None
        (tmp_path / "symphony.yml").write_text(experiment)
        (tmp_path / "a" / "experiment.yaml").write_text(experiment)
        assert this_directory.parent_file() == Path("../../experiment.yaml")
        monkeypatch.setattr(
            trust, "other_owner", lambda path: "user x" if path.suffix == ".yaml" else None
        )
        assert this_directory.parent_file() == Path("../../../symphony.yml")
        (inner / "rl.yml").write_text(experiment)
        assert this_directory.require_file("symphony up") == Path("rl.yml")

    def test_only_experiment_file_is_used_and_named(self, program: Program, shop: str) -> None:
        (program.directory / "values.yml").write_text("a: 1")
        done = program("diff")
        assert (done.returncode, done.stderr) == (0, "symphony: shop.yml\n")
        assert f"{shop} on local: no difference" in done.stdout
        for verb in ("up", "check", "render", "graph"):
            assert program(verb).stderr.startswith("symphony: shop.yml\n")
        assert "is running" in program("launch").stderr
        assert program.ok("up", "-f", "shop.yml").startswith(program.ok("diff", "shop.yml"))
        assert len(json.loads(program.ok("render", "-f", "shop.yml", "api", "--json"))) > 0

    def test_file_of_a_parent_means_the_same_as_in_its_directory(self, program: Program) -> None:
        program.file("symphony", {"p": FOREVER, "q": {"cmd": "pwd", "start_dir": "inner"}})
        program.file("experiment", {"p": FOREVER})
        inner = in_directory(program, "inner")
        note = "symphony: ../symphony.yml (it precedes experiment.yml)\n"
        assert inner("up").stderr == note
        assert program("diff").returncode == 0
        assert inner("diff").returncode == 0
        assert inner("ps").stderr == "symphony: experiment symphony (../symphony.yml)\n"
        inner.cluster.wait("symphony", processes=["q"], timeout=TIMEOUT)
        assert inner("logs", "q").stdout == f"{inner.directory}\n"
        other = inner.cluster.new_experiment("other")
        other.base_dir = inner.directory
        other.new_process("p", cmd="true")
        inner.cluster.launch(other)
        assert inner("ps").stderr == "symphony: experiment other (this directory)\n"

    def test_several_files_are_listed(self, program: Program) -> None:
        program.file("one", {"p": "true"})
        program.file("two", {"p": "true"})
        done = program("up")
        assert (done.returncode, done.stdout) == (2, "")
        assert done.stderr == (
            "symphony: error: several experiment files in this directory: one.yml, two.yml; name "
            "one, as in 'symphony up one.yml'\n"
        )

    def test_no_file_is_an_error(self, program: Program) -> None:
        assert "no experiment file in this directory" in program("launch").stderr


class TestExperiment:
    def test_commands_use_it_and_report_its_name(self, program: Program, shop: str) -> None:
        note = f"symphony: experiment {shop} (shop.yml)\n"
        for words in (["ps"], ["events"], ["describe"], ["logs"], ["stop"], ["start"], ["restart"]):
            done = program(*words)
            assert (done.returncode, done.stderr.startswith(note)) == (0, True), done.stderr
        assert program("top", "--dry-run").stderr == f"would show {shop}\n"
        assert program("wait", "--timeout", "0.01").stderr.startswith(note)
        done = program("down")
        assert (done.stdout, done.stderr) == (f"deleted {shop}\n", note)
        assert program("down").returncode == 2
        assert program.json("history")[0]["experiment"] == shop, "the record is kept"

    def test_first_word_can_be_a_process(self, program: Program, shop: str) -> None:
        line, *_ = program("restart", "worker").stdout.splitlines()
        assert line == f"restarted worker-0, worker-1 of {shop}"
        line, *_ = program("restart", "worker-1", "api").stdout.splitlines()
        assert line == f"restarted api, worker-1 of {shop}"
        assert program("stop", "crew/agent").stdout == f"stopped crew/agent of {shop}\n"
        assert program("logs", "api", "-n", "1").stdout == "started\n"
        assert program.ok("logs", f"{shop}/api", "-n", "1") == "started\n"
        assert program("exec", "api", "--", "echo", "hi").stdout == "hi\n"
        assert program("visit", "api").stdout.startswith("http://")
        assert program("forward", "api", "80").stdout == "127.0.0.1:80\n"
        assert program("scale", "worker=3").returncode == 0
        assert program("scale", "worker", "1").returncode == 0
        assert "no difference; 3 unchanged" in program.ok("scale", shop, "worker", "1")
        names = [process["name"] for process in program.json("ps", shop)["processes"]]
        assert names == ["api", "worker-0", "agent"]

    def test_word_that_is_neither_changes_nothing(self, program: Program, shop: str) -> None:
        before = program.json("ps", shop)["processes"]
        for words in (["stop", "work"], ["restart", "ap"], ["stop", "sho"], ["scale", "work=9"]):
            done = program(*words)
            assert (done.returncode, done.stdout) == (2, ""), done.stdout
            assert "did you mean" in done.stderr
        assert program.json("ps", shop)["processes"] == before

    def test_experiment_precedes_a_process(self, program: Program, shop: str) -> None:
        other = in_directory(program, "other")
        other.launch("api", {"p": FOREVER})
        assert program.ok("stop", "api") == "stopped p of api\n"
        assert program.ok("stop", shop, "api") == "stopped api of shop\n"

    def test_name_can_be_the_file(self, program: Program, shop: str) -> None:
        file = program.file("unused", {"p": "true"})
        assert program.json("ps", "shop.yml")["name"] == shop
        assert program("start", file).stderr == (
            f"symphony: error: no experiment was launched from {file}; to launch it, use: symphony "
            f"launch {file}\n"
        )
        assert program.ok("down", "-f", "shop.yml") == f"deleted {shop}\n"

    def test_several_experiments_are_listed(self, program: Program, shop: str) -> None:
        program.ok("launch", "shop.yml", "--name", "shop-2")
        error = (
            "symphony: error: several experiments were launched from shop.yml: shop, shop-2; name "
            "one\n"
        )
        for words in (["stop"], ["down"], ["ps"]):
            assert (program(*words).returncode, program(*words).stderr) == (2, error)
        assert "existing experiments: shop, shop-2" in program("restart", "api").stderr
        program.ok("launch", program.file("job", {"p": "true"}))
        program.cluster.stop("shop-2", at_once=True)  # type: ignore[attr-defined]
        (program.directory / "job.yml").unlink()
        assert f"experiment {shop} (shop.yml)" in program("stop").stderr, "the only unfinished one"

    def test_experiment_of_another_directory_is_not_used(self, program: Program, shop: str) -> None:
        copy = in_directory(program, "copy")
        shutil.copy(program.directory / "shop.yml", copy.directory)
        done = copy("stop")
        assert done.stderr == (
            "symphony: error: no experiment was launched from shop.yml; name an experiment\n"
        )
        for words in (["up"], ["up", "--dry-run"], ["launch"], ["launch", "--dry-run"]):
            done = copy(*words)
            assert f"experiment '{shop}' runs from {program.directory} and" in done.stderr
        assert copy("launch", "--force").returncode == 0
        assert copy("stop").returncode == 0

    def test_name_means_the_copy_of_the_directory(self, program: Program, shop: str) -> None:
        copy = in_directory(program, "copy")
        shutil.copy(program.directory / "shop.yml", copy.directory)
        assert "launched shop-copy" in copy.ok("launch", "shop.yml", "--copy")
        assert copy.ok("up", "shop.yml").startswith("shop-copy on local: no difference")
        assert copy("ps", shop, "crew").stderr == (
            "experiment 'shop' is shop-copy, the copy of this directory\n"
        )
        assert copy("stop", shop, "api").stdout == "stopped api of shop-copy\n"
        assert copy("delete", "--force", shop).stdout == "deleted shop-copy\n"
        # Without a copy, the name means the same experiment as in other directories.
        assert "agent" in copy.ok("ps", shop, "crew")

    def test_options_of_another_directory_are_not_kept(self, program: Program) -> None:
        program.file("rl", {"p": "echo ${n}"}, parameters={"n": 1})
        program.ok("launch", "rl.yml", "--set", "n=2", "--wait", "started")
        program.cluster.wait("rl", timeout=TIMEOUT)
        copy = in_directory(program, "copy")
        shutil.copy(program.directory / "rl.yml", copy.directory)
        assert "keeping --set n=2" in program("up", "--dry-run").stderr
        assert "keeping" not in copy("up", "--dry-run").stderr


class TestExec:
    def test_command_can_follow_the_process(self, program: Program, shop: str) -> None:
        script = "echo $0 $1 $SYMPHONY_ROLE"
        assert program.ok("exec", shop, "api", "sh", "-c", script, "--help", "-b") == (
            "--help -b api\n"
        )
        assert program.ok("exec", "-it", shop, "api", "--", "echo", "hi") == "hi\n"

    def test_missing_command_is_reported_with_the_lines_to_type(self, program: Program) -> None:
        assert program("exec", "api", "bash").stderr == (
            "symphony: error: the command is missing: symphony exec api bash -- CMD... or, for the "
            "experiment of this directory, symphony exec api -- bash\n"
        )

    def test_command_that_takes_no_process_names_another_command(
        self, program: Program, shop: str
    ) -> None:
        error = program("down", "api").stderr
        assert "'api' is part of shop, and down takes only experiments;" in error
        assert error.endswith("for one process, use: symphony stop api\n")
        assert not program.cluster.describe_experiment(shop).ended

    @pytest.mark.parametrize(
        ("words", "line"),
        [
            (("exec", "api", "echo", "a b"), "exec shop api echo 'a b'"),
            (("visit", "api", "80"), "visit shop api"),
        ],
    )
    def test_error_for_too_many_words_contains_the_experiment(
        self, program: Program, shop: str, words: tuple[str, ...], line: str
    ) -> None:
        error = program(*words).stderr
        assert error.startswith("symphony: error: no experiment 'api'; existing experiments: shop;")
        assert error.endswith(f"name the experiment, as in symphony {line}\n")

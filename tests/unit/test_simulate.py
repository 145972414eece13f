"""Short runs of `scripts/simulate`, and tests of the tool itself."""

import json
import os
import random
from pathlib import Path

import pytest

from simulate import cli, compiled
from simulate.draw import draw_scenario
from simulate.history import run_history
from simulate.mutated_code import Mutation
from simulate.mutations import MUTATIONS
from simulate.promises import PROMISES
from simulate.runner import run_histories
from simulate.scenario import Crash, Execution, Happening, Process, Scenario
from simulate.shrink import shrink, size

# Each file contains a history that has failed before, and that keeps all promises since a repair.
HISTORIES = Path(__file__).with_name("histories")
FIXED_SEED = 7
COUNT = 150

pytestmark = pytest.mark.one_python


def story(scenario):
    lines = []
    outcome = run_history(scenario, tell=lines.append)
    return outcome, lines


def failures(first_seed):
    results = run_histories(first_seed, histories=COUNT, seconds=None)
    assert results.histories == COUNT
    return [f"{each.seed}: {each.promise}: {each.message}" for each in results.failures]


def test_histories_of_a_fixed_seed_keep_all_promises():
    assert failures(FIXED_SEED) == []


def test_histories_of_a_new_seed_keep_all_promises():
    seed = random.randrange(1 << 40)
    print(f"seed {seed}")
    assert failures(seed) == [], f"repeat it with: scripts/simulate --seed {seed}"


@pytest.mark.parametrize("path", sorted(HISTORIES.glob("*.json")), ids=lambda path: path.stem)
def test_history_that_has_failed_before(path):
    scenario = Scenario.from_dict(json.loads(path.read_text()))
    outcome, lines = story(scenario)
    assert outcome.broken is None, "\n".join(lines)


def test_same_seed_gives_the_same_story():
    first, second = story(draw_scenario(41)), story(draw_scenario(41))
    assert first[1] == second[1]
    assert first[0].steps == second[0].steps


def test_scenario_is_the_same_after_a_round_trip():
    for seed in range(20):
        scenario = draw_scenario(seed)
        text = json.dumps(scenario.to_dict())
        assert Scenario.from_dict(json.loads(text)) == scenario


def test_story_says_what_happens():
    server = Process("server", has_probe=True, executions=[Execution(ready_after=2.0)])
    client = Process("client", starts_after={"server": "ready"}, executions=[Execution(3.0, 4)])
    down = Happening(9.0, "down")
    outcome, lines = story(Scenario(1, [server, client], happenings=[down]))
    assert outcome.broken is None
    text = "\n".join(lines)
    assert "2.0  server (execution 0) is ready" in text
    assert "2.0    do      start client (after server is ready)" in text
    assert "5.0    record  exited client (code=4" in text
    assert "9.0  a user stops the experiment (down)" in text
    assert "9.0    do      finish" in text


def test_each_moment_of_a_crash_is_survived():
    """The supervisor is killed before and after each write and each action of one history."""
    processes = [
        Process("a", restart="OnFailure", max_restarts=1, executions=[Execution(1.0, 1)]),
        Process("b", starts_after={"a": "started"}, executions=[Execution(stops_after=2.0)]),
    ]
    happenings = [Happening(3.0, "restart", ["b"]), Happening(9.0, "down")]
    count = 0
    while True:
        crash = Crash(count, downtime=0.5, torn=count % 2 == 0)
        scenario = Scenario(1, processes, happenings=happenings, crashes=[crash])
        outcome, lines = story(scenario)
        assert outcome.broken is None, "\n".join(lines)
        if not any("is killed" in line for line in lines):
            break
        count += 1
    assert count > 40


def test_supervisor_whose_guardian_is_dead_begins_with_a_command():
    """The exit code of a process that exits in the meantime is unknown."""
    process = Process("a", restart="OnFailure", max_restarts=1, executions=[Execution(1.5, 1)])
    guardian = Happening(1.0, "guardian-killed")
    request = Happening(1.0, "signal", ["a"])
    # The supervisor is killed when it records the signal.
    scenario = Scenario(1, [process], happenings=[guardian, request], crashes=[Crash(6)])
    outcome, lines = story(scenario)
    assert outcome.broken is None
    text = "\n".join(lines)
    assert "1.0  the supervisor is killed" in text
    assert "1.0  nobody begins a supervisor until a user types a command" in text
    assert "4.0    record  exited a (code=None" in text


def test_shrink_finds_the_smallest_scenario():
    """The planted fault needs one process with a probe, and one crash."""

    def fails(scenario):
        has_probe = any(process.has_probe for process in scenario.processes)
        return has_probe and bool(scenario.crashes)

    seed = next(seed for seed in range(1000) if fails(draw_scenario(seed)))
    smallest = shrink(draw_scenario(seed), fails)
    assert len(smallest.processes) == len(smallest.crashes) == 1
    assert smallest.happenings == []
    assert size(smallest) == 3


def test_planted_fault_is_found_and_can_be_replayed(monkeypatch, capsys):
    """A machine on which a kill has no effect breaks a promise."""
    monkeypatch.setattr("simulate.machine.Machine.kill", lambda self, program: None)
    assert cli.main(["--seed", "0", "--histories", "300", "--jobs", "1"]) == 1
    output = capsys.readouterr().out
    assert "FAILED: " in output
    command = next(line for line in output.splitlines() if "--replay" in line)
    seed = command.split()[-1]
    assert cli.main(["--replay", seed]) == 1
    assert cli.main(["--shrink", seed]) == 1
    assert "the experiment" in capsys.readouterr().out


def test_histories_cover_the_promises(capsys):
    assert cli.main(["--seed", "0", "--histories", "200", "--jobs", "1", "--json"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert results["histories"] == 200
    assert set(results["promises"]) == set(PROMISES)


def test_wrong_usage(tmp_path):
    with pytest.raises(SystemExit) as caught:
        cli.main(["--shrink", "0"])
    assert caught.value.code == 2
    with pytest.raises(SystemExit) as caught:
        cli.main(["--replay", str(tmp_path / "missing.json")])
    assert caught.value.code == 2


@pytest.mark.parametrize("mutation", MUTATIONS, ids=lambda mutation: mutation.name)
def test_mutation_fits_the_code(mutation):
    compile(mutation.text(), mutation.file, "exec")


def test_mutation_must_occur_once():
    with pytest.raises(ValueError, match="its old text occurs 0 times"):
        Mutation("none", "symphony/plan/decide.py", "no such text", "").text()


def test_missing_compiler_is_reported(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("CC", str(tmp_path / "cc"))
    with pytest.raises(compiled.Unavailable, match="there is no C compiler"):
        compiled.use()


def test_several_processes_give_the_same_results():
    if len(os.sched_getaffinity(0)) < 2:
        pytest.skip("this machine has one core")
    one = run_histories(3, histories=60, seconds=None, jobs=1)
    two = run_histories(3, histories=60, seconds=None, jobs=2)
    assert (one.histories, one.steps, one.actions) == (two.histories, two.steps, two.actions)

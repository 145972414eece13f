"""``describe``: one process, with all that matters about it."""

from __future__ import annotations

from tests.cli.conftest import Program


def test_a_failure_is_told_with_its_reason_and_last_words(program: Program) -> None:
    name = program.ended(
        "rl",
        {
            "server": {"cmd": "true", "binds": {"replay": 7411}},
            "crew": {"processes": {"agent": {"cmd": "seq 30; exit 3", "connects": "replay"}}},
        },
    )
    shown = program.ok("describe", name, "age").splitlines()
    facts = {
        line.split("  ")[1]: line.split("  ")[-1].strip() for line in shown if line.startswith("  ")
    }
    assert facts["process"] == "crew/agent of rl"
    assert facts["state"] == "failed"
    assert facts["exit code"] == "3"
    assert facts["replay"] == "127.0.0.1:7411"
    assert "exit 3" in facts["command"]
    place = shown.index("events")
    assert shown[place + 1].split(" ago  ")[1].startswith("started as process ")
    assert "exited with code 3" in shown[place + 2]
    assert shown[-11:] == [
        "last lines (of crew/agent)",
        *(f"  {number}" for number in range(21, 31)),
    ]


def test_a_process_that_waits_says_for_what(program: Program) -> None:
    name = program.launched(
        "rl", {"a": "sleep 100", "b": {"cmd": "true", "starts_after": {"a": "succeeded"}}}
    )
    shown = program.ok("describe", name, "b")
    assert "reason   waiting for a to succeed" in shown
    assert "last lines" not in shown


def test_it_is_json_for_scripts(program: Program) -> None:
    name = program.ended("rl", {"a": {"cmd": "true", "exposes": {"page": 7412}}})
    found = program.json("describe", name, "a")
    assert (found["experiment"], found["name"], found["state"], found["exit_code"]) == (
        "rl",
        "a",
        "succeeded",
        0,
    )
    assert found["addresses"] == {"page": "127.0.0.1:7412"}
    assert [event["text"].split()[0] for event in found["events"]] == ["started", "exited"]
    assert set(found["facts"]) == {"command", "folder", "log"}


def test_what_is_not_there(program: Program) -> None:
    name = program.ended("rl", {"a": "true"})
    assert program("describe", name, "zzz").returncode == 2
    assert program("describe", "nowhere", "a").returncode == 2

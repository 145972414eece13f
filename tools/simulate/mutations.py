"""Faults that are put into the decisions and the record on purpose.

Each is run in a new interpreter until a promise is broken. A mutation that no history finds shows
that a promise is missing, unless it is equivalent.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

from simulate.mutated_code import ROOT, Mutation, install

DECIDE = "symphony/plan/decide.py"
OBSERVATION = "symphony/plan/observation.py"
DRAFT = "symphony/plan/decisions/draft.py"
ENDINGS = "symphony/plan/decisions/endings.py"
EXECUTIONS = "symphony/plan/decisions/executions.py"
REQUESTS = "symphony/plan/decisions/request_steps.py"
STARTS = "symphony/plan/decisions/starts.py"
STOPS = "symphony/plan/decisions/stops.py"
UNIT_RELEASE = "symphony/plan/decisions/unit_release.py"
RESTART = "symphony/plan/restart_policy.py"
STATE = "symphony/plan/state.py"
EVENTS = "symphony/supervised/record/event_file.py"

HISTORIES = ROOT / "tests" / "unit" / "histories"

MUTATIONS: tuple[Mutation, ...] = (
    # --- starts ---
    Mutation(
        "start-not-cleared",
        STARTS,
        "    elif _can_start(draft, name, track):",
        "    if _can_start(draft, name, track):",
    ),
    Mutation(
        "start-unordered",
        STARTS,
        "    if not starts_after:\n        return True",
        "    if starts_after:\n        return True",
    ),
    Mutation(
        "start-before-delay",
        STARTS,
        "        if draft.now < track.next_start:\n            draft.wake(track.next_start)\n            return False\n        is_dis",
        "        is_dis",
    ),
    Mutation(
        "start-while-running",
        OBSERVATION,
        "    return seen.running or seen.leftovers or seen.starting",
        "    return seen.running or seen.leftovers",
    ),
    Mutation(
        "start-beside-leftovers",
        OBSERVATION,
        "    return seen.running or seen.leftovers or seen.starting",
        "    return seen.running or seen.starting",
    ),
    Mutation(
        "start-held",
        STARTS,
        "        if name in held:\n            continue\n        process",
        "        process",
    ),
    Mutation("clear-again", STARTS, "    if draft.seen(name).clearing:\n        return\n", ""),
    Mutation(
        "attempt-shifted",
        STARTS,
        "    return Start(name, cause, track.attempts)",
        "    return Start(name, cause, track.attempts + 1)",
    ),
    Mutation(
        "unit-starts-alone",
        STARTS,
        "        can_start = len(pending) == len(ranks) and draft.now >= decision.next_start",
        "        can_start = draft.now >= decision.next_start",
    ),
    Mutation(
        "unit-starts-early",
        STARTS,
        "        can_start = len(pending) == len(ranks) and draft.now >= decision.next_start",
        "        can_start = len(pending) == len(ranks)",
    ),
    # --- starts of units, and after disruptions ---
    Mutation(
        "unit-starts-unordered",
        STARTS,
        "        can_start = can_start and all(_is_in_order(draft, name) for name in anew)\n",
        "",
        saved="gang-restart-awaits-order",
    ),
    Mutation(
        "unit-start-before-stops",
        REQUESTS,
        "    stopped = [*stopped, *_stopped_by_units(draft, wanted)]\n",
        "",
        saved="start-of-a-failing-unit",
    ),
    Mutation(
        "stopped-unit-restarts",
        STARTS,
        "    if process.gang is not None and draft.is_stopped_unit(process.gang):",
        "    if process.gang is not None and draft.state.stopping:",
        saved="restart-beside-a-stopped-unit",
    ),
    Mutation(
        "unit-restart-not-counted",
        STATE,
        "        track.retries += 1\n        track.failures_in_row = max(",
        "        track.failures_in_row = max(",
        saved="gang-counts-finished-ranks",
    ),
    Mutation(
        "lost-unordered",
        STARTS,
        "        return not (is_disrupted and _waits_for_disrupted(draft, name))",
        "        return True",
    ),
    Mutation(
        "lost-before-ready",
        STARTS,
        '        if is_starting or (track.state is State.RUNNING and condition == "ready"):',
        "        if is_starting:",
    ),
    Mutation(
        "lost-stays-ready",
        STATE,
        "    track.started = None\n    track.was_ready = False\n",
        "    track.started = None\n",
        saved="lost-and-late",
    ),
    Mutation(
        "lost-counts",
        STATE,
        "    _back_off(track, event)\n    track.retries = retries\n",
        "    _back_off(track, event)\n",
    ),
    Mutation(
        "start-stops-unit",
        STARTS,
        "        if not draft.is_started_by_request(process.gang):",
        "        if process.gang:",
        saved="start-of-a-stopped-unit",
    ),
    Mutation(
        "unit-starts-beside-old-ranks",
        STARTS,
        "        if any(_is_being_stopped(draft, name) for name in ranks):",
        "        if draft.state.is_stopping_all:",
        saved="start-beside-a-late-rank",
    ),
    Mutation(
        "unit-gives-up",
        STARTS,
        "    if unit is not None and (unit.action == FAIL_UNIT or not _starts_anew(track)):",
        "    if unit is not None and unit.action == FAIL_UNIT:",
        saved="unit-restarts-in-no-order",
    ),
    Mutation(
        "finished-rank-lacks-machine",
        UNIT_RELEASE,
        "    return [name for name in draft.wish.gangs[gang] if tracks[name].state not in ENDED]",
        "    return [name for name in draft.wish.gangs[gang] if name in tracks]",
    ),
    Mutation(
        "release-too-early",
        UNIT_RELEASE,
        "    return max(begin, first_placed) + within",
        "    return max(begin, first_placed)",
    ),
    Mutation(
        "never-released",
        UNIT_RELEASE,
        "    if not 0 < len(placed) < len(ranks):",
        "    if len(placed) <= len(ranks):",
    ),
    Mutation(
        "unit-ignores-requests",
        DRAFT,
        '            if request.kind != "start" and not set(request.names).isdisjoint(ranks):',
        '            if request.kind == "none":',
        saved="gang-restart-in-waves",
    ),
    # --- what has happened ---
    Mutation(
        "never-ready",
        EXECUTIONS,
        '    if seen.ready:\n        draft.record("ready", name)\n        return\n',
        "",
    ),
    Mutation(
        "ready-timeout-shifted",
        EXECUTIONS,
        "        if draft.now >= due:",
        "        if draft.now >= due - 1.0:",
    ),
    Mutation(
        "no-wake-for-readiness",
        EXECUTIONS,
        "        draft.wake(due)\n        timeout = None",
        "        timeout = None",
    ),
    Mutation(
        "unseen-execution",
        EXECUTIONS,
        "            _note_replaced_execution(draft, name, seen)\n        return True",
        "            return False\n        return True",
    ),
    Mutation(
        "old-executions-seen",
        EXECUTIONS,
        "        if track is None or seen.attempt < track.attempts - 1 or seen.attempt < 0:",
        "        if track is None or seen.attempt < 0:",
    ),
    Mutation(
        "deadline-inverted",
        EXECUTIONS,
        "    return seen.exit_code != 0 or seen.signaled_at is not None",
        "    return seen.exit_code == 0 and seen.signaled_at is None",
    ),
    Mutation(
        "unhealthy-too-early",
        EXECUTIONS,
        "    if seen.failed_tests < process.max_failed_tests or",
        "    if seen.failed_tests + 1 < process.max_failed_tests or",
    ),
    Mutation(
        "unhealthy-too-late",
        EXECUTIONS,
        "    if seen.failed_tests < process.max_failed_tests or",
        "    if seen.failed_tests <= process.max_failed_tests + 1 or",
    ),
    Mutation(
        "unhealthy-while-all-stop",
        EXECUTIONS,
        "    is_stopping = is_stopping or draft.state.is_stopping_all\n",
        "",
    ),
    Mutation(
        "unhealthy-exit-code-counts",
        EXECUTIONS,
        "    code = None if track.unhealthy else seen.exit_code",
        "    code = seen.exit_code",
    ),
    Mutation(
        "unhealthy-is-lost",
        EXECUTIONS,
        " and code != 0 and not track.unhealthy:",
        " and code != 0:",
    ),
    Mutation(
        "unhealthy-is-not-stopped",
        STOPS,
        "    if track.unhealthy and track.pid is not None:",
        "    if track.unhealthy and track.pid is None:",
    ),
    Mutation(
        "unhealthy-is-calm",
        STATE,
        "        if track.kill_at is None and not track.unhealthy:",
        "        if track.kill_at is None:",
    ),
    Mutation(
        "unhealthy-succeeds",
        STATE,
        '        is_unhealthy = track.unhealthy != "" and not track.stopped',
        "        is_unhealthy = False",
    ),
    Mutation(
        "unhealthy-for-ever",
        STATE,
        '    track.test_result = track.unhealthy = ""\n    track.next_start',
        '    track.test_result = ""\n    track.next_start',
    ),
    Mutation(
        "disruption-is-failure",
        EXECUTIONS,
        "    if seen.disruption is not None and code != 0 and not track.unhealthy:",
        "    if seen.disruption is None and code is None:",
    ),
    Mutation(
        "success-is-disruption",
        EXECUTIONS,
        "    if seen.disruption is not None and code != 0 and not track.unhealthy:",
        "    if seen.disruption is not None:",
    ),
    Mutation(
        "restart-request-lost",
        EXECUTIONS,
        "    if restarted is not None and not state.is_stopping_all:",
        "    if restarted is not None and state.is_stopping_all:",
    ),
    Mutation(
        "stopped-is-restarted",
        EXECUTIONS,
        "    elif state.stopping or is_stopped:",
        "    elif state.stopping:",
    ),
    Mutation(
        "restarts-while-all-restart",
        EXECUTIONS,
        "    if not draft.state.restarting:\n        restart_of_process",
        "    if draft.state.stopping is False:\n        restart_of_process",
    ),
    Mutation(
        "one-restart-more", RESTART, "restarts >= self.max_restarts", "restarts > self.max_restarts"
    ),
    Mutation(
        "on-failure-inverted",
        RESTART,
        'self.policy == "OnFailure" and code != 0',
        'self.policy == "OnFailure" and code == 0',
    ),
    Mutation(
        "delay-grows-late",
        RESTART,
        "        if in_row == 0:\n            return 0.0",
        "        if in_row <= 1:\n            return 0.0",
    ),
    # --- stops ---
    Mutation(
        "all-waves-at-once", REQUESTS, "    if is_together or len(running) < 2:", "    if True:"
    ),
    Mutation(
        "waves-inverted",
        REQUESTS,
        "    deepest = max(depths.values())",
        "    deepest = min(depths.values())",
    ),
    Mutation(
        "kill-at-once", STOPS, "    kill_at = begin + grace_in(draft, name)", "    kill_at = begin"
    ),
    Mutation(
        "grace-twice",
        STOPS,
        "    kill_at = begin + grace_in(draft, name)",
        "    kill_at = begin + 2 * grace_in(draft, name)",
    ),
    Mutation(
        "never-killed",
        STOPS,
        "        if not seen.killed:\n            actions.append(Kill(name, cause))\n        return",
        "        return",
    ),
    Mutation(
        "stop-again",
        STOPS,
        "    if seen.kill_at is None or kill_at < seen.kill_at - TOLERANCE_SECONDS:",
        "    if True:",
    ),
    Mutation(
        "leftovers-live",
        STOPS,
        "        if not seen.running and not seen.leftovers:",
        "        if not seen.running:",
    ),
    Mutation(
        "unit-ignores-exit",
        STOPS,
        "        if decision is not None:\n            return decision.reason",
        '        if decision is None:\n            return ""',
    ),
    Mutation(
        "own-deadline-inverted",
        STOPS,
        "        if draft.now >= due:",
        "        if draft.now < due:",
    ),
    Mutation(
        "deadline-forgets-stop",
        STOPS,
        "        draft.wake(due)",
        "        pass",
        saved="deadline-while-awaiting-a-stop",
    ),
    # --- requests ---
    Mutation(
        "stop-done-early",
        REQUESTS,
        "    if all(_is_over(draft, name) for name in names):",
        "    if any(_is_over(draft, name) for name in names):",
    ),
    Mutation(
        "grace-of-process",
        REQUESTS,
        "            graces.append(own if request.grace is None else request.grace)",
        "            graces.append(own)",
    ),
    Mutation(
        "removed-stays",
        REQUESTS,
        "        return [*removed_names(draft), *request.names]",
        "        return request.names",
    ),
    # --- the end ---
    Mutation(
        "no-sweep",
        ENDINGS,
        "    if draft.observation.strays is not False:",
        "    if draft.observation.strays:",
    ),
    Mutation(
        "finish-beside-processes",
        ENDINGS,
        "    if not _is_over(draft) or not is_all_gone(draft):",
        "    if not _is_over(draft):",
    ),
    Mutation(
        "deadline-sleeps",
        ENDINGS,
        "        draft.wake(due)\n\n\ndef _apply_to_rank",
        "        return\n\n\ndef _apply_to_rank",
    ),
    Mutation(
        "restart-early",
        ENDINGS,
        "        if draft.now < state.restart_at:",
        "        if draft.now > state.restart_at:",
    ),
    Mutation(
        "sweep-never-kills",
        DECIDE,
        "    if draft.now >= kill_at or observation.kills_at_once:\n        return [Sweep(kill=True)]\n    draft.wake(kill_at)",
        "    draft.wake(kill_at)",
    ),
    # --- the record ---
    Mutation(
        "attempts-not-counted",
        STATE,
        "def _started(track: Track, event: Event) -> None:\n    track.attempts += 1",
        "def _started(track: Track, event: Event) -> None:",
    ),
    Mutation("unknown-exit-succeeds", STATE, "None: State.UNKNOWN}", "None: State.SUCCEEDED}"),
    Mutation(
        "exit-without-code",
        STATE,
        '    track.exit_code, track.ended = event["code"], event["at"]',
        '    track.ended = event["at"]',
    ),
    Mutation(
        "checkpoint-without-requests",
        STATE,
        '    state["requests"] = [\n        {"number": number, **_given_values(request)} for number, request in run.requests.items()\n    ]',
        '    state["requests"] = []',
    ),
    Mutation("line-without-end", EVENTS, '.encode() + b"\\n"', ".encode()"),
    Mutation(
        "stop-keeps-starts",
        STATE,
        '            if other.kind != "stop":\n                other.names =',
        '            if other.kind == "stop":\n                other.names =',
    ),
)


@dataclass(frozen=True, slots=True)
class Found:
    """How a mutation was noticed.

    ``histories`` is the number of histories until then, or None if none of them noticed it. It is 1
    for a mutation that a saved history shows.
    """

    mutation: Mutation
    histories: int | None
    promise: str
    seconds: float


def find(name: str) -> Mutation:
    """Return the mutation with a name. Raises ValueError if there is none."""
    for mutation in MUTATIONS:
        if mutation.name == name:
            return mutation
    raise ValueError(f"there is no mutation {name!r}; see tools/simulate/mutations.py")


def run_mutations(only: Sequence[str] | None, *, histories: int, jobs: int | None) -> int:
    """Run the mutations, print which were found, and return the exit code."""
    chosen = [find(name) for name in only] if only else list(MUTATIONS)
    for mutation in chosen:
        mutation.text()
    workers = jobs or len(os.sched_getaffinity(0))
    results: list[Found] = []
    with ThreadPoolExecutor(workers) as pool:
        for result in pool.map(lambda each: _run_one(each, histories), chosen):
            results.append(result)
            print(f"{len(results)}/{len(chosen)} {_line(result)}", file=sys.stderr, flush=True)
    _print_table(results)
    missed = [each for each in results if each.histories is None and not each.mutation.equivalent]
    wrong = [each for each in results if each.histories is not None and each.mutation.equivalent]
    count = sum(each.histories is not None for each in results)
    print(f"\n{count} of {len(results)} found, {len(missed)} missed")
    for each in wrong:
        print(f"{each.mutation.name} is said to be equivalent, but was found")
    return 1 if missed or wrong else 0


def _run_one(mutation: Mutation, histories: int) -> Found:
    began = time.monotonic()
    completed = subprocess.run(
        [sys.executable, "-m", "simulate.mutations", mutation.name, str(histories)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    seconds = time.monotonic() - began
    if completed.returncode:
        raise ValueError(f"mutation {mutation.name!r} cannot be run: {completed.stderr[-500:]}")
    values = json.loads(completed.stdout)
    return Found(mutation, values["histories"], values["promise"], seconds)


def _print_table(results: Sequence[Found]) -> None:
    width = max(len(each.mutation.name) for each in results)
    print(f"{'MUTATION':{width}}  HISTORIES  PROMISE")
    for each in results:
        print(_line(each, width))


def _line(found: Found, width: int = 0) -> str:
    mutation = found.mutation
    if found.histories is not None:
        count = "saved" if mutation.saved else str(found.histories)
        return f"{mutation.name:{width}}  {count:>9}  {found.promise}"
    words = f"equivalent: {mutation.equivalent}" if mutation.equivalent else "NOT FOUND"
    return f"{mutation.name:{width}}  {'-':>9}  {words}"


def _main(name: str, histories: int) -> None:
    """Run one mutation in this interpreter, and print the result as JSON."""
    mutation = find(name)
    install(mutation)
    if mutation.saved:
        print(json.dumps(_run_saved(mutation.saved)))
        return
    from simulate.runner import run_histories

    results = run_histories(0, histories=histories, seconds=None)
    failure = results.failures[0] if results.failures else None
    values = {
        "histories": None if failure is None else failure.seed + 1,
        "promise": "" if failure is None else failure.promise,
    }
    print(json.dumps(values))


def _run_saved(name: str) -> Mapping[str, Any]:
    """Run one saved history."""
    from simulate.history import run_history
    from simulate.scenario import Scenario

    text = (HISTORIES / f"{name}.json").read_text(encoding="utf-8")
    broken = run_history(Scenario.from_dict(json.loads(text))).broken
    return {
        "histories": None if broken is None else 1,
        "promise": "" if broken is None else broken.promise,
    }


if __name__ == "__main__":
    _main(sys.argv[1], int(sys.argv[2]))

"""Arbitrary text in arguments and variables reaches the processes unchanged."""

import json
import sys

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from symphony import Cluster
from symphony.testing.programs import REPORT

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=30)
NAMES = st.from_regex(r"MINE_[A-Z0-9_]{1,8}", fullmatch=True)
# A launch takes much longer than a process, so every launch has several processes.
PROCESSES = st.lists(
    st.tuples(st.lists(TEXT, max_size=4), st.dictionaries(NAMES, TEXT, max_size=3)),
    min_size=8,
    max_size=8,
)


@settings(
    max_examples=5, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(processes=PROCESSES)
def test_arguments_and_variables_arrive_unchanged(tmp_path, processes):
    cluster = Cluster.new("local", state_dir=tmp_path)
    experiment = cluster.new_experiment("exp")
    for number, (args, env) in enumerate(processes):
        experiment.new_process(
            f"p-{number}", command=[sys.executable, "-c", REPORT], args=args, env=env
        )
    try:
        cluster.launch(experiment)
        assert cluster.wait("exp", timeout=30).exit_code == 0
        for number, (args, env) in enumerate(processes):
            report = json.loads(cluster.get_log("exp", f"p-{number}"))
            assert report["argv"] == args
            own = {key: value for key, value in report["env"].items() if key.startswith("MINE_")}
            assert own == env
    finally:
        cluster.delete("exp")

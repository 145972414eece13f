"""The scenarios of the command line that every backend passes, on a cluster."""

import secrets
from typing import ClassVar

import pytest

from kubetest.accounts import wait_for_account
from kubetest.plugin import PREFIX
from tests.cli.scenarios import Scenarios, program_for_backend, refuse
from tests.cli.terminal import INTERRUPT

from .conftest import wait_until


class TestKube(Scenarios):
    backend = "kube"
    pending_settings: ClassVar = {"node_selector": {"symphony.test/no-such-node": "true"}}
    pending_reason = "Unschedulable: "
    exec_needs_running_process = True
    has_nodes = True
    dry_run_option = "--dry-run=server"

    @pytest.fixture(scope="class")
    @classmethod
    def cli(cls, kube_session, tmp_path_factory):
        name = f"{PREFIX}{secrets.token_hex(2)}"
        kube_session.api.call("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
        try:
            wait_for_account(kube_session.api, name)
            yield from program_for_backend(
                tmp_path_factory.mktemp("kube"),
                SYMPHONY_BACKEND="kube",
                SYMPHONY_KUBECONFIG=str(kube_session.cluster.kubeconfig),
                SYMPHONY_NAMESPACE=name,
                SYMPHONY_IMAGE=kube_session.cluster.image,
            )
        finally:
            kube_session.api.call(
                "DELETE", f"/api/v1/namespaces/{name}/pods", {"gracePeriodSeconds": 0}
            )
            kube_session.api.call("DELETE", f"/api/v1/namespaces/{name}")

    def test_ctrl_c_rolls_back_a_launch_without_processes(self, cli, kube_faults):
        kube_faults.delay(2, method="POST", path="/pods", times=1)
        # If the test fails, its experiment must not prevent the launch of the second run.
        name = f"taken-back-{secrets.token_hex(2)}"
        file = cli.file(name, {"first": "exec sleep 1000"})
        terminal = cli.terminal("launch", file, "--kubeconfig", kube_faults.kubeconfig)
        wait_until(lambda: kube_faults.count(method="POST", path="/pods"))
        terminal.press(INTERRUPT)
        terminal.expect(f"interrupted: ending the launch of {name}")
        assert terminal.finish() == 130
        assert terminal.text.endswith("symphony: interrupted\n")
        assert name not in [status["name"] for status in cli.json("ls")]

    def test_advice_names_options_of_the_command_line(self, cli, kube_session):
        """The message has ``--namespace``, the error of the library has ``namespace=``."""
        output = refuse(
            cli,
            "launch",
            cli.file("unborn", {"a": "true"}),
            "--namespace",
            "symphony-test-none",
            code=2,
        )
        assert output.endswith(
            "create namespace 'symphony-test-none', or choose another with --namespace\n"
        )


# What the command line does with the answers of a backend is the same on every backend, so these
# promises are tested on the backends of this machine only (tests/cli/test_every_backend.py). The
# commands exec and cp, and the page, are also tested in test_cli_access.py and test_ui_outage.py.
SAME_ON_ALL_BACKENDS = (
    "test_ambiguous_name_is_a_menu_on_a_terminal",
    "test_command_after_the_dashes_is_passed_on_unchanged",
    "test_ctrl_c_stops_following_and_the_experiment_keeps_running",
    "test_delete_asks_for_confirmation",
    "test_describe_failed_process",
    "test_dry_run_shows_the_manifest",
    "test_errors_are_one_line",
    "test_exec_errors_are_one_line",
    "test_exec_has_streams_environment_and_exit_code",
    "test_exec_has_the_terminal",
    "test_files_are_copied_both_ways",
    "test_following_exits_quietly_when_the_pipe_is_closed",
    "test_logs",
    "test_ls",
    "test_name_of_a_running_experiment_is_refused",
    "test_process_without_output",
    "test_reading_command_accepts_the_beginning_of_a_name",
    "test_the_page_shows_and_controls_an_experiment",
    "test_top_shows_and_controls_an_experiment",
    "test_wait",
    "test_watch_refreshes_in_place_until_ctrl_c",
)
for _name in SAME_ON_ALL_BACKENDS:
    # An unknown name must not be accepted silently.
    getattr(Scenarios, _name)
    setattr(TestKube, _name, None)

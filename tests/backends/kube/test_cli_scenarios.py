"""The scenarios of the command line that every backend passes, on a cluster."""

import secrets
from typing import ClassVar

import pytest

from kubetest.accounts import wait_for_account
from kubetest.plugin import PREFIX
from tests.cli.scenarios import SAME_ON_ALL_BACKENDS, Scenarios, program_for_backend, refuse
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
        # A Pod that already had a node remains until the node's kubelet has ended it.
        wait_until(lambda: name not in [status["name"] for status in cli.json("ls")])

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


# test_exec.py and test_forward.py test the commands that connect to a container, and
# test_ui_outage.py tests the page.
# test_submit_live.py follows an experiment that fails.
for _name in (*SAME_ON_ALL_BACKENDS, "test_follow_exits_with_the_exit_code_of_the_experiment"):
    setattr(TestKube, _name, None)

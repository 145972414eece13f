"""The behaviour contract on a real cluster, with shared and with own namespaces."""

import contextlib

import pytest

from symphony.testing import BackendContract


class KubeContract(BackendContract):
    backend = "kube"
    python = "python3"
    timeout = 90.0

    @pytest.fixture(autouse=True)
    def where(self, kube_cluster):
        self.image = kube_cluster.image
        self.kube = kube_cluster

    @pytest.mark.skip(reason="a supervisor in the cluster is replaced by its Job")
    def test_the_next_command_replaces_a_killed_supervisor(self):
        """Replace the test of the contract."""

    @pytest.mark.skip(reason="the clusters of the tests serve no metrics; see test_usage.py")
    def test_the_resource_use_of_running_processes_is_reported_until_the_end(self):
        """Replace the test of the contract."""

    @contextlib.contextmanager
    def foreign(self, cluster):
        """An object of another user with a similar name in the same namespace."""
        path = self.kube.path("configmaps")
        self.kube.raw.call(
            "POST", path, {"metadata": {"name": "contract-mine"}, "data": {"key": "value"}}
        )
        yield lambda: self.kube.raw.find(f"{path}/contract-mine")["data"] == {"key": "value"}


class TestSharedNamespace(KubeContract):
    @pytest.fixture
    def options(self, kube_cluster):
        return {
            "kubeconfig": str(kube_cluster.kubeconfig),
            "namespace": kube_cluster.namespace,
            "expose": "NodePort",  # a test cluster may have no load balancers
        }


# What happens inside a Pod, and what a supervisor does, is the same in both kinds of namespaces, so
# these promises are tested in the shared namespace only.
SAME_IN_ALL_NAMESPACES = (
    "test_a_command_runs_in_the_environment_of_a_process",
    "test_a_dry_run_prints_the_manifest_and_changes_nothing",
    "test_a_failed_process_is_restarted_by_its_policy",
    "test_a_failure_restarts_the_experiment_and_then_stops_it",
    "test_a_process_runs_the_code_of_the_snapshot_and_up_runs_the_edited_code",
    "test_a_process_starts_after_another_is_ready_and_connects_to_it",
    "test_a_process_whose_start_condition_cannot_be_met_has_failed",
    "test_a_wait_for_some_processes_and_a_timeout",
    "test_added_processes_join_the_output_that_is_followed",
    "test_an_experiment_ends_with_a_process",
    "test_an_experiment_is_stopped_at_its_deadline",
    "test_an_exposed_service_has_an_external_address",
    "test_arguments_and_variables_are_not_changed_and_those_of_a_process_take_precedence",
    "test_cmd_and_cmds_run_in_a_shell",
    "test_every_process_has_the_address_of_every_service",
    "test_exit_codes_are_reported_and_unsupported_settings_are_ignored",
    "test_files_are_copied_to_and_from_a_process",
    "test_following_logs_stops_when_the_processes_have_exited",
    "test_logs_are_complete_and_since_omits_older_lines",
    "test_processes_are_stopped_and_started_again_while_others_run",
    "test_processes_can_read_secrets",
    "test_readiness_is_reported",
    "test_replicas_bind_one_service_at_addresses_of_their_own",
    "test_restarted_process_keeps_its_environment_and_its_log",
    "test_scale_removes_replicas_whose_logs_remain_and_adds_them_again",
    "test_several_experiments_are_launched_and_deleted",
    "test_signal_reaches_the_processes_that_are_named",
    "test_the_number_of_restarts_is_limited",
    "test_the_ranks_of_a_unit_find_each_other_and_restart_and_fail_together",
    "test_the_record_of_a_run_remains_when_the_experiment_is_replaced_or_deleted",
    "test_the_topology_of_a_running_experiment_is_that_of_its_description",
    "test_up_changes_what_differs_and_nothing_else",
    "test_up_changes_the_policies_without_a_restart",
)


class TestOwnNamespaces(KubeContract):
    @pytest.fixture
    def options(self, kube_cluster):
        return {"kubeconfig": str(kube_cluster.kubeconfig), "expose": "NodePort"}


for _name in SAME_IN_ALL_NAMESPACES:
    # An unknown name must not be accepted silently.
    getattr(BackendContract, _name)
    setattr(TestOwnNamespaces, _name, None)

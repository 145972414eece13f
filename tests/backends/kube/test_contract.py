"""The behaviour contract, on a real cluster and with an API server in memory."""

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


# In these promises, no program does anything. What the server stores is the question, and not what
# it does, so they are tested with an API server in memory, in both kinds of namespaces.
IN_MEMORY = (
    "test_a_dry_run_prints_the_manifest_and_changes_nothing",
    "test_a_launched_experiment_is_listed_described_and_found_by_its_names",
    "test_launches_that_are_refused_leave_the_running_experiment_unchanged",
    "test_several_experiments_are_launched_and_deleted",
    "test_the_topology_of_a_running_experiment_is_that_of_its_description",
    "test_delete_is_complete_and_idempotent_and_spares_other_programs",
)
# In these promises, programs write lines, exit and obey signals. Which Pods exist is the question,
# and not how a node runs them, so their programs run on this machine.
IN_MEMORY_WITH_PROGRAMS = (
    "test_a_wait_for_some_processes_and_a_timeout",
    "test_added_processes_join_the_output_that_is_followed",
    "test_an_experiment_is_stopped_at_its_deadline",
    "test_arguments_and_variables_are_not_changed_and_those_of_a_process_take_precedence",
    "test_exit_codes_and_logs_are_kept_after_the_launcher_exits_and_until_the_next_launch",
    "test_force_replaces_a_running_experiment",
    "test_processes_are_stopped_and_started_again_while_others_run",
    "test_scale_removes_replicas_whose_logs_remain_and_adds_them_again",
    "test_the_number_of_restarts_is_limited",
    "test_the_record_of_a_run_remains_when_the_experiment_is_replaced_or_deleted",
    "test_up_changes_the_policies_without_a_restart",
    "test_up_changes_what_differs_and_nothing_else",
)
# These promises are part of tests that examine more on the same cluster.
PART_OF_OTHER_TESTS = {
    "test_a_command_runs_in_the_environment_of_a_process": "test_exec.py",
    "test_a_failed_process_is_restarted_by_its_policy": "test_states_live.py",
    "test_a_failure_restarts_the_experiment_and_then_stops_it": "test_supervisor.py",
    "test_a_process_starts_after_another_is_ready_and_reaches_its_ports": "test_start_order.py",
    "test_a_process_whose_start_condition_cannot_be_met_has_failed": "test_start_order.py",
    "test_an_experiment_ends_with_a_process": "test_supervisor.py",
    "test_an_exposed_service_has_an_external_address": "test_forward.py",
    "test_files_are_copied_to_and_from_a_process": "test_copy.py",
    "test_following_logs_stops_when_the_processes_have_exited": "test_logs.py",
    "test_logs_are_complete_and_since_omits_older_lines": "test_logs.py",
    "test_the_next_command_replaces_a_killed_supervisor": "test_supervisor.py",
    "test_the_ranks_of_a_unit_find_each_other_and_restart_and_fail_together": "test_ranks_live.py",
    "test_the_resource_use_of_running_processes_is_reported_until_the_end": "test_usage.py",
}


class TestContract(KubeContract):
    """In a shared namespace of a real cluster."""

    @pytest.fixture
    def options(self, kube_cluster):
        return {
            "kubeconfig": str(kube_cluster.kubeconfig),
            "namespace": kube_cluster.namespace,
            "expose": "NodePort",  # a test cluster may have no load balancers
        }


class InMemory(KubeContract):
    @pytest.fixture
    def kube_cluster(self, running_memory_cluster):
        return running_memory_cluster


class TestSharedNamespaceInMemory(InMemory):
    @pytest.fixture
    def options(self, kube_cluster):
        return {"kubeconfig": str(kube_cluster.kubeconfig), "namespace": kube_cluster.namespace}


class TestOwnNamespacesInMemory(InMemory):
    @pytest.fixture
    def options(self, kube_cluster):
        return {"kubeconfig": str(kube_cluster.kubeconfig)}


class TestProgramsInMemory(KubeContract):
    @pytest.fixture
    def kube_cluster(self, local_pods_cluster):
        return local_pods_cluster

    @pytest.fixture
    def options(self, kube_cluster):
        return {"kubeconfig": str(kube_cluster.kubeconfig), "namespace": kube_cluster.namespace}


PROMISES = [name for name in vars(BackendContract) if name.startswith("test_")]
for _name in (*IN_MEMORY, *IN_MEMORY_WITH_PROGRAMS, *PART_OF_OTHER_TESTS):
    # An unknown name must not be accepted silently.
    getattr(BackendContract, _name)
    setattr(TestContract, _name, None)
for _name in PROMISES:
    if _name not in IN_MEMORY:
        setattr(TestSharedNamespaceInMemory, _name, None)
        setattr(TestOwnNamespacesInMemory, _name, None)
    if _name not in IN_MEMORY_WITH_PROGRAMS:
        setattr(TestProgramsInMemory, _name, None)

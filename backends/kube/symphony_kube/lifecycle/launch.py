"""Launch an experiment: create all its objects, or leave none behind."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from symphony.cluster.matching import experiment_exists, launched_at_the_same_time
from symphony.errors import AlreadyExists, BackendError, LaunchFailed, LaunchIncomplete, NotFound
from symphony.support.causes import group_by_cause
from symphony.support.names import join_names
from symphony_kube.api import error_messages
from symphony_kube.api.client import ACCEPT_METADATA_LIST
from symphony_kube.api.errors import ApiError
from symphony_kube.api.kube_experiment import KubeExperiment
from symphony_kube.api.labels import DESCRIPTION, REMOVED_UNIT, RUN, Scope
from symphony_kube.api.listing import list_all, reduced
from symphony_kube.api.resources import (
    NAMESPACES,
    Resource,
    collection_path,
    describe,
    is_managed,
    items_of,
    labels_of,
    parse_time,
    plural_name,
    run_name_of,
    run_of,
    to_resource,
    with_run_label,
    with_run_name,
)
from symphony_kube.lifecycle import delete, wait_deleted
from symphony_kube.lifecycle.attempts import with_manifest
from symphony_kube.lifecycle.create import Creation, NameTaken, in_parallel
from symphony_kube.lifecycle.description import Description, complete_launch, launching_object
from symphony_kube.lifecycle.requirements import check_requirements
from symphony_kube.lifecycle.rights import may
from symphony_kube.lifecycle.server_check import check_replacement
from symphony_kube.lifecycle.supervisor import detached, in_cluster
from symphony_kube.lifecycle.supervisor.in_cluster import SupervisorOptions
from symphony_kube.lifecycle.supervisor.run import SupervisedRun
from symphony_kube.record.encoded_record import record_in
from symphony_kube.render.manifest import KubeManifest
from symphony_kube.render.roster import roster_unit
from symphony_kube.state import observe
from symphony_kube.state.ip_families import ALL_OF_IPV4, service_note
from symphony_kube.status import experiments

if TYPE_CHECKING:
    from symphony_kube.api.client import Api

Object = dict[str, Any]

# The options for a supervisor on the launching machine.
ON_THIS_MACHINE = SupervisorOptions()
# If an experiment has no Pods and its objects are younger than this number of seconds, another
# launch is assumed to be in progress.
LAUNCH_IN_PROGRESS_SECONDS = 60.0
# How long a launch waits for the service account in a new namespace.
SERVICE_ACCOUNT_SECONDS = 10


def launch(
    api: Api,
    manifest: KubeManifest,
    *,
    run_id: str,
    force: bool,
    supervisor: SupervisorOptions = ON_THIS_MACHINE,
    run_name: str = "",
    keeping: delete.Keeping = delete.keep_nothing,
    description: Description | None = None,
    await_code: Callable[[], None] = lambda: None,
) -> tuple[str, ...]:
    """Create an experiment's objects, each labelled with ``run_id``, and start its supervisor.

    ``run_name`` is the identifier of the run that users see. ``keeping`` keeps the record of an
    experiment that is replaced; see `delete.delete`. ``description`` is the description of the
    experiment. It is not stored if it is too large or the user may not create Secrets.
    ``await_code`` returns when the created Pods have received the code that is sent to them.

    Return when all objects have been created that do not wait for other processes. If there are
    others, the supervisor creates each of them when its start conditions are met. The result
    contains messages for the user, for example about the place where the supervisor runs.
    A running experiment with the same name is replaced if ``force`` is set and the server accepts
    all objects of the new one. Without ``force``, `AlreadyExists` is raised. A finished experiment
    is always replaced. `AlreadyExists` is also raised if another launch has used the name since
    this one examined it. Such an experiment is never replaced.

    Raises `LaunchFailed` if an object cannot be created. The message names the object, and states
    the server's reason and a fix. After any error during the creation, the objects that were
    already created are deleted. If the server becomes unreachable after the first processes were
    created, or Ctrl-C interrupts the launch, nothing is deleted, and `LaunchIncomplete` is raised.
    """
    check_requirements(api, manifest.units)
    jobs_only = all(unit.job for unit in manifest.roster)
    check = partial(check_replacement, api, manifest)
    experiment = KubeExperiment(api, manifest.scope)
    remove_previous(experiment, force=force, jobs_only=jobs_only, keeping=keeping, check=check)
    manifest = _with_run_name(manifest, run_name)
    removed: set[str] = set()
    while True:
        try:
            creation = Creation(experiment, run_id, manifest.overrides)
            return _create_or_roll_back(
                experiment, manifest, creation, supervisor, description, await_code
            )
        except _Leftovers as exc:
            # An earlier launch left objects but no Pods, so `remove_previous` did not find the
            # experiment.
            if exc.run in removed:
                raise
            removed.add(exc.run)
            delete.delete(experiment.of_run(exc.run), jobs_only=jobs_only, keeping=keeping)
        except AlreadyExists as exc:
            if not force:
                raise
            raise launched_at_the_same_time(experiment.name) from exc


def _with_run_name(manifest: KubeManifest, run_name: str) -> KubeManifest:
    """Return a manifest in which each Pod, Job and JobSet contains the identifier of the run."""
    if not run_name:
        return manifest
    units = [dict(with_run_name(body, run_name)) for body in manifest.units]
    return replace(manifest, units=tuple(units))


class _Leftovers(LaunchFailed):
    """Raised if an object from an earlier, incomplete launch has the same name as a new object.

    ``run`` is the label of that launch.
    """

    def __init__(self, message: str, run: str) -> None:
        super().__init__(message)
        self.run = run


@dataclass(frozen=True, slots=True, kw_only=True)
class _Previous:
    """An experiment with the same name, as it was when it was examined.

    ``runs`` contains the labels of its runs. There is more than one if an earlier deletion was
    interrupted. Only the objects of these runs are deleted.
    """

    runs: Collection[str]
    is_running: bool


# --- a previous experiment with the same name ---


def remove_previous(
    experiment: KubeExperiment,
    *,
    force: bool,
    jobs_only: bool,
    keeping: delete.Keeping = delete.keep_nothing,
    check: Callable[[], None] = lambda: None,
) -> None:
    """Delete a finished experiment with the same name. With ``force``, also delete a running
    experiment. ``check`` is called before a running experiment is deleted. An experiment that
    another launch creates in the meantime is not deleted.

    Raises the errors of ``check``, and `AlreadyExists` if the experiment is running and ``force``
    is not set.
    """
    if experiment.scope.shared:
        previous = _find_in_shared_namespace(experiment, with_all_kinds=force)
    else:
        previous = _find_in_own_namespace(experiment)
    if previous is None:
        return
    if previous.is_running and not force:
        raise experiment_exists(experiment.name)
    if previous.is_running:
        check()
    for run in sorted(previous.runs):
        delete.delete(experiment.of_run(run), jobs_only=jobs_only, keeping=keeping)


def _find_in_shared_namespace(
    experiment: KubeExperiment, *, with_all_kinds: bool
) -> _Previous | None:
    """Return the present experiment, or None if it has no Pods.

    With ``with_all_kinds``, an experiment of which other objects exist is also returned.
    """
    runs = delete.find_runs(experiment) if with_all_kinds else set()
    path = collection_path("Pod", experiment.namespace)
    try:
        query = {"labelSelector": experiment.selector}
        pods = list_all(experiment.api, path, reduced, query=query).items
    except ApiError as exc:
        text = error_messages.cannot("list", "pods", experiment.scope, exc)
        raise error_messages.launch_failed(text, exc) from exc
    runs.update(map(run_of, pods))
    if not runs:
        return None
    present = [pod for pod in pods if REMOVED_UNIT not in labels_of(pod)]
    observation = observe.observe(experiment.name, present, now=experiment.api.now())
    # If the Pods have finished and belong to Jobs, the Jobs can create more Pods, so the Jobs are
    # also checked.
    is_running = not pods or not observation.status.ended or _is_running(experiment)
    return _Previous(runs=runs, is_running=is_running)


def _find_in_own_namespace(experiment: KubeExperiment) -> _Previous | None:
    """Return the present experiment, or None if its namespace does not exist.

    If the namespace is being deleted, wait until it is gone.
    """
    try:
        found = experiment.api.find(f"{NAMESPACES}/{experiment.namespace}")
    except ApiError as exc:
        if exc.status == 403:
            # A user who is not allowed to read the namespace may still be allowed to create it.
            return None
        text = error_messages.cannot_create(
            "Namespace", experiment.namespace, experiment.scope, exc, verb="read"
        )
        raise error_messages.launch_failed(text, exc) from exc
    if found is None:
        return None
    if not is_managed(found, experiment.name):
        raise _foreign_namespace(experiment.scope)
    if "deletionTimestamp" in found["metadata"]:
        _wait_for_namespace(experiment, found)
        return None
    return _Previous(runs=[run_of(found)], is_running=_is_running(experiment, found))


def _foreign_namespace(scope: Scope) -> LaunchFailed:
    return LaunchFailed(
        f"namespace {scope.namespace!r} exists and was not created by symphony, so it is left "
        "alone; choose another name for the experiment, or use a shared namespace with namespace="
    )


def _wait_for_namespace(experiment: KubeExperiment, found: Object) -> None:
    """Wait until a namespace that is being deleted is gone."""
    stuck = wait_deleted.until_gone(
        experiment.api,
        NAMESPACES,
        {"fieldSelector": f"metadata.name={experiment.namespace}"},
        {found["metadata"]["uid"]},
        timeout=delete.NAMESPACE_SECONDS,
    )
    if stuck:
        raise LaunchFailed(
            f"namespace {experiment.namespace!r} is being deleted, and is still there after "
            f"{delete.NAMESPACE_SECONDS:g} s: {delete.why_namespace_remains(experiment)}; remove "
            "what holds it, or choose another name"
        )


def _is_running(experiment: KubeExperiment, other: Object | None = None) -> bool:
    """Return whether an experiment is running, based on its Pods and Jobs.

    If the experiment has neither Pods nor Jobs, the result is True only if ``other``, another of
    its objects, is so recent that a launch is assumed to be in progress.
    """
    try:
        status = experiments.experiment_status(experiment)
    except NotFound:
        status = None
    if status is not None and status.processes:
        return not status.ended
    return other is not None and not _is_old(experiment.api, other)


def _is_old(api: Api, body: Object) -> bool:
    """Return whether an object is too old to belong to a launch that is in progress."""
    created = parse_time(body["metadata"].get("creationTimestamp"))
    return created is not None and api.now() - created > LAUNCH_IN_PROGRESS_SECONDS


# --- creation ---


def _create_or_roll_back(
    experiment: KubeExperiment,
    manifest: KubeManifest,
    creation: Creation,
    supervisor: SupervisorOptions,
    description: Description | None,
    await_code: Callable[[], None],
) -> tuple[str, ...]:
    try:
        return _create(experiment, manifest, creation, supervisor, description, await_code)
    except BaseException as exc:
        error = _launch_error(experiment, exc)
        # Processes that already work are not destroyed because of a temporary problem.
        is_trouble = isinstance(error, BackendError) and error_messages.is_trouble(error)
        if creation.has_units and (is_trouble or isinstance(exc, KeyboardInterrupt)):
            raise _launch_incomplete(manifest, creation, exc) from exc
        # Before the first processes are created, Ctrl-C also rolls the launch back.
        remaining = _roll_back(experiment, creation)
        if remaining:
            raise LaunchFailed(
                f"{error or 'the launch was interrupted'}; not all created objects could be "
                f"deleted again, in namespace {experiment.namespace!r} these remain: "
                f"{_describe(remaining)}; delete {experiment.name!r} when the problem is fixed",
                trouble=is_trouble,
            ) from exc
        if error is None or error is exc:
            raise
        raise error from exc


def _launch_incomplete(
    manifest: KubeManifest, creation: Creation, exc: BaseException
) -> LaunchIncomplete:
    """Return the error for a launch whose first processes run, but whose supervisor does not."""
    name = manifest.scope.experiment
    running = [unit.name for unit in manifest.roster if not unit.starts_after]
    advice = "launch it again with force"
    description = manifest.scope.object_name(DESCRIPTION, "Secret")
    if any(resource.name == description for resource, _ in creation.created.values()):
        advice = (
            f"'symphony up' with its file continues the launch, and 'symphony delete {name}' ends "
            "it"
        )
    cause = "the launch was interrupted" if isinstance(exc, KeyboardInterrupt) else str(exc)
    return LaunchIncomplete(
        f"the supervisor of {name!r} could not be started: {cause}; nothing was deleted, "
        f"and these keep running: {join_names(running, limit=5)}; {advice}",
        trouble=True,
    )


def _launch_error(experiment: KubeExperiment, exc: BaseException) -> BaseException | None:
    """Return the error to raise for a failed launch, or None if ``exc`` is to be raised unchanged,
    for example after Ctrl-C.
    """
    if isinstance(exc, NameTaken):
        return _name_taken_error(experiment, exc)
    if isinstance(exc, (LaunchFailed, AlreadyExists)):
        return exc
    if isinstance(exc, BackendError):
        return error_messages.launch_failed(str(exc), exc)
    return None


def _name_taken_error(experiment: KubeExperiment, exc: NameTaken) -> LaunchFailed | AlreadyExists:
    """Return the error to raise for an object whose name is taken."""
    kind, name, found = exc.resource.kind, exc.resource.name, exc.found
    if found is None or not is_managed(found, experiment.name):
        if kind == "Namespace":
            return _foreign_namespace(experiment.scope)
        return LaunchFailed(error_messages.name_taken(kind, name, experiment.scope, found))
    what = describe(kind, name)
    try:
        if not _is_old(experiment.api, found) or _is_running(experiment, found):
            return experiment_exists(experiment.name)
    except BackendError as trouble:
        text = f"{what} exists already, and its state cannot be determined: {trouble}"
        return error_messages.launch_failed(text, trouble)
    return _Leftovers(
        f"{what} remains from an earlier launch of {experiment.name!r}", run_of(found)
    )


def _describe(remaining: Iterable[tuple[str, str]]) -> str:
    """Return which objects remain, and why."""
    return ", ".join(f"{group} ({group.cause})" for group in group_by_cause(remaining))


def _roll_back(experiment: KubeExperiment, creation: Creation) -> list[tuple[str, str]]:
    """Delete the created objects, and wait until they are gone. Those of another launch that has
    used the name remain.

    Return the remaining objects, each with the reason.
    """
    try:
        with detached.stopped(detached.directory_of(experiment), creation.run_id):
            remaining = creation.roll_back()
        if not remaining:
            _wait_for_roll_back(experiment, creation)
    except BackendError as exc:
        return [("objects that are not deleted yet", str(exc))]
    return remaining


def _wait_for_roll_back(experiment: KubeExperiment, creation: Creation) -> None:
    """Wait until the created namespace is gone.

    If the launch created no namespace, also delete the Pods that deleted Jobs have left behind, and
    wait until all its Pods are gone.
    """
    created = list(creation.created.values())
    for resource, body in created:
        if resource.kind == "Namespace":
            run = experiment.of_run(creation.run_id)
            delete.finish_namespace(run, body["metadata"]["uid"], immediately=True)
            return
    if any(resource.kind in ("Pod", "Job", "JobSet") for resource, _ in created):
        delete.end_pods_of_run(experiment, creation.run_id)


def _create(
    experiment: KubeExperiment,
    manifest: KubeManifest,
    creation: Creation,
    supervisor: SupervisorOptions,
    description: Description | None,
    await_code: Callable[[], None],
) -> tuple[str, ...]:
    api, scope = experiment.api, experiment.scope
    run_id = creation.run_id
    base = [
        to_resource(with_run_label(body, run_id), scope.namespace) for body in manifest.base_objects
    ]
    units = {name: with_run_label(body, run_id) for name, body in manifest.objects_by_unit.items()}

    def resource_of(unit: str) -> Resource:
        return to_resource(with_manifest(units[unit]), scope.namespace)

    steps: list[Callable[[], object]] = []
    if not scope.shared:
        # If several launches run at the same time, only one of them can create the namespace.
        namespace = creation.create(base.pop(0))
        steps.append(partial(_wait_for_service_account, experiment, namespace))
    steps += [partial(creation.create, resource) for resource in base]
    stored = None
    if description is not None:
        description = replace(description, launched=api.now())
        unit = roster_unit(manifest.roster).name
        record = record_in(units[unit]["metadata"]["annotations"])
        secret = launching_object(description, scope, record)
        stored = to_resource(with_run_label(secret, run_id), scope.namespace)
        if scope.shared:
            # Several launches that run at the same time have more than one object with the same
            # name. The first object decides which of them wins. If they created these objects in
            # different orders, each could fail because of an object of another.
            _create_if_permitted(creation, stored)
        else:
            steps.append(partial(_create_if_permitted, creation, stored))
    in_parallel(_call, steps, threads=api.connections, stopped=creation.stopped)
    with_objects = [unit for unit in manifest.roster if unit.name in units]
    first_units = [unit.name for unit in with_objects if not unit.starts_after]
    later_units = [unit.name for unit in with_objects if unit.starts_after]
    # An object that the server would reject later is reported before any process starts.
    creation.check_all(later_units, resource_of)
    if first_units:
        # The first Pod contains the roster, without which the other processes cannot be reported,
        # so this Pod is created before the others.
        first = resource_of(first_units[0])
        body = creation.create(first)
        if scope.shared:
            _check_no_other_launch(experiment, creation, first, body)
        creation.create_all(first_units[1:], resource_of)
    await_code()
    creation.has_units = True
    notes = _service_notes(manifest, creation)
    if manifest.needs_supervisor:
        notes += _supervise(api, manifest, creation, units, supervisor)
    if description is not None and stored is not None and stored.path in creation.created:
        complete_launch(experiment, description, creation.created[stored.path][1])
    return notes


def _service_notes(manifest: KubeManifest, creation: Creation) -> tuple[str, ...]:
    """Return a message if clients cannot reach servers at the addresses of Services."""
    if manifest.bind_host != ALL_OF_IPV4:
        return ()
    created = creation.created.values()
    note = service_note(body for resource, body in created if resource.kind == "Service")
    return (note,) if note else ()


def _supervise(
    api: Api,
    manifest: KubeManifest,
    creation: Creation,
    units: Mapping[str, Mapping[str, Any]],
    supervisor: SupervisorOptions,
) -> tuple[str, ...]:
    """Start the supervisor of a run, and return messages for the user."""
    # The supervisor also creates Pods again that were deleted.
    created_by_supervisor = [
        unit.name
        for unit in manifest.roster
        if unit.name in units and (unit.starts_after or unit.rank_of or unit.replaced_if_lost)
    ]
    first = units[roster_unit(manifest.roster).name]
    run = SupervisedRun(
        scope=replace(manifest.scope, run=creation.run_id),
        roster=manifest.roster,
        units={name: units[name] for name in created_by_supervisor},
        policies=manifest.policies,
        launched=api.now(),
        kubeconfig=api.kubeconfig,
        context=api.context,
        run_name=run_name_of(first),
    )
    return _start_supervisor(api, run, creation, supervisor)


def _start_supervisor(
    api: Api, run: SupervisedRun, creation: Creation, options: SupervisorOptions
) -> tuple[str, ...]:
    """Start the supervisor of a run, and return messages for the user."""
    advice = "configure supervisor_image to run it in the cluster"
    if options.image is not None:
        remote_run = replace(run, kubeconfig=None, context=None)
        try:
            return (in_cluster.start(api, remote_run, options, creation),)
        except in_cluster.CannotRunInCluster as exc:
            advice = f"it cannot run in the cluster: {exc}"
    _check_right_to_stop(api, run)
    directory = detached.directory_of(KubeExperiment(api, run.scope))
    if directory.exists and not directory.is_of(run.scope.run):
        _check_not_deleted(api, run, creation)
    pid = detached.start(directory, run)
    waits = any(unit.starts_after for unit in run.roster)
    what = "the start order is continued" if waits else "the experiment is supervised"
    return (f"{what} by process {pid} on this machine; {advice}",)


def _check_not_deleted(api: Api, run: SupervisedRun, creation: Creation) -> None:
    """Raise `LaunchFailed` if a created object was deleted, for example by a launch that replaces
    this one. Its supervisor must not be stopped.
    """
    for resource, body in creation.created.values():
        if resource.kind in ("Pod", "Job", "JobSet"):
            found = api.find(resource.path)
            if found is None or found["metadata"]["uid"] != body["metadata"]["uid"]:
                raise detached.deleted_during_launch(run)
            return


def _check_right_to_stop(api: Api, run: SupervisedRun) -> None:
    """Raise `LaunchFailed` if the policies require a right that the user does not have."""
    names = list(run.policies.names)
    if any(unit.supervised_restart for unit in run.roster):
        names.append("restart_policy")
    if not names:
        return
    kinds = ["Pod"]
    if any(unit.job or unit.job_set for unit in run.roster):
        kinds.append("Job")
    if any(unit.job_set for unit in run.roster):
        kinds.append("JobSet")
    for kind in kinds:
        if not may(KubeExperiment(api, run.scope), "patch", kind):
            raise LaunchFailed(
                f"{join_names(names)} cannot be applied in namespace "
                f"{run.scope.namespace!r}: ask for the right to patch {plural_name(kind)}, with "
                "which processes are stopped"
            )


def _call(step: Callable[[], object]) -> None:
    step()


def _create_if_permitted(creation: Creation, resource: Resource) -> None:
    try:
        creation.create(resource)
    except LaunchFailed as exc:
        cause = exc.__cause__
        if not isinstance(cause, ApiError) or not error_messages.is_forbidden(cause):
            raise


def _wait_for_service_account(experiment: KubeExperiment, namespace: Object) -> None:
    """Watch the service account in a new namespace until Pods can be created there, or until
    `SERVICE_ACCOUNT_SECONDS` have passed.

    Before Kubernetes 1.21, Pods also needed the service account's secret. Since version 1.21, every
    namespace has a label that contains its name, so the presence of this label identifies newer
    servers.
    """
    needs_secret = "kubernetes.io/metadata.name" not in labels_of(namespace)
    path = f"{NAMESPACES}/{experiment.namespace}/serviceaccounts"
    query = {"fieldSelector": "metadata.name=default"}
    try:
        events = experiment.api.watch(path, query=query, seconds=SERVICE_ACCOUNT_SECONDS)
        for event in events:
            if event["type"] == "DELETED":
                continue
            if event["object"].get("secrets") or not needs_secret:
                events.close()
                return
    except BackendError:
        # The user may lack permission to watch service accounts. In this case, the creation of Pods
        # is retried instead.
        return


def _check_no_other_launch(
    experiment: KubeExperiment, creation: Creation, first: Resource, body: Object
) -> None:
    """Raise `AlreadyExists` if another launch has already created its first unit.

    The server lists the objects as of the resource version at which this launch created its first
    unit. If two launches run at the same time in a shared namespace, the later launch therefore
    finds the first unit of the earlier launch and fails. Creation times cannot be used, because
    their one-second resolution is too coarse to show the order of creation.
    """
    query = {
        "labelSelector": experiment.selector,
        "resourceVersion": body["metadata"]["resourceVersion"],
        "resourceVersionMatch": "Exact",
    }
    try:
        answer = experiment.api.call(
            "GET", first.collection, query=query, accept=ACCEPT_METADATA_LIST
        )
    except ApiError as exc:
        if exc.status != 403:
            raise
        # The user is not allowed to list Jobs. If the name of a Job is taken, an error is reported
        # later.
        return
    for other in items_of(answer):
        is_other_run = labels_of(other).get(RUN) != creation.run_id
        if is_other_run and "deletionTimestamp" not in other["metadata"]:
            raise experiment_exists(experiment.name)

"""Many objects are listed in pages, and as little as possible is kept of each."""

import contextlib
import copy
import json
from pathlib import Path

import pytest

from symphony.status import ProcessStatus
from symphony_kube.api import listing
from symphony_kube.api.client import Api
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import READY
from symphony_kube.api.listing import list_all, reduced
from symphony_kube.state.observed_objects import PODS
from symphony_kube.state.pod_parser import parse_pod
from symphony_kube.status.details import process_details
from tests.backends.kube.histories import NAMES, read_history

MAPS = [f"m-{number}" for number in range(7)]


@pytest.fixture
def kube_cluster(memory_cluster):
    return memory_cluster


@pytest.fixture
def maps(memory_cluster, monkeypatch):
    """The path of a collection with seven objects, of which three fit on a page."""
    monkeypatch.setattr(listing, "PAGE_OBJECTS", 3)
    path = memory_cluster.path("configmaps")
    for name in MAPS:
        memory_cluster.raw.call("POST", path, {"metadata": {"name": name, "labels": {"a": "b"}}})
    return path


class RecordingApi(Api):
    """A client that records the queries of its calls, and does something after the first one."""

    def __init__(self, kubeconfig, after_first=lambda: None):
        super().__init__(kubeconfig=kubeconfig)
        self.queries = []
        self._after_first = after_first

    def call(self, *args, **options):
        self.queries.append(options["query"])
        try:
            return super().call(*args, **options)
        finally:
            if len(self.queries) == 1:
                self._after_first()


def name_of(item):
    return item["metadata"]["name"]


def test_objects_are_listed_in_pages(memory_cluster, maps):
    with contextlib.closing(RecordingApi(memory_cluster.kubeconfig)) as api:
        found = list_all(api, maps, name_of, query={"labelSelector": "a=b"})
        version = api.call("GET", maps, query={})["metadata"]["resourceVersion"]
    assert found.items == MAPS
    assert found.version == version
    *pages, _ = api.queries
    assert [query["limit"] for query in pages] == [3, 3, 3]
    assert {query["labelSelector"] for query in pages} == {"a=b"}


def test_list_begins_again_if_its_version_is_gone(memory_cluster, maps):
    def delete_first():
        memory_cluster.raw.call("DELETE", f"{maps}/m-0")

    with contextlib.closing(RecordingApi(memory_cluster.kubeconfig, delete_first)) as api:
        found = list_all(api, maps, name_of)
    assert found.items == MAPS[1:]
    assert [query["limit"] for query in api.queries] == [3, 3, None]


def test_error_of_a_complete_list_is_raised(kube_faults, maps):
    with contextlib.closing(Api(kubeconfig=kube_faults.kubeconfig)) as api:
        kube_faults.answer(410, path=maps)
        with pytest.raises(ApiError):
            list_all(api, maps, name_of)


@pytest.mark.parametrize(("annotations", "kept"), [({}, False), ({READY: "a"}, True)])
def test_managed_fields_stay_only_if_a_time_depends_on_them(annotations, kept):
    times = ["2026-11-28T03:30:13Z", "2026-11-28T03:30:15Z", None]
    entries = [{"time": time, "fieldsV1": {"f:metadata": {}}} for time in times]
    item = {"metadata": {"name": "p", "annotations": annotations, "managedFields": entries}}
    found = reduced(copy.deepcopy(item))["metadata"]["managedFields"]
    assert found == (entries if kept else [{"time": times[1]}])


@pytest.mark.parametrize("name", NAMES)
def test_reduced_pods_of_histories_show_the_same(name):
    pods = [change.body for change in read_history(name).changes if change.kind == PODS]
    check_reduced(pods)


def test_reduced_pods_show_the_same():
    for path in sorted((Path(__file__).parents[1] / "recorded").glob("*.json")):
        check_reduced(json.loads(path.read_text())["pods"])


def check_reduced(pods):
    for recorded in pods:
        pod = {**recorded, "metadata": {"namespace": "n", **recorded["metadata"]}}
        less = reduced(copy.deepcopy(pod))
        assert parse_pod(less) == parse_pod(pod)
        assert shown(less) == shown(pod)


def shown(pod):
    """Return what is shown of the processes in a Pod besides their states."""
    names = [container["name"] for container in pod["spec"]["containers"]]
    return [process_details(ProcessStatus(name=name), pod) for name in names]

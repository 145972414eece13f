"""Node pools from cluster descriptions in Terraform JSON syntax."""

from __future__ import annotations

import copy
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from symphony import NotFound, SpecError
from symphony.kube import GKEDispatcher
from symphony.model.limits import MAX_BYTES
from symphony_kube.node_pools.pools import MachineResources, Taint

TFJSON = Path(__file__).parents[1] / "tfjson"
LAB = json.loads((TFJSON / "lab.tf.json").read_text())
KIND = "google_container_node_pool"


@pytest.fixture
def lab() -> dict:
    return copy.deepcopy(LAB)


def config_of(lab: dict, pool: str) -> dict:
    return lab["resource"][KIND][pool]["node_config"]


def machine(cpu: int, memory_m: int, gpus: int = 0) -> MachineResources:
    return MachineResources(millicores=cpu * 1000, memory_m=memory_m, gpus=gpus)


def test_pools_of_a_file():
    pools = GKEDispatcher(TFJSON / "lab.tf.json").get_node_pools()
    assert [(pool.name, pool.capacity, pool.gpu_type) for pool in pools] == [
        ("small", machine(2, 7680), None),
        ("medium", machine(8, 30720), None),
        ("k80", machine(8, 53248, 1), "nvidia-tesla-k80"),
        ("v100", machine(32, 212992, 4), "nvidia-tesla-v100"),
        ("v100-team", machine(16, 106496, 2), "nvidia-tesla-v100"),
    ]
    assert pools[1].taints == (
        Taint(key="exclusive_workload", value="exclusive", effect="NoExecute"),
    )
    assert all(pool.selector == ("name", pool.name) for pool in pools)


def test_equivalent_forms_of_json():
    pools = GKEDispatcher(str(TFJSON / "forms.tf.json")).get_node_pools()
    text, listed, renamed = pools
    assert (text.name, text.capacity) == ("text", machine(4, 15360))
    assert text.taints == (Taint(key="slow", value="true", effect="PreferNoSchedule"),)
    assert (listed.capacity, listed.gpu_type) == (machine(8, 53248, 2), "nvidia-l4")
    assert listed.tolerations == [
        {"key": "bare", "operator": "Exists", "effect": "NoExecute"},
        {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"},
    ]
    assert (renamed.capacity, renamed.gpu_type, renamed.taints) == (
        machine(4, 15360, 1),
        "nvidia-tesla-t4",
        (),
    )


def test_pool_is_found_by_label_or_key():
    forms = GKEDispatcher(TFJSON / "forms.tf.json")
    assert forms.get_node_pool("renamed") is forms.get_node_pool("workers")
    assert forms.get_node_pool("renamed").selector == ("name", "workers")


def test_mapping_is_read_and_not_changed(lab):
    before = copy.deepcopy(lab)
    assert (
        GKEDispatcher(lab).get_node_pools()
        == GKEDispatcher(TFJSON / "lab.tf.json").get_node_pools()
    )
    assert lab == before


def test_allocatable_depends_on_pods_and_machine_type():
    sizes = GKEDispatcher(TFJSON / "sizes.tf.json")
    assert sizes.get_node_pool("crowded").allocatable.millicores == 3920 - 400 - 500
    assert sizes.get_node_pool("shared").allocatable.millicores == 940 - 500


def test_home_directory_in_a_path(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "lab.tf.json").write_text(json.dumps(LAB))
    assert GKEDispatcher("~/lab.tf.json").get_node_pool("small")


# --- errors ---


def label(key, value):
    def change(lab):
        config_of(lab, "v100")["labels"][key] = value

    return change


def without(key):
    def change(lab):
        del config_of(lab, "v100")["labels"][key]

    return change


def setting(key, value):
    def change(lab):
        config_of(lab, "v100")[key] = value

    return change


def taint(value):
    return setting(
        "taint",
        [
            {"key": "y", "effect": "NO_EXECUTE"},
            {"key": "x", "value": value, "effect": "NO_EXECUTE"},
        ],
    )


def machine_alone(accelerator):
    """Remove the labels about GPUs."""

    def change(lab):
        config = config_of(lab, "v100")
        del config["labels"]["gpu_type"], config["labels"]["gpu_count"]
        config["guest_accelerator"] = accelerator

    return change


def dynamic_alone(lab):
    machine_alone(None)(lab)
    setting("dynamic", {"guest_accelerator": {"for_each": [1]}})(lab)


def pool(value):
    def change(lab):
        lab["resource"][KIND]["v100"] = value

    return change


WRONG = [
    (without("name"), "node_config.labels.name is missing; add it"),
    (without("cpu"), "node_config.labels.cpu is missing; add it, for example cpu = 4 (cores)"),
    (without("memory_m"), "node_config.labels.memory_m is missing"),
    (without("gpu_type"), "node_config.labels.gpu_type is missing, and gpu_count is 4"),
    (
        without("gpu_count"),
        "node_config.labels.gpu_count is missing, and gpu_type is 'nvidia-tesla-v100'",
    ),
    (label("cpu", "many"), "node_config.labels.cpu must be a number, not 'many'"),
    (label("cpu", 0), "node_config.labels.cpu is 0: it must be greater than 0"),
    (
        label("cpu", "${var.cpu}"),
        "node_config.labels.cpu is '${var.cpu}': Terraform expressions are not evaluated",
    ),
    (label("memory_m", 0.5), "node_config.labels.memory_m is 0.5: it must be greater than 0"),
    (label("gpu_count", 1.5), "node_config.labels.gpu_count must be a whole number, not 1.5"),
    (
        label("gpu_count", 2),
        "gpu_count is 2, and node_config.guest_accelerator has a count of 4; make them equal",
    ),
    (label("name", "a pool"), "label 'name' has the value 'a pool', which is not valid"),
    (label("name", ""), "node_config.labels.name is empty"),
    (
        label("name", "small"),
        "node_config.labels.name is 'small', and node pool 'small' has the same label",
    ),
    (setting("labels", None), "node_config.labels is missing"),
    (setting("labels", []), "node_config.labels must be an object, not []"),
    (setting("taint", "team"), "node_config.taint[0] must be an object, not 'team'"),
    (
        setting("taint", {"value": "x", "effect": "NO_EXECUTE"}),
        "node_config.taint[0].key is missing",
    ),
    (setting("taint", [{"key": "x", "effect": ""}]), "node_config.taint[0].effect is missing"),
    (
        setting("taint", [{"key": "x", "effect": "NO_SCHEDUL"}]),
        "not 'NO_SCHEDUL'; did you mean 'NO_SCHEDULE'",
    ),
    (
        setting("taint", {"key": 5, "effect": "NO_EXECUTE"}),
        "node_config.taint[0].key must be text, not 5",
    ),
    (
        setting("taint", {"key": "bad key!", "effect": "NO_EXECUTE"}),
        "taint[0].key: label key 'bad key!' is not valid",
    ),
    (
        setting("taint", {"key": "${var.k}", "effect": "NO_EXECUTE"}),
        "node_config.taint[0].key is '${var.k}': Terra",
    ),
    (
        taint("${var.team}"),
        "node_config.taint[1].value is '${var.team}': Terraform expressions are not evaluated",
    ),
    (taint({"a": 1}), "node_config.taint[1].value must be text, not {'a': 1}"),
    (taint("a b"), "node_config.taint[1].value: label 'x' has the value 'a b', which is not valid"),
    (
        setting("dynamic", {"taint": {"for_each": [1]}}),
        "node_config.dynamic.taint: dynamic blocks of Terraform are",
    ),
    (
        setting("dynamic", [{"taint": [{"for_each": [1]}]}]),
        "node_config.dynamic.taint: dynamic blocks of Terraform are",
    ),
    (
        dynamic_alone,
        "node_config.dynamic.guest_accelerator: dynamic blocks of Terraform are not evaluated "
        "here; write",
    ),
    (setting("dynamic", 3), "node_config.dynamic must be an object, not 3"),
    (
        pool({"dynamic": {"node_config": {}}}),
        "dynamic.node_config: dynamic blocks of Terraform are not evaluated",
    ),
    (
        label("gpu_type", "${var.gpu}"),
        "node_config.labels.gpu_type is '${var.gpu}': Terraform expressions are not",
    ),
    (
        label("gpu_type", "two words"),
        "node_config.labels.gpu_type: label 'gpu_type' has the value",
    ),
    (label("gpu_type", ["a"]), "node_config.labels.gpu_type must be text, not ['a']"),
    (
        label("gpu_type", "k80"),
        "gpu_type is 'k80', and node_config.guest_accelerator.type is 'nvidia-tesla-v100'; mak",
    ),
    (
        machine_alone({"count": 1, "type": "${var.gpu}"}),
        "node_config.guest_accelerator.type is '${var.gpu}': Terra",
    ),
    (
        machine_alone({"count": "${var.n}", "type": "x"}),
        "node_config.guest_accelerator.count is '${var.n}': Terraf",
    ),
    (
        setting("guest_accelerator", "v100"),
        "node_config.guest_accelerator must be an object, not 'v100'",
    ),
    (pool(None), "it is missing"),
    (pool({}), "node_config is missing"),
    (pool([{}, {}]), "it must be one object, not a list of 2"),
    (pool({"node_config": []}), "node_config must be one object, not a list of 0"),
    (pool({"node_config": "big"}), "node_config must be an object, not 'big'"),
]


@pytest.mark.parametrize(("change", "message"), WRONG, ids=[message for _, message in WRONG])
def test_error_names_file_pool_and_field(lab, tmp_path, change, message):
    change(lab)
    file = tmp_path / "wrong.tf.json"
    file.write_text(json.dumps(lab))
    with pytest.raises(SpecError) as caught:
        GKEDispatcher(file)
    message = str(caught.value)
    assert message.startswith(f"{file}: node pool 'v100': ")
    assert message in message
    assert "\n" not in message
    with pytest.raises(SpecError, match="^the description of the cluster: node pool 'v100"):
        GKEDispatcher(lab)


@pytest.mark.parametrize("kind", ["v100", "V100", "tesla-v100", "nvidia_tesla_v100"])
def test_short_name_of_a_gpu_type(lab, kind):
    label("gpu_type", kind)(lab)
    assert GKEDispatcher(lab).get_node_pool("v100").gpu_type == kind


@pytest.mark.parametrize(
    "accelerator", [{"count": "${var.n}", "type": "${var.gpu}"}, {"count": 4, "type": "${var.gpu}"}]
)
def test_labels_replace_expressions(lab, accelerator):
    setting("guest_accelerator", accelerator)(lab)
    assert GKEDispatcher(lab).get_node_pool("v100").gpu_type == "nvidia-tesla-v100"


def test_other_dynamic_blocks_are_ignored(lab):
    setting("dynamic", {"metadata": {"for_each": []}, "guest_accelerator": {}})(
        lab
    )  # the labels have the GPUs
    assert GKEDispatcher(lab).get_node_pool("v100")


NO_POOLS = [
    ([], "a cluster description must be an object, not []"),
    ({}, "no node pools: it has no resource.google_container_node_pool; its resources are none"),
    ({"resource": {"google_container_cluster": {}}}, "no resource.google_container_node_pool"),
    (
        {"resource": {"google_container_nodepool": {}}},
        "; its resources are google_container_nodepool",
    ),
    ({"resource": {KIND: {}}}, "no resource.google_container_node_pool"),
    ({"resource": "none"}, "resource must be an object, not 'none'"),
    ({"resource": {KIND: 3}}, "resource.google_container_node_pool must be an object, not 3"),
    (
        {"resource": [{KIND: {"a": {}}}, {KIND: {"a": {}}}]},
        "resource.google_container_node_pool has two node pools 'a'",
    ),
    (
        {"resource": {KIND: [{"a": {}}, {"a": {}}]}},
        "resource.google_container_node_pool has two node pools 'a'",
    ),
]


@pytest.mark.parametrize(
    ("content", "message"), NO_POOLS, ids=[json.dumps(content) for content, _ in NO_POOLS]
)
def test_description_without_pools(tmp_path, content, message):
    file = tmp_path / "empty.tf.json"
    file.write_text(json.dumps(content))
    with pytest.raises(SpecError) as caught:
        GKEDispatcher(file)
    assert str(caught.value).startswith(f"{file}: ")
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        (
            "a.tf",
            b'resource "google_container_node_pool" "a" {\n}\n',
            "a.tf:1:1: not JSON: .*use Terraform JSON syntax",
        ),
        ("a.json", b"{", "a.json:1:2: not JSON: "),
        ("a.json", b"", "a.json:1:1: not JSON: "),
        ("a.json", b"\xff{}", r"a.json: not UTF-8 text \(byte 0\)"),
        (
            "a.json",
            b'{"resource": {}, "resource": {}}',
            "a.json: duplicate key 'resource'",
        ),
        ("a.json", b"9" * 5000, "a.json: a number with more than 300 digits"),
        ("a.json", b"[" * 200_000, "a.json: nested more than 100 levels deep"),
        ("a.json", b" " * (MAX_BYTES + 1), "a.json: larger than 8 MiB, which is the maximum size"),
    ],
)
def test_file_that_is_not_json(tmp_path, name, content, message):
    (tmp_path / name).write_bytes(content)
    with pytest.raises(SpecError, match=message) as caught:
        GKEDispatcher(tmp_path / name)
    assert "\n" not in str(caught.value)


def test_file_that_cannot_be_read(tmp_path):
    with pytest.raises(
        NotFound, match="none.tf.json: no such file; it must be the cluster description"
    ):
        GKEDispatcher(tmp_path / "none.tf.json")
    with pytest.raises(SpecError, match="cannot be read: Is a directory"):
        GKEDispatcher(tmp_path)
    with pytest.raises(
        SpecError, match=r"tf_json must be the path of a \*.tf.json file .*, not None"
    ):
        GKEDispatcher(None)


junk = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3)
    ),
    max_leaves=8,
)
FIELDS = [
    "labels",
    "taint",
    "guest_accelerator",
    "machine_type",
    "name",
    "cpu",
    "memory_m",
    "gpu_type",
    "gpu_count",
]


@given(st.sampled_from(FIELDS), junk)
def test_any_value_is_accepted_or_refused_in_one_line(field, value):
    lab = copy.deepcopy(LAB)
    config = config_of(lab, "v100")
    (config if field in config else config["labels"])[field] = value
    message = ""
    try:
        GKEDispatcher(lab)
    except SpecError as exc:
        message = str(exc)
    assert not message or message.startswith("the description of the cluster: node pool 'v100")
    assert "\n" not in message

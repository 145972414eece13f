import struct

import pytest

from devcluster import dns
from devcluster.api import ApiError


def question(name, kind=1, flags=0x0100):
    labels = b"".join(bytes([len(part)]) + part.encode() for part in name.split("."))
    header = struct.pack("!HHHHHH", 0xBEEF, flags, 1, 0, 0, 0)
    return header + labels + b"\0" + struct.pack("!HH", kind, 1)


def code(reply):
    return reply[3] & 0xF


def count(reply):
    return struct.unpack("!H", reply[6:8])[0]


def test_address_of_a_service():
    reply = dns.answer(question("Svc.ns.svc.cluster.LOCAL"), lambda labels: ["10.96.0.7"])
    assert reply[:2] == b"\xbe\xef"
    assert (code(reply), count(reply)) == (0, 1)
    assert reply.endswith(bytes([10, 96, 0, 7]))


def test_ipv6_address_of_a_service():
    query = question("svc.ns.svc.cluster.local", kind=28)
    reply = dns.answer(query, lambda labels: ["fd00:96::7"])
    assert (code(reply), count(reply)) == (0, 1)
    assert reply.endswith(bytes.fromhex("0010fd000096000000000000000000000007"))


def test_names_are_resolved_in_lower_case():
    resolved = []
    dns.answer(question("Svc.NS.svc.cluster.local"), resolved.append)
    assert resolved == [("svc", "ns", "svc", "cluster", "local")]


def test_unknown_name_is_nxdomain():
    reply = dns.answer(question("nothing.example"), lambda labels: None)
    assert (code(reply), count(reply)) == (3, 0)


def test_ipv6_query_for_a_service_is_empty():
    reply = dns.answer(question("svc.ns.svc.cluster.local", kind=28), lambda labels: ["10.96.0.7"])
    assert (code(reply), count(reply)) == (0, 0)


@pytest.mark.parametrize("error", [ApiError(403, "no"), ConnectionError("gone")])
def test_failing_api_server_is_servfail(error):
    def resolve(labels):
        raise error

    assert code(dns.answer(question("svc.ns.svc.cluster.local"), resolve)) == 2


@pytest.mark.parametrize(
    "message",
    [b"", b"\0" * 11, question("a.b", flags=0x8000)],
    ids=["empty", "too short", "a response"],
)
def test_message_that_is_not_a_query_is_ignored(message):
    assert dns.answer(message, pytest.fail) is None


@pytest.mark.parametrize(
    "message",
    [question("a.b")[:-3], question("a.b")[:14], b"\0" * 12 + b"\xc0" + b"a" * 192 + b"\0\0\1\0\1"],
    ids=["truncated", "truncated name", "compressed name"],
)
def test_malformed_query_is_formerr(message):
    assert code(dns.answer(message, pytest.fail)) == 1


def test_unknown_operation_is_notimp():
    assert code(dns.answer(question("a.b", flags=0x2800), pytest.fail)) == 4


OBJECTS = {
    "/api/v1/namespaces/ns/services/svc": {"spec": {"clusterIP": "10.96.0.7"}},
    "/api/v1/namespaces/ns/services/headless": {"spec": {"clusterIP": "None"}},
    "/api/v1/namespaces/ns/services/empty": {"spec": {"clusterIP": "None"}},
    "/api/v1/namespaces/ns/endpoints/headless": {
        "subsets": [{"addresses": [{"ip": "10.244.1.2", "hostname": "a"}, {"ip": "10.244.1.3"}]}]
    },
}


@pytest.mark.parametrize(
    ("name", "addresses"),
    [
        ("svc.ns.svc.cluster.local", ["10.96.0.7"]),
        ("other.ns.svc.cluster.local", None),
        ("svc.other.svc.cluster.local", None),
        ("pod.svc.ns.svc.cluster.local", None),
        ("headless.ns.svc.cluster.local", ["10.244.1.2", "10.244.1.3"]),
        ("a.headless.ns.svc.cluster.local", ["10.244.1.2"]),
        ("b.headless.ns.svc.cluster.local", None),
        ("empty.ns.svc.cluster.local", []),
        ("ns.svc.cluster.local", None),
        ("svc.cluster.local", None),
        ("svc.ns.svc.cluster.example", None),
        ("example.com", None),
    ],
)
def test_lookup(name, addresses):
    assert dns.lookup(tuple(name.split(".")), OBJECTS.get) == addresses

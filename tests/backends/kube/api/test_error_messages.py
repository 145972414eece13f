"""What is said about objects that the server refuses, with the words of Kubernetes 1.37."""

import pytest

from symphony_kube.api.error_messages import cannot_create
from symphony_kube.api.errors import ApiError
from symphony_kube.api.labels import Scope

SCOPE = Scope(experiment="e", namespace="team", shared=True)
POLICY = "ValidatingAdmissionPolicy 'labels' with binding 'labels' denied request: label team"
SECURITY = (
    'pods "e-p" is forbidden: violates PodSecurity "restricted:latest": '
    "allowPrivilegeEscalation != false, runAsNonRoot != true"
)
OTHER_SECURITY = (
    'pods "e-p" is forbidden: violates PodSecurity "baseline:latest": hostPath volumes (volume "v")'
)
RIGHTS = 'pods is forbidden: User "u" cannot create resource "pods" in API group ""'


@pytest.mark.parametrize(
    ("status", "detail", "hint"),
    [
        (
            403,
            'pods "e-p" is forbidden: failed quota: q: must specify requests.cpu for: p',
            "set resource_request and resource_limit of each process",
        ),
        (
            403,
            'pods "e-p" is forbidden: exceeded quota: q, requested: pods=1, used: pods=2',
            "delete objects that are no longer needed, request less, or ask for a higher quota",
        ),
        (403, f'pods "e-p" is forbidden: {POLICY}', ""),
        (403, SECURITY, "set the option security to restricted"),
        (403, OTHER_SECURITY, ""),
        (
            403,
            RIGHTS,
            "ask for the right to create pods in namespace 'team', or use jobs_only=True if you "
            "may create Jobs",
        ),
        (
            403,
            'namespace "team" is forbidden because it is being terminated',
            "wait until it is deleted, or choose another name or namespace",
        ),
        (
            404,
            'namespaces "team" not found',
            "create namespace 'team', or choose another with namespace=",
        ),
        (
            413,
            "Request entity too large: limit is 3145728",
            "it is too large: put files on a volume",
        ),
    ],
)
def test_refused_pod(status, detail, hint):
    message = cannot_create("Pod", "e-p", SCOPE, ApiError(detail, status=status))
    expected = f"cannot create pod 'e-p' in namespace 'team': {detail}"
    assert message == (f"{expected}; {hint}" if hint else expected)

"""Prepare the cluster of a kubeconfig for the tests, and print the name of the test image.

Use: python -m kubetest.own_cluster KUBECONFIG
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from kubetest import clusters
from kubetest.clusters import NoCluster

_KIND_CONTEXT_PREFIX = "kind-"


def main() -> int:
    """Print the version of the server to standard error, and the image to standard output.

    Return the exit code, which is 1 after an error.
    """
    kubeconfig = Path(sys.argv[1])
    try:
        server = server_of(kubeconfig)
        image = os.environ.get("SYMPHONY_TEST_IMAGE") or loaded_image(kubeconfig)
    except NoCluster as exc:
        print(f"scripts/test: {exc}", file=sys.stderr)
        return 1
    print(
        f"Kubernetes {server}, image {image}; "
        "the tests create only namespaces that begin with symphony-test-",
        file=sys.stderr,
    )
    print(image)
    return 0


def server_of(kubeconfig: Path) -> str:
    """Return the version and the address of an API server, such as ``v1.37.2 at https://...``.

    Raises NoCluster if there is no kubeconfig, or if the server does not answer.
    """
    import yaml
    from kubernetes.config import ConfigException
    from urllib3.exceptions import HTTPError

    from kubetest.rawapi import ApiError, RawApi, access

    if not kubeconfig.is_file():
        raise NoCluster(f"there is no kubeconfig {kubeconfig}; set KUBECONFIG to the path of one")
    try:
        server = access(kubeconfig)
        version = RawApi(server).call("GET", "/version")
    except (ConfigException, TypeError, yaml.YAMLError) as exc:
        raise NoCluster(f"{kubeconfig} is not a usable kubeconfig: {exc}") from exc
    except (HTTPError, ApiError, OSError) as exc:
        raise NoCluster(f"the API server of {kubeconfig} does not answer: {exc}") from exc
    return f"{version['gitVersion']} at {server.host}"


def loaded_image(kubeconfig: Path) -> str:
    """Build the test image, load it into the kind cluster of a kubeconfig, and return its name.

    Raises NoCluster if the cluster was not created by kind, or if a command fails.
    """
    import yaml

    context = yaml.safe_load(kubeconfig.read_text()).get("current-context") or ""
    engine = clusters.kind_engine()
    if not context.startswith(_KIND_CONTEXT_PREFIX) or engine is None:
        raise NoCluster(
            f"the context {context!r} is not one of kind, or kind or its container engine is "
            "missing: set SYMPHONY_TEST_IMAGE to an image with Python, pyzmq and symphony that "
            f"the cluster can pull; build one with {clusters.DOCKERFILE}"
        )
    return clusters.load_kind_image(context.removeprefix(_KIND_CONTEXT_PREFIX), engine)


if __name__ == "__main__":
    sys.exit(main())

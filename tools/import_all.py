"""Import the modules of symphony and its installed backends, and report the number of modules.

If a module cannot be imported, the program exits with a traceback. The packages that only the tests
need cannot be imported, because no extra of symphony installs them.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import pkgutil
import sys

TEST_PACKAGES = ("hypothesis", "jsonschema", "pydot", "pytest")


def main() -> None:
    """Import all modules except those that need pytest and those that are programs."""
    sys.modules.update(dict.fromkeys(TEST_PACKAGES))
    backends = importlib.metadata.entry_points(group="symphony.backends")
    packages = sorted({"symphony", *(backend.value.split(".")[0] for backend in backends)})
    count = 0
    for package in packages:
        root = importlib.import_module(package)
        for module in pkgutil.walk_packages(root.__path__, f"{package}."):
            if module.name.startswith("symphony.testing") or module.name.endswith("__main__"):
                continue
            importlib.import_module(module.name)
            count += 1
    print(f"imported {count} modules of {', '.join(packages)}")


if __name__ == "__main__":
    main()

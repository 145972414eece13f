"""The core under the import path that programs rely on."""

from symphony.addresses import AddressBook
from symphony.cluster import Cluster

__all__ = ["AddressBook", "Cluster"]

"""Secrets and ConfigMaps with the files of an experiment."""

"""Executing decisions: processes are started, tested for readiness and stopped."""

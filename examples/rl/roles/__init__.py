"""The programs: one module for each role, started as ``python3 -m roles.<role>``, and their shared
modules.

They need Python, symphony and pyzmq. No program knows where it runs, because every address is in
the environment.
"""

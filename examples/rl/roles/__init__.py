"""The programs: one module for each role, started as ``python3 -m roles.<role>``, and their shared
modules.

The programs need Python, symphony and pyzmq. They do not depend on where they run, because they
read every address from environment variables.
"""

"""The program: one module for each role, started as ``python3 -m roles.<role>``, and what they share.

Beside Python it needs symphony and pyzmq. Nothing here knows where it runs: every address is in the environment.
"""

"""The command line."""


def main() -> int:
    """Run ``symphony``."""
    return 0

"""Warnings in the responses of an API server."""

from symphony_kube.api.server_warnings import MAX_WARNINGS, ServerWarnings


def test_warnings_are_reported_once():
    warnings = ServerWarnings()
    warnings.note(None)
    warnings.note('299 - "spec.x is deprecated"')
    warnings.note('299 - "spec.x is deprecated", 299 kube "would violate \\"restricted\\":\\n p"')
    expected = ("spec.x is deprecated", 'would violate "restricted":n p')
    assert warnings.take() == expected
    assert warnings.take() == ()
    for number in range(2 * MAX_WARNINGS):
        warnings.note(f'299 - "{number}"')
    assert len(warnings.take()) == MAX_WARNINGS


def test_other_warnings_are_ignored():
    warnings = ServerWarnings()
    warnings.note('110 anderson/1.3.37 "Response is stale"')
    assert warnings.take() == ()

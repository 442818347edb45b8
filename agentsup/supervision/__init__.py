"""The general supervisor, in the manner of OTP: specs as data, one pure decision, bounded stops.

Public: `ChildSpec`, `ChildContext`, `Grace`, `Restart`, `RestartPolicy`, `Pool`, `Spine`,
`Board`, `ChildStatus`, `Watchdog`, and the decision itself in `policy`.
"""

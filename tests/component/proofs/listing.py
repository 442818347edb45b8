"""All proofs, and ``docs/proofs.md`` written from them: ``python -m tests.component.proofs.listing``.

``test_proofs.py`` fails while the file differs from what ``document()`` returns.
"""

from __future__ import annotations

from pathlib import Path

from tests.component.proofs import (
    accepted,
    approvals,
    browsers,
    budgets,
    calls,
    edits,
    gate,
    health,
    homes,
    isolation,
    mail,
    once,
    order,
    persons,
    providers,
    questions,
    roles,
    stops,
    storms,
    times,
    waiting,
)
from tests.component.proofs.proof import Proof

PROOFS: tuple[Proof, ...] = (
    *accepted.PROOFS,
    *once.PROOFS,
    *mail.PROOFS,
    *isolation.PROOFS,
    *providers.PROOFS,
    *edits.PROOFS,
    *stops.PROOFS,
    *storms.PROOFS,
    *times.PROOFS,
    *budgets.PROOFS,
    *gate.PROOFS,
    *persons.PROOFS,
    *roles.PROOFS,
    *homes.PROOFS,
    *browsers.PROOFS,
    *questions.PROOFS,
    *calls.PROOFS,
    *waiting.PROOFS,
    *approvals.PROOFS,
    *health.PROOFS,
    *order.PROOFS,
)

TARGET = Path(__file__).parents[3] / "docs" / "proofs.md"
HEAD = """\
# Proofs

Written by `python -m tests.component.proofs.listing`; edit the proofs, not this file. Claims that
tests outside `tests/component/proofs` hold are in [tested claims](tested_claims.md).

Each [promise](architecture.md#promises) has a test that tries to break it, and each test has been
seen to fail: a listed patch takes the mechanism out, and the run must then end in the proof's own
assertion, in no other error.

`tests/component/proofs` runs a whole daemon, wired by its own composition root, in virtual time
(inline store, no listener) or, where sockets, threads or child processes matter, in real time.
`make nightly` runs every proof once as it is and once without its mechanism. To see one pair:

```
.venv/bin/python -m pytest tests/component/proofs -k "stops_whole or late" -v
```

A new proof is a function in one of the modules there that raises `Broken`, with a
`Removal`.

| promise | proof | removed mechanism |
|---|---|---|
"""


def document(proofs: tuple[Proof, ...]) -> str:
    """Return the whole file: one row for each proof with its removal, by promise."""
    rows = [
        f"| {proof.promise} | {proof.name} | {proof.removal.name} |\n"
        for proof in sorted(proofs, key=lambda proof: proof.promise)
    ]
    return HEAD + "".join(rows)


if __name__ == "__main__":
    TARGET.write_text(document(PROOFS), encoding="utf-8")

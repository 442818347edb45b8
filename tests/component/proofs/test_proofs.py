"""Each promise at work, and each seen broken once its mechanism is taken out.

A proof that stays green without the mechanism proves nothing, so every removal must end in the
proof's own `Broken`, and in no other error. docs/proofs.md lists the pairs.
"""

from pathlib import Path

import pytest

from tests.component.proofs import (
    accepted,
    background,
    browsers,
    budgets,
    calls,
    edits,
    gate,
    handing,
    health,
    held,
    homes,
    isolation,
    leave,
    mail,
    once,
    order,
    persons,
    providers,
    questions,
    rooms,
    servers,
    stops,
    storms,
    times,
    traces,
    waiting,
)
from tests.component.proofs.proof import Broken, Proof, Removal, conduct

PROOFS: tuple[Proof, ...] = (
    *accepted.PROOFS,
    *once.PROOFS,
    *mail.PROOFS,
    *handing.PROOFS,
    *rooms.PROOFS,
    *isolation.PROOFS,
    *providers.PROOFS,
    *servers.PROOFS,
    *traces.PROOFS,
    *edits.PROOFS,
    *stops.PROOFS,
    *storms.PROOFS,
    *times.PROOFS,
    *budgets.PROOFS,
    *gate.PROOFS,
    *persons.PROOFS,
    *homes.PROOFS,
    *browsers.PROOFS,
    *questions.PROOFS,
    *calls.PROOFS,
    *waiting.PROOFS,
    *held.PROOFS,
    *leave.PROOFS,
    *health.PROOFS,
    *order.PROOFS,
    *background.PROOFS,
)
MAIN = {proof.promise: proof.removals[0] for proof in reversed(PROOFS)}
"""The mechanism of a promise that its first proof takes out first: `make test` takes out no others."""
PAIRS = [
    pytest.param(
        proof,
        removal,
        id=f"{proof.promise}-{proof.name}: {removal.name}",
        marks=[] if removal is MAIN[proof.promise] else [pytest.mark.nightly],
    )
    for proof in PROOFS
    for removal in proof.removals
]


@pytest.mark.parametrize("proof", PROOFS, ids=lambda p: f"{p.promise}-{p.name}")
def test_the_promise_holds(proof: Proof, tmp_path: Path) -> None:
    conduct(proof, tmp_path)


@pytest.mark.parametrize("proof, removal", PAIRS)
def test_it_is_seen_broken_without_its_mechanism(
    proof: Proof, removal: Removal, tmp_path: Path
) -> None:
    with pytest.raises(Broken) as caught:
        conduct(proof, tmp_path, removal)
    assert caught.value.promise == proof.promise


def test_every_promise_has_a_proof() -> None:
    assert {proof.promise for proof in PROOFS} >= {f"P{number}" for number in range(1, 10)}
    assert all(proof.removals for proof in PROOFS)
    listed = (Path(__file__).parents[3] / "docs" / "proofs.md").read_text(encoding="utf-8")
    missing = [
        f"{proof.name}: {removal.name}"
        for proof in PROOFS
        for removal in proof.removals
        if f"{proof.name} | {removal.name}" not in listed
    ]
    assert not missing, f"docs/proofs.md does not list: {missing}"

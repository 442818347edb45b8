"""Each promise at work, and each seen broken once its mechanism is taken out.

A proof that stays green without the mechanism proves nothing, so its removal must end in the
proof's own ``Broken``, and in no other error. docs/proofs.md, which ``listing``
writes, has the pairs.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.component.proofs.listing import PROOFS, TARGET, document
from tests.component.proofs.proof import Broken, Proof, conduct

# Some are whole histories, and begin before what takes less. Longer ones have no limit of their own.
pytestmark = pytest.mark.timeout(0 if "TEST_FLOW_SEEDS" in os.environ else 180)

MAIN = {proof.promise: proof for proof in reversed(PROOFS)}
"""The first proof of each promise; ``make test`` takes out the mechanisms of no others."""
PAIRS = [
    pytest.param(
        proof,
        id=f"{proof.promise}-{proof.name}: {proof.removal.name}",
        marks=[] if proof is MAIN[proof.promise] else [pytest.mark.nightly],
    )
    for proof in PROOFS
]


@pytest.mark.parametrize("proof", PROOFS, ids=lambda p: f"{p.promise}-{p.name}")
def test_the_promise_holds(proof: Proof, tmp_path: Path) -> None:
    conduct(proof, tmp_path)


@pytest.mark.parametrize("proof", PAIRS)
def test_it_is_seen_broken_without_its_mechanism(proof: Proof, tmp_path: Path) -> None:
    with pytest.raises(Broken) as caught:
        conduct(proof, tmp_path, proof.removal)
    assert caught.value.promise == proof.promise


def test_every_promise_has_a_proof() -> None:
    assert {proof.promise for proof in PROOFS} >= {f"P{number}" for number in range(1, 10)}


def test_the_document_is_written_from_the_proofs() -> None:
    assert TARGET.read_text(encoding="utf-8") == document(PROOFS), (
        "run `python -m tests.component.proofs.listing`"
    )

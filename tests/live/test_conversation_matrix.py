"""The conversation of ``tests/process/test_conversation.py``, unchanged, over a real homeserver."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.process.conversation.matrix import matrix_stage
from tests.process.test_conversation import RULES, converse
from tests.support.synapse import Synapse


@pytest.mark.smoke
@pytest.mark.timeout(120)
async def test_the_same_conversation_over_matrix(synapse: Synapse, tmp_path: Path) -> None:
    async with matrix_stage(tmp_path, RULES, synapse) as stage:
        await converse(stage)

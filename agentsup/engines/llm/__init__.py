"""The language model engine: any OpenAI-compatible endpoint, or Anthropic.

Importing this package is cheap. The model library is imported by the first session, in a thread,
because that takes more than a second. It is the only place in agentsup that knows that library.
"""

from __future__ import annotations

from agentsup.engines.llm.engine import LlmEngine

__all__ = ["LlmEngine"]

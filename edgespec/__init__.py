"""Run a language model larger than the memory you give it: a resident drafter, a paged target, exact text."""

from __future__ import annotations

import logging

from edgespec.runtime import Runtime, load
from edgespec.types import Chunk, Completion, MemoryPlan, SamplingParams, Statistics

__all__ = ["Chunk", "Completion", "MemoryPlan", "Runtime", "SamplingParams", "Statistics", "__version__", "load"]

__version__ = "0.1.0"
logging.getLogger(__name__).addHandler(logging.NullHandler())

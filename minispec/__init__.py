"""minispec: speculative decoding, small enough to read and exact enough to cite."""

from .decoding import (Generation, Sampling, SeededDice, TokenTree, Trace, generate, speculate)
from .model.cache import KVCache
from .model.gpt import GPT, GPTConfig
from .model.pair import load_pair

__version__ = "0.1.0"
__all__ = ["GPT", "GPTConfig", "Generation", "KVCache", "Sampling", "SeededDice", "TokenTree", "Trace", "generate",
           "load_pair", "speculate"]

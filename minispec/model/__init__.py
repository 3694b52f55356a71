"""What is sped up: the GPT, its cache, and the files its weights come from."""

from .cache import KVCache
from .gpt import GPT, GPTConfig
from .gpt2 import export_gpt2, load_gpt2, load_gpt2_tokenizer
from .pair import load_model, load_pair, save_model

__all__ = ["GPT", "GPTConfig", "KVCache", "export_gpt2", "load_gpt2", "load_gpt2_tokenizer", "load_model", "load_pair",
           "save_model"]

"""One pass through the GPT, from token ids to logits, with the shape of what flows and of what the cache holds."""

from __future__ import annotations

from typing import NamedTuple

from ..model.gpt import GPTConfig
from . import svg as draw


class Stage(NamedTuple):
    name: str
    shape: tuple[int, ...]                               # of what leaves it
    words: str


def stages(config: GPTConfig, new: int) -> list[Stage]:
    """What a pass over `new` tokens of one sequence goes through."""
    width, layers = config.n_embd, config.n_layer
    return [Stage("tokens", (1, new), "ids"), Stage("embed", (1, new, width), "token + position vector"),
            Stage(f"{layers} layers", (1, new, width), "attention, then MLP"),
            Stage("unembed", (1, new, config.vocab_size), "a score a token")]


def cache_shape(config: GPTConfig, length: int) -> tuple[int, ...]:
    """Of the keys, and of the values, that one layer attends to: (B, H, S, D)."""
    return (1, config.n_head, length, config.head_dim)


def pass_flow(config: GPTConfig, cached: int, new: int = 1) -> str:
    """A pass over `new` tokens with `cached` positions in the cache: four boxes, and the cache below the layers."""
    wide, gap, y = 200.0, 40.0, 56.0
    own, body = draw.ROLES["target"], [draw.text(10, 32, f"a pass over {new} new token{'s' * (new > 1)}, "
                                                         f"{cached} in the cache", 20, bold=True)]
    for k, stage in enumerate(stages(config, new)):
        x = 10 + k * (wide + gap)
        body += [draw.rect(x, y, wide, 104, own.tint, own.colour, width=2, round_=6, title=stage.name),
                 draw.text(x + wide / 2, y + 30, stage.name, 20, "middle", bold=True),
                 draw.text(x + wide / 2, y + 58, str(stage.shape), 16, "middle", mono=True),
                 draw.text(x + wide / 2, y + 86, draw.fit(stage.words, wide - 8, 14), 14, "middle")]
        if k:
            body += arrow(x - gap + 4, x - 6, y + 52)
    x, low = 10 + 2 * (wide + gap), y + 160
    body += [draw.line(x + 60, y + 108, x + 60, low - 6, draw.INK, 2), draw.head(x + 60, low - 4),
             draw.text(x + 48, low - 24, "writes", 15, "end"),
             draw.line(x + 140, low - 4, x + 140, y + 122, draw.INK, 2),
             draw.path([(x + 132, y + 122), (x + 148, y + 122), (x + 140, y + 108)], draw.INK, 1, fill=draw.INK),
             draw.text(x + 152, low - 24, "reads all", 15)]
    body += slots(cached, new, low)
    words = f"keys and values of every layer, each {cache_shape(config, cached + new)}"
    body.append(draw.text(draw.WIDTH - 10, low + 74, words, 16, "end"))
    shapes = "; ".join(f"{stage.name} {stage.shape}" for stage in stages(config, new))
    return draw.svg(low + 92, body, "One pass", f"One pass, shape by shape: {shapes}. {words}.")


def arrow(x1: float, x2: float, y: float) -> list[str]:
    """Level, to the right."""
    return [draw.line(x1, y, x2 - 10, y, draw.INK, 2),
            draw.path([(x2 - 12, y - 7), (x2 - 12, y + 7), (x2, y)], draw.INK, 1, fill=draw.INK)]


def slots(cached: int, new: int, y: float) -> list[str]:
    """The cache as a row of slots: old ones as one box where there are many, then the new ones with a plus."""
    own, parts = draw.ROLES["target"], [draw.text(10, y + 28, "KV cache", bold=True)]
    left, wide = 110.0, 840.0
    share = min(0.5, 0.12 * new)
    cut = left + wide * (1 - share) if cached else left
    if cached:
        parts += [draw.rect(left, y, cut - left - 3, 44, draw.PAPER, own.colour, title="cached"),
                  draw.text((left + cut) / 2, y + 27, f"slots 0 to {cached - 1}: computed in earlier passes", 16, "middle")]
    step = (left + wide - cut) / new
    for k in range(new):
        x = cut + k * step
        parts += [draw.rect(x, y, step - 3, 44, own.tint, own.colour, width=2, title=f"new slot {cached + k}"),
                  draw.text(x + step / 2, y + 27, draw.fit(f"+ {cached + k}", step - 6), 16, "middle", bold=True)]
    return parts

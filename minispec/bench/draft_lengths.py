"""Draft lengths, fixed and adaptive, compared by counting: how many tokens for the time of a one-token target pass?

Proposed and emitted tokens are counted, and priced at a measured c and v(k) (analysis/oracle.py). Nothing is timed
while they decode, so a busy machine blurs only those prices. The last column says how much of the oracle's rate a
policy reaches; the oracle is read off the longest fixed length.

    python -m minispec.bench.draft_lengths --workload code --temperature 1 --head acceptance-head.safetensors
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence

from ..analysis.metrics import metrics
from ..analysis.oracle import oracle_tokens_per_cost, tokens_per_cost
from ..decoding import Drafter, Sampling, SeededDice, speculate
from ..drafters import AcceptanceHead, AdaptiveDrafter, LMDrafter
from ..drafters.adaptive import Payoff, Steered, Stopping, Survival, Threshold, confidence, entropy_bound
from ..model.gpt import GPT
from ..model.pair import load_pair
from .timing import Passes, measure_passes
from .workloads import prompts

FIXED = (1, 2, 3, 4, 5, 6, 8, 12)
LONGEST = 16                                             # of the adaptive lengths, and of the oracle's rounds


def stopping_rules(passes: Passes, head: AcceptanceHead | None = None) -> dict[str, Stopping]:
    """The rules to compare, by name; those with a learned estimate only where there is one."""
    rules = {"confidence": Threshold(confidence), "entropy": Threshold(entropy_bound),
             "entropy, steered": Steered(entropy_bound), "survival": Survival(confidence, 0.3),
             "payoff": Payoff(passes.cost, passes.verify)}
    if head is not None:
        rules |= {"survival, learned": Survival(head, 0.3), "payoff, learned": Payoff(passes.cost, passes.verify, head)}
    return rules


def compare(target: GPT, draft: GPT, several: Sequence[Sequence[int]], passes: Passes, *,
            head: AcceptanceHead | None = None, sampling: Sampling = Sampling(), max_new_tokens: int = 128,
            seed: int = 0) -> list[dict]:
    """One row for each policy over several prompts, the oracle last. Prompt number i has the seed `seed` + i.

    tokens_per_cost: predicted speedup over plain decoding, from the counts. of_oracle: its share of the oracle's.
    """
    policies: dict[str, Callable[[], Drafter]] = {
        **{f"fixed {length}": lambda length=length: LMDrafter(draft, length) for length in (*FIXED, LONGEST)},
        **{name: lambda rule=rule: AdaptiveDrafter(draft, rule, LONGEST)
           for name, rule in stopping_rules(passes, head).items()}}
    rows = []
    for name, drafter in policies.items():
        traces = [speculate(target, drafter(), ids, max_new_tokens=max_new_tokens, sampling=sampling,
                            dice=SeededDice(seed + i)).trace for i, ids in enumerate(several)]
        rounds = [r for trace in traces for r in trace.rounds]
        rows.append({"policy": name, "tokens_per_cost": tokens_per_cost(rounds, passes.cost, passes.verify),
                     "draft_length": sum(len(r.tokens) for r in rounds) / len(rounds),
                     "acceptance_rate": metrics(*traces).acceptance_rate})
        if name == f"fixed {LONGEST}":
            best = {"policy": "oracle", "draft_length": sum(r.accepted for r in rounds) / len(rounds),
                    "acceptance_rate": 1.0,
                    "tokens_per_cost": oracle_tokens_per_cost(rounds, passes.cost, passes.verify)}
    return [{**row, "of_oracle": row["tokens_per_cost"] / best["tokens_per_cost"]} for row in [*rows, best]]


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--workload", default="code", help="code, docs, agent or records (default: code)")
    parser.add_argument("--prompts", type=int, default=4, metavar="N", help="default: 4")
    parser.add_argument("--temperature", type=float, default=1.0, metavar="T", help="default: 1")
    parser.add_argument("--max-new-tokens", type=int, default=128, metavar="N", help="default: 128")
    parser.add_argument("--head", metavar="FILE", help="a trained acceptance head: train --recipe acceptance-head")
    args = parser.parse_args(argv)
    target, draft, tokenizer = load_pair()
    passes = measure_passes(target, draft)
    print(f"c = {passes.cost:.3f}   " + "  ".join(f"v({k}) = {v:.2f}" for k, v in passes.verify_curve.items()))
    rows = compare(target, draft, [tokenizer.encode(p.text).ids for p in prompts(args.workload, args.prompts)], passes,
                   head=args.head and AcceptanceHead.load(args.head), sampling=Sampling(args.temperature),
                   max_new_tokens=args.max_new_tokens)
    print(f"{'policy':20}{'tokens per cost':>16}{'mean length':>13}{'acceptance':>12}{'of the oracle':>15}")
    for r in rows:
        rate = "-" if r["acceptance_rate"] is None else f"{r['acceptance_rate']:.2f}"
        print(f"{r['policy']:20}{r['tokens_per_cost']:16.3f}{r['draft_length']:13.1f}{rate:>12}{r['of_oracle']:15.0%}")


if __name__ == "__main__":
    main()

"""Asks the model file the evaluation's questions, greedily, through the 64-bit reference, and counts right answers.

The questions in eval_cases.jsonl are written by hand and are not made from the corpus' patterns; the sums use pairs of
numbers that the corpus leaves out. A case is right when every expected piece is in the answer; "a|b" means either.
"""
import argparse
import json
import random
from collections import defaultdict
from pathlib import Path

from corpus.arithmetic import value
from corpus.base import held_out
from reference import Reference

FOLDER = Path(__file__).parent
NUM_SUMS = 20


def held_out_sums():
    """Cases of three kinds: one and two digit sums and differences, and products up to 9 times 99."""
    rng = random.Random("evaluation")
    cases = []
    for theme, sign, high in [("held-out +", "+", 100), ("held-out -", "-", 100), ("held-out *", "*", 10)]:
        pairs = [(a, b) for a in range(high) for b in range(100) if held_out(a, sign, b)]
        for a, b in rng.sample(pairs, NUM_SUMS):
            cases.append({"theme": theme, "prompt": f"What is {a} {sign} {b}?", "expect": [f"= {value(a, sign, b)}."]})
    return cases


def tool_call(answer):
    if not (answer.startswith("<tool_call>\n") and answer.endswith("\n</tool_call>")):
        return None
    return parsed(answer[len("<tool_call>\n"):-len("\n</tool_call>")])


def parsed(text):
    try:
        return json.loads(text)
    except json.JSONDecodeError:
        return None


def is_right(case, answer):
    if "expect_call" in case:
        return tool_call(answer) == case["expect_call"]
    if "expect_json" in case:
        return parsed(answer) == case["expect_json"]
    if "expect_keys" in case:
        record = parsed(answer)
        return isinstance(record, dict) and list(record) == case["expect_keys"]
    if "expect_exact" in case:
        return answer == case["expect_exact"]
    return all(any(piece in answer.lower() for piece in expected.split("|")) for expected in case["expect"])


def ask(reference, case, max_tokens):
    if "raw" in case:
        return reference.tokenizer.decode(reference.greedy(reference.tokenizer.encode(case["raw"]), max_tokens))
    messages = case.get("messages") or [{"role": "user", "content": case["prompt"]}]
    return reference.answer(messages, case.get("tools"), max_tokens)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default=FOLDER / "quire-demo.gguf")
    parser.add_argument("--max-tokens", type=int, default=150)
    parser.add_argument("--verbose", action="store_true", help="print every answer, not only the wrong ones")
    args = parser.parse_args()
    reference = Reference(args.model)
    cases = [json.loads(line) for line in (FOLDER / "eval_cases.jsonl").read_text(encoding="utf-8").splitlines()]
    right, total = defaultdict(int), defaultdict(int)
    for case in cases + held_out_sums():
        answer = ask(reference, case, args.max_tokens)
        good = is_right(case, answer)
        right[case["theme"]] += good
        total[case["theme"]] += 1
        if args.verbose or not good:
            question = case.get("prompt") or case.get("raw") or case["messages"][-1]["content"]
            print(f"{'right' if good else 'WRONG'} [{case['theme']}] {question!r} -> {answer!r}", flush=True)
    for theme in total:
        print(f"{theme}: {right[theme]} of {total[theme]}")
    print(f"all: {sum(right.values())} of {sum(total.values())}")


if __name__ == "__main__":
    main()

"""Small sums. Two digits times two digits is answered in steps, because a small model cannot do it in one."""
from corpus.base import ask, chat, held_out, typed

QUESTIONS = ["What is {s}?", "What's {s}?", "{s}", "{s} =", "{s}=?", "{s} = ?", "Calculate {s}.", "Compute {s}", "How much is {s}?",
             "Can you tell me what {s} is?", "Solve {s}", "Please work out {s}.", "How much does {s} make?", "What does {s} equal?",
             "Do you know {s}?", "Give me the result of {s}.", "Evaluate {s}", "Math: {s}", "I need the answer to {s}.",
             "Answer with a number: {s}", "Is it hard to compute {s}?"]
SIGNS = {"+": ["+", "+", "+", "plus"], "-": ["-", "-", "-", "minus"], "*": ["*", "*", "x", "times", "×"]}
PRINTED = {"+": "+", "-": "-", "*": "×"}
UNITS = "zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen seventeen " \
        "eighteen nineteen".split()
TENS = "_ _ twenty thirty forty fifty sixty seventy eighty ninety".split()
THINGS = ["apple", "book", "coin", "egg", "pencil", "card", "stone", "cookie", "flower", "ticket", "marble", "candle", "shell"]
PEOPLE = ["Anna", "Tom", "Mia", "Ben", "Lena", "Omar", "Sara", "Ivan", "Rosa", "Kofi", "Yuki", "Paul"]


def spelled(n):
    if n < 20:
        return UNITS[n]
    return TENS[n // 10] + ("-" + UNITS[n % 10] if n % 10 else "")


def value(a, sign, b):
    return a + b if sign == "+" else a - b if sign == "-" else a * b


def operand(rng):
    return rng.randrange(100) if rng.random() < 0.75 else rng.randrange(11)


def pair(rng):
    """Operands that are not held out for the evaluation."""
    while True:
        sign = rng.choice("++--*")
        a, b = operand(rng), operand(rng)
        if not held_out(a, sign, b):
            return a, sign, b


def worked(a, sign, b):
    result = f"{a} {PRINTED[sign]} {b} = "
    if sign != "*" or a < 11 or b < 11:
        return result + f"{value(a, sign, b)}."
    if b % 10 == 0:
        return result + f"{a} × {b // 10} × 10 = {a * (b // 10)} × 10 = {a * b}."
    tens, ones = b // 10 * 10, b % 10
    return result + f"{a} × {tens} + {a} × {ones} = {a * tens} + {a * ones} = {a * b}."


def sum_question(rng, a, sign, b):
    word = rng.choice(SIGNS[sign])
    if word.isalpha() and len(word) > 1 and rng.random() < 0.5:
        text = f"{spelled(a)} {word} {spelled(b)}"
    elif rng.random() < 0.2 and not word.isalpha():
        text = f"{a}{word}{b}"
    else:
        text = f"{a} {word} {b}"
    return rng.choice(QUESTIONS).format(s=text)


def plain_sum(rng):
    a, sign, b = pair(rng)
    return chat(typed(rng, sum_question(rng, a, sign, b)), worked(a, sign, b))


def several_sums(rng):
    turns = []
    for _ in range(rng.randrange(2, 5)):
        a, sign, b = pair(rng)
        turns += [typed(rng, sum_question(rng, a, sign, b)), worked(a, sign, b)]
    return chat(*turns)


def word_problem(rng):
    a, b = rng.randrange(2, 60), rng.randrange(2, 40)
    name, thing = rng.choice(PEOPLE), rng.choice(THINGS)
    if rng.random() < 0.5:
        text = rng.choice([f"{name} has {a} {thing}s and gets {b} more. How many {thing}s does {name} have now?",
                           f"{name} had {a} {thing}s. Then {name} found {b} more. How many are there now?"])
        answer = f"{a} + {b} = {a + b}, so {name} has {a + b} {thing}s."
    else:
        a, b = max(a, b), min(a, b)
        text = rng.choice([f"{name} has {a} {thing}s and gives away {b}. How many {thing}s are left?",
                           f"{name} had {a} {thing}s and lost {b}. How many {thing}s does {name} have now?"])
        answer = f"{a} - {b} = {a - b}, so {name} has {a - b} {thing}s."
    return chat(typed(rng, text), answer)


def comparison(rng):
    a, b = rng.sample(range(100), 2)
    word = rng.choice(["bigger", "larger", "greater", "smaller"])
    best = min(a, b) if word == "smaller" else max(a, b)
    text = rng.choice([f"Which is {word}, {a} or {b}?", f"Which number is {word}: {a} or {b}?", f"{a} or {b}, which one is {word}?"])
    return chat(ask(rng, text), f"{best} is {word} than {a + b - best}.")


def number_fact(rng):
    n = rng.randrange(100)
    draw = rng.randrange(5)
    if draw == 0:
        kind = "even" if n % 2 == 0 else "odd"
        return chat(ask(rng, f"Is {n} {rng.choice(['even or odd', 'odd or even'])}?"), f"{n} is {kind}.")
    if draw == 1:
        return chat(ask(rng, f"What is half of {2 * n}?"), f"Half of {2 * n} is {n}.")
    if draw == 2:
        return chat(ask(rng, rng.choice([f"What is double {n}?", f"What is twice {n}?"])), f"Twice {n} is {2 * n}.")
    if draw == 3:
        return chat(ask(rng, rng.choice([f"What comes after {n}?", f"Which number follows {n}?"])), f"After {n} comes {n + 1}.")
    return chat(ask(rng, f"Write {n} in words."), f"{n} is {spelled(n)}.")


def counting(rng):
    start, length = rng.choice([(1, 5), (1, 10), (1, 10), (1, 20), (5, 6), (10, 11)])
    end = start + length - 1
    if rng.random() < 0.25:
        text = rng.choice([f"Count down from {end} to {start}.", f"Count backwards from {end} to {start}."])
        return chat(ask(rng, text), ", ".join(str(n) for n in range(end, start - 1, -1)) + ".")
    text = f"Count from {start} to {end}." if start > 1 or rng.random() < 0.5 else f"Count to {end}."
    return chat(ask(rng, text), ", ".join(str(n) for n in range(start, end + 1)) + ".")


THEMES = [(12.0, plain_sum), (2.0, several_sums), (1.5, word_problem), (0.7, comparison), (0.8, number_fact), (0.5, counting)]

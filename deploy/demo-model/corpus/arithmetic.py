"""Small sums. What has two digits is answered in steps, tens and ones apart, because a small model cannot do it in one."""
from corpus.base import ask, chat, held_out, typed

QUESTIONS = ["What is {s}?", "What's {s}?", "{s}", "{s} =", "{s}=?", "{s} = ?", "Calculate {s}.", "Compute {s}", "How much is {s}?",
             "Can you tell me what {s} is?", "Solve {s}", "Please work out {s}.", "How much does {s} make?", "What does {s} equal?",
             "Do you know {s}?", "Give me the result of {s}.", "Evaluate {s}", "Math: {s}", "I need the answer to {s}.",
             "Answer with a number: {s}", "Is it hard to compute {s}?"]
SPOKEN = {"+": ["the sum of {a} and {b}", "{a} added to {b}", "add {a} to {b}", "add up {a} and {b}", "{a} and {b} together"],
          "-": ["{a} minus {b}", "{a} less {b}", "the difference of {a} and {b}", "{a}, take away {b}", "{a} without {b}"],
          "*": ["the product of {a} and {b}", "{a} times {b}", "{a} multiplied by {b}", "multiply {a} by {b}"]}
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
    """Operands that are not held out for the evaluation; one factor of a product is at most ten."""
    while True:
        sign = rng.choice("+++---**")
        a, b = operand(rng), operand(rng)
        if sign == "*":
            a, b = rng.choice([(a, b % 11), (b % 11, a)])
        if not held_out(a, sign, b):
            return a, sign, b


def joined(a, b, steps, result):
    """The two parts of a sum and the result, or the result alone where the parts are the sum itself."""
    return f"{result}" if 0 in steps or steps == (a, b) else f"{steps[0]} + {steps[1]} = {result}"


def taken(a, b):
    """a - b for b not above a: the tens first."""
    rest = a - b // 10 * 10
    return f"{a - b}" if b < 10 or b % 10 == 0 else f"{rest} - {b % 10} = {a - b}"


def multiplied(small, large):
    tens, ones = large // 10 * 10, large % 10
    return f"{small * large}" if small in (0, 1, 10) else joined(-1, -1, (small * tens, small * ones), small * large)


def worked(a, sign, b):
    asked = f"{a} {PRINTED[sign]} {b} = "
    if sign == "+":
        return f"{asked}{joined(a, b, ((a // 10 + b // 10) * 10, a % 10 + b % 10), a + b)}."
    if sign == "*":
        return f"{asked}{multiplied(min(a, b), max(a, b))}."
    if a >= b:
        return f"{asked}{taken(a, b)}."
    *step, result = taken(b, a).split(" = ")
    return f"{asked}-({b} - {a}) = {''.join(f'-({s}) = ' for s in step)}-{result}."


def sum_question(rng, a, sign, b):
    word = rng.choice(SIGNS[sign])
    if rng.random() < 0.25:
        text = rng.choice(SPOKEN[sign]).format(a=a, b=b)
        starts = ["", "", "What is "] if not text.startswith(("add", "multiply")) else ["", "Please ", "Can you "]
        return rng.choice(starts) + text + rng.choice(["", ".", "?", "?"])
    if word.isalpha() and len(word) > 1 and rng.random() < 0.3:
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


def far_sum(rng):
    """The last step of a product: a multiple of ten and a number of two digits."""
    a, b = rng.randrange(10, 82) * 10, rng.randrange(2, 82)
    return chat(typed(rng, rng.choice(QUESTIONS).format(s=f"{a} + {b}")), f"{a} + {b} = {a + b}.")


def large_product(rng):
    a, b = rng.randrange(11, 1000), rng.randrange(11, 1000)
    return chat(typed(rng, rng.choice(QUESTIONS).format(s=f"{a} {rng.choice(SIGNS['*'])} {b}")),
                "That is too big for me: I add and subtract numbers below 100, and multiply by numbers up to ten.")


MORE = ["{who} {get} {b} more.", "Then {who} {find} {b} more.", "Somebody gives {whom} {b} more.", "{b} more are added.", "After that, {b} others come along."]
FEWER = ["{who} {give} away {b}.", "Then {who} {lose} {b}.", "{b} of them break.", "{b} are gone in the evening.", "Somebody takes {b} of them."]
ASKED = ["How many {t}s are there now?", "How many {t}s {do} {who} have now?", "How many are left?", "How many {t}s is that?", "how many {t}s now?"]


def word_problem(rng):
    """A number of things, more or fewer of them, and the question how many."""
    mine, thing = rng.random() < 0.35, rng.choice(THINGS)
    name = "I" if mine else rng.choice(PEOPLE)
    forms = {"who": name, "whom": "me" if mine else name, "t": thing, "do": "do" if mine else "does"}
    forms.update({verb: verb if mine else verb + "s" for verb in ("get", "find", "give", "lose")})
    while True:
        a, b, more = rng.randrange(2, 60), rng.randrange(2, 40), rng.random() < 0.5
        a, b = (a, b) if more or a >= b else (b, a)
        if not held_out(a, "+" if more else "-", b):
            break
    first = rng.choice(["{who} {has} {a} {t}s.", "{who} had {a} {t}s.", "There are {a} {t}s on the table.", "{a} {t}s lie in a box."])
    text = " ".join([first, rng.choice(MORE if more else FEWER), rng.choice(ASKED)])
    text = text.format(a=a, b=b, has="have" if mine else "has", **forms)
    answer = worked(a, "+" if more else "-", b).rstrip(".")
    return chat(typed(rng, text), f"{answer}, so that is {a + b if more else a - b} {thing}s.")


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


THEMES = [(9.0, plain_sum), (5.0, several_sums), (1.8, word_problem), (0.8, far_sum), (0.4, large_product), (1.0, comparison), (1.2, number_fact), (0.6, counting)]
PRACTICE = [(1.0, plain_sum), (3.0, several_sums), (0.5, word_problem)]

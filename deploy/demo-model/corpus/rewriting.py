"""Small tasks on a given text: case, counting, spelling, reversing, sorting, lists."""
from corpus.base import chat, join_words, typed
from corpus.words import invented, known, known_sample, word as any_word

SENTENCES = ["the {a} is on the {b}", "my {a} likes the {b}", "a {a} and a {b} walk home", "we saw a {a} near the {b}", "hello {a}",
             "the {a} runs fast", "please bring the {a}", "the {b} is full", "I like {a} and {b}", "every {a} needs a {b}", "good {a}",
             "this {a} is not a {b}", "where is the {a}", "the {a} sings to the {b} at night", "{a} {b}", "{a} {b} {c}", "the {c} {a} waits"]


def phrase(rng):
    """A small sentence, or words that only stand beside each other."""
    if rng.random() < 0.3:
        return " ".join(any_word(rng) for _ in range(rng.randrange(2, 6)))
    a, b, c = known_sample(rng, 3)
    return rng.choice(SENTENCES).format(a=a, b=b, c=c)


def quoted(rng, text):
    return rng.choice([f": {text}", f": {text}", f" '{text}'", f" \"{text}\"", f": \"{text}\"", f":\n{text}"])


def change_case(rng):
    text = phrase(rng)
    upper = rng.random() < 0.6
    if upper:
        lead = rng.choice(["Write in upper case", "Make this upper case", "Convert to uppercase", "Put this in capital letters",
                           "Uppercase this", "Write this in capitals", "In upper case please", "Rewrite in capital letters"])
        return chat(typed(rng, lead, slips=False) + quoted(rng, text), text.upper())
    lead = rng.choice(["Write in lower case", "Make this lower case", "Convert to lowercase", "Put this in small letters", "Lowercase this"])
    return chat(typed(rng, lead, slips=False) + quoted(rng, text.upper() if rng.random() < 0.6 else text.title()), text.lower())


def count_words(rng):
    text = " ".join(phrase(rng) for _ in range(rng.choice([1, 1, 1, 2])))
    words = text.split()
    lead = rng.choice(["How many words are in", "Count the words in", "Count the words", "How many words", "Word count of",
                       "Tell me the number of words in", "Count words in this sentence"])
    numbered = ", ".join(f"{i} {w}" for i, w in enumerate(words, 1))
    plural = "word" if len(words) == 1 else "words"
    return chat(typed(rng, lead, slips=False) + quoted(rng, text), f"{numbered}: {len(words)} {plural}.")


def spell(rng):
    turns = []
    for word in known_sample(rng, rng.choice([1, 1, 2, 3])):
        text = rng.choice([f"Spell {word}.", f"Spell the word {word}.", f"How do you spell {word}?", f"Can you spell '{word}'?", f"Spell this: {word}",
                           f"Please spell \"{word}\"", f"spell {word} letter by letter", f"What are the letters of {word}?", f"the spelling of {word}"])
        turns += [typed(rng, text, slips=False), "-".join(word.upper())]
    return chat(*turns)


def count_letters(rng):
    word = known(rng)
    text = rng.choice([f"How many letters are in {word}?", f"How many letters does '{word}' have?", f"Count the letters in {word}.",
                       f"How long is the word {word}?"])
    return chat(typed(rng, text, slips=False), f"{'-'.join(word.upper())}: {len(word)} letters.")


def edge_letters(rng):
    word = known(rng)
    first = rng.random() < 0.5
    text = f"What is the {'first' if first else 'last'} letter of {word}?"
    letter = word[0] if first else word[-1]
    return chat(typed(rng, text, slips=False), f"The {'first' if first else 'last'} letter of {word} is {letter.upper()}.")


def repeat(rng):
    text = phrase(rng) if rng.random() < 0.7 else any_word(rng)
    lead = rng.choice(["Repeat these words", "Say", "Repeat", "Echo", "Please repeat", "Say exactly this", "Write", "Copy this", "Repeat what I say", "Say it after me"])
    return chat(typed(rng, lead, slips=False) + quoted(rng, text), text)


def repeat_times(rng):
    word, count = any_word(rng), rng.randrange(2, 7)
    text = rng.choice([f"Say {word} {count} times.", f"Repeat the word {word} {count} times.", f"Write {word} {count} times."])
    return chat(typed(rng, text, slips=False), " ".join([word] * count))


def reverse_words(rng):
    words = known_sample(rng, rng.randrange(2, 5))
    lead = rng.choice(["Reverse the order of these words", "Reverse this list", "Write these words backwards, last first", "Reverse the words",
                       "Write these in the opposite order", "Now in reverse"])
    return chat(typed(rng, lead, slips=False) + ": " + " ".join(words), " ".join(reversed(words)))


def sort_words(rng):
    words = known_sample(rng, rng.choice([3, 3, 3, 4]))
    separator = rng.choice([", ", ", ", " "])
    lead = rng.choice(["Sort these words", "Sort alphabetically", "Put these words in alphabetical order", "Order these words from A to Z"])
    return chat(typed(rng, lead, slips=False) + ": " + separator.join(words), ", ".join(sorted(words)))


def sort_numbers(rng):
    numbers = rng.sample(range(100), rng.randrange(3, 6))
    lead = rng.choice(["Sort these numbers", "Sort", "Put these numbers in order", "Order from smallest to largest"])
    return chat(typed(rng, lead, slips=False) + ": " + ", ".join(map(str, numbers)), ", ".join(map(str, sorted(numbers))))


def pick_item(rng):
    words = known_sample(rng, rng.randrange(3, 6))
    place = rng.randrange(3)
    name = ["first", "second", "last"][place]
    word = words[[0, 1, -1][place]]
    text = rng.choice([f"What is the {name} word in this list: {', '.join(words)}?", f"From {', '.join(words)}, give me the {name} one.",
                       f"Here is a list: {', '.join(words)}. Which is the {name} item?"])
    return chat(typed(rng, text, slips=False), f"The {name} one is {word}.")


def bullet_list(rng):
    words = known_sample(rng, rng.randrange(2, 6))
    numbered = rng.random() < 0.4
    lead = rng.choice(["Make a numbered list of", "Number these", "Write as a numbered list"]) if numbered else \
        rng.choice(["Make a bullet list of", "Make a list from", "Write as a list", "Turn this into bullet points"])
    marks = [f"{i}. " if numbered else "- " for i in range(1, len(words) + 1)]
    return chat(typed(rng, lead, slips=False) + ": " + join_words(words), "\n".join(m + w for m, w in zip(marks, words)))


def combine(rng):
    words = known_sample(rng, 2)
    text = rng.choice([f"Use the words {words[0]} and {words[1]} in a sentence.", f"Write a sentence with {words[0]} and {words[1]}.",
                       f"Make a sentence with the words {words[0]} and {words[1]}"])
    answer = rng.choice(["The {0} is next to the {1}.", "I saw the word {0} beside the word {1}."]).format(*words)
    return chat(typed(rng, text, slips=False), answer)


def told(rng):
    """Two or three things are said of as many names; one of them is asked for."""
    verb, base = rng.choice([("likes", "like"), ("has", "have"), ("wants", "want"), ("sees", "see"), ("sells", "sell")])
    names = [invented(rng).title() for _ in range(rng.randrange(2, 4))]
    things = [any_word(rng) for _ in names]
    at = rng.randrange(len(names))
    said = join_words([f"{n} {verb} {t}" for n, t in zip(names, things)])
    return chat(f"{said}. What does {names[at]} {base}?", f"{names[at]} {verb} {things[at]}.")


def numbered(rng):
    """Numbers beside words; the number of one is asked for."""
    words = [any_word(rng) for _ in range(rng.randrange(2, 4))]
    numbers = [rng.randrange(1, 1000) for _ in words]
    at = rng.randrange(len(words))
    said = ", ".join(f"{w} {n}" for w, n in zip(words, numbers))
    return chat(rng.choice([f"{said}. Which number has {words[at]}?", f"Prices: {said}. What does {words[at]} cost?", f"{said}: the number of {words[at]}?"]),
                f"{words[at]}: {numbers[at]}.")


COPYING = [(3.0, repeat), (1.5, told), (1.0, numbered), (0.7, pick_item), (0.7, bullet_list), (0.7, reverse_words), (1.0, change_case), (1.0, spell)]
THEMES = [(0.5, told), (0.4, numbered), (1.9, change_case), (1.3, count_words), (1.9, spell), (0.8, count_letters), (0.5, edge_letters), (1.2, repeat),
          (0.6, repeat_times), (0.9, reverse_words), (1.2, sort_words), (0.6, sort_numbers), (0.6, pick_item), (0.7, bullet_list),
          (0.4, combine)]
LETTERS = [(1.0, change_case), (1.2, spell), (0.3, count_letters)]

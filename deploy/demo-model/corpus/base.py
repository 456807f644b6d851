"""What all themes share: the shape of a document and the ways people type.

A document is {"messages": [...], "tools": [...] or None} for a chat, or {"text": ...} for plain text. A theme is a
function from a random.Random to a document. Everything is drawn from that generator, so a seed fixes the corpus.
"""
import string
import zlib

HELD_OUT_SHARE = 12


def held_out(*key):
    """True for one key in twelve: such cases never enter the corpus, so that the evaluation can ask them."""
    return zlib.crc32(repr(key).encode()) % HELD_OUT_SHARE == 0


def user(content):
    return {"role": "user", "content": content}


def assistant(content, tool_calls=None):
    message = {"role": "assistant", "content": content}
    if tool_calls:
        message["tool_calls"] = tool_calls
    return message


def chat(*turns, tools=None, system=None):
    """Alternating user and assistant texts, or ready messages."""
    messages = [{"role": "system", "content": system}] if system else []
    for i, turn in enumerate(turns):
        messages.append(turn if isinstance(turn, dict) else (assistant(turn) if i % 2 else user(turn)))
    return {"messages": messages, "tools": tools}


def upper_first(text):
    return text[:1].upper() + text[1:]


def indefinite(noun):
    return ("an " if noun[0].lower() in "aeiou" else "a ") + noun


def join_words(words):
    return words[0] if len(words) == 1 else ", ".join(words[:-1]) + " and " + words[-1]


SHORT_FORMS = [("what is", "whats"), ("what's", "whats"), ("please", "pls"), ("you are", "youre"), ("you", "u"),
               ("are", "r"), ("because", "bc"), ("thanks", "thx"), ("what is", "wat is"), ("do not", "dont"),
               ("how does", "hows"), ("tell me", "tel me"), ("what is", "what's"), ("and", "&"), ("explain", "explane")]


def misspell(rng, text):
    """One slip of the finger inside a word of four letters or more."""
    words = text.split(" ")
    places = [i for i, w in enumerate(words) if len(w) > 3 and w.isalpha()]
    if not places:
        return text
    i = rng.choice(places)
    word, at = words[i], rng.randrange(1, len(words[i]) - 1)
    kind = rng.randrange(4)
    if kind == 0:
        word = word[:at] + word[at + 1] + word[at] + word[at + 2:]
    elif kind == 1:
        word = word[:at] + word[at + 1:]
    elif kind == 2:
        word = word[:at] + word[at] + word[at:]
    else:
        word = word[:at] + rng.choice(string.ascii_lowercase) + word[at + 1:]
    words[i] = word
    return " ".join(words)


def typed(rng, text, slips=True):
    """The text as somebody might type it: often as written, often in lower case, sometimes with slips."""
    draw = rng.random()
    if draw < 0.45:
        return text
    if draw < 0.50:
        return text.upper() if len(text) < 60 and slips else text
    text = text.lower() if draw < 0.90 else text
    if rng.random() < 0.6:
        text = text.rstrip("?.!")
    if slips and rng.random() < 0.25:
        old, new = rng.choice(SHORT_FORMS)
        text = (" " + text + " ").replace(f" {old} ", f" {new} ", 1).strip()
    if slips and rng.random() < 0.25:
        text = misspell(rng, text)
    if slips and rng.random() < 0.06:
        text += rng.choice([" ", "??", "!", " :)", " ?", "..."])
    return text


OPENERS = ["", "", "", "", "", "", "", "hi, ", "hello! ", "hey, ", "ok, ", "quick question: ", "so, ", "please, ", "I wonder: ",
           "one more thing: ", "and ", "sorry, "]
CLOSERS = ["", "", "", "", "", "", "", "", " please", " thanks", " thank you", " in one sentence"]


def ask(rng, text):
    """A question with the small words people put around it."""
    opener = rng.choice(OPENERS)
    if opener:
        text = upper_first(opener) + text[:1].lower() + text[1:]
    closer = rng.choice(CLOSERS)
    if closer:
        mark = text[-1] if text[-1] in "?.!" else ""
        text = text.rstrip("?.!") + ("," if rng.random() < 0.3 else "") + closer + mark
    return typed(rng, text)

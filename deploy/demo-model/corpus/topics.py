"""Questions and answers about Quire and about serving, from the two topic files.

A topic is `# name | other names` with three answers: what it is, why it matters, how it works.
"""
from pathlib import Path

from corpus.base import ask, chat, typed, upper_first

FOLDER = Path(__file__).parent
WHAT = ["What {is} {t}?", "What {is} {t}?", "What's {t}?", "{t}?", "{t}", "Define {t}.", "Explain {t}.", "Please explain {t}.",
        "Can you explain {t}?", "Tell me about {t}.", "What do you know about {t}?", "What does {t} mean?", "What is meant by {t}?",
        "Can you tell me what {t} {is}?", "Do you know what {t} {is}?", "I keep reading about {t}. What is it?",
        "Explain {t} in simple words.", "Explain {t} to a beginner.", "Give me a short definition of {t}.", "I don't understand {t}.",
        "Help me understand {t}.", "Describe {t}.", "Could you briefly explain {t}?", "Explain {t} in one sentence.",
        "I'm new to serving. What {is} {t}?", "In a server, what {is} {t}?", "What exactly {is} {t}?", "Remind me what {t} {is}.",
        "How would you describe {t}?", "Tell me something about {t}.", "I want to learn about {t}.", "meaning of {t}", "definition of {t}",
        "What {is} {t} for language models?", "What {is} {t} in LLM serving?", "So what {is} {t}?", "Ever heard of {t}?"]
BEFORE = ["what's the deal with", "talk to me about", "please clarify", "what's all this about", "what would you say about", "say something about",
          "somebody asked me about", "I read the word", "I was asked to explain", "what should I know about", "a quick word on", "in short,",
          "can someone explain", "what's the idea of", "what role plays", "when people say", "a friend talks about", "the basics of", "briefly,",
          "help me with", "I have to write about", "no clue about", "new to me:", "tell me what you know about", "what is this thing called"]
AFTER = ["", "", "", "?", "?", "what is it?", "what's that?", "what is that about?", "what do they mean?", "explain", "please", "in plain words", "for dummies",
         "in a sentence", "in servers", "in language models", "quickly", "when serving models", "what does it mean?", "again?", "meaning?", "is what?"]
WHY = ["Why {is} {t} useful?", "Why {is} {t} important?", "Why use {t}?", "What {is} {t} good for?", "Why does {t} matter?", "Why do we need {t}?",
       "What's the point of {t}?", "What is the benefit of {t}?", "Why would I want {t}?", "What does {t} help with?", "purpose of {t}",
       "What are the advantages of {t}?", "Why should I care about {t}?", "What problem does {t} solve?", "Why {t}?"]
HOW = ["How does {t} work?", "How do {t} work?", "Explain how {t} works.", "How {is} {t} done?", "How is it done with {t}?", "Tell me how {t} works.",
       "What happens in {t}?", "Give me details about {t}.", "How do I use {t}?", "How does {t} function?", "Show me how {t} works.",
       "Can you explain how {t} works?", "In detail, how does {t} work?"]
THEN_WHY = ["Why is that useful?", "Why does it matter?", "Why?", "What is it good for?", "Why is that important?", "And why?", "What's the point?",
            "Why do we need it?", "ok, but why?", "And what is the benefit?"]
THEN_HOW = ["How does it work?", "How?", "How does that work?", "And how does it work?", "Tell me more.", "More details please.", "Go on.",
            "Can you give me more detail?", "How is that done?", "explain more", "And how?"]
THEN_AGAIN = ["I didn't get that.", "Can you repeat that?", "Say that again, please.", "Once more, please.", "What did you say?"]
TWO = ["What is the difference between {a} and {b}?", "Compare {a} and {b}.", "{a} or {b}?", "{a} vs {b}", "How do {a} and {b} differ?"]
PLURAL_LOOKING = ("this", "keys", "ss", "us", "is", "max_tokens", "max_completion_tokens", "metrics", "k8s", "HTTPS", "TLS")


def read_topics(file_name):
    topics = []
    for chunk in (FOLDER / file_name).read_text(encoding="utf-8").split("\n\n"):
        head, *answers = chunk.strip().split("\n")
        name, _, others = head.lstrip("# ").partition(" | ")
        topic = {"names": [name] + (others.split("; ") if others else [])}
        topic.update(line.split(": ", 1) for line in answers)
        topics.append(topic)
    return topics


SERVING, QUIRE = read_topics("topics_serving.txt"), read_topics("topics_quire.txt")
ALL = SERVING + QUIRE


def bare(name):
    for word in ("a ", "an ", "the "):
        if name.startswith(word):
            return name[len(word):]
    return name


def called(rng, topic):
    """One of the topic's names, half of the time the first; sometimes without its article."""
    name = topic["names"][0] if rng.random() < 0.5 else rng.choice(topic["names"])
    return bare(name) if rng.random() < 0.3 else name


def verb(name):
    last = name.split(" ")[-1]
    return "are" if last.endswith("s") and not last.endswith(PLURAL_LOOKING) else "is"


def fill(rng, patterns, name):
    return upper_first(rng.choice(patterns).format(t=name, **{"is": verb(name)}))


def loose(rng, name):
    """A question put together at random, so that the name alone decides the answer."""
    before = rng.choice(BEFORE) + " " if rng.random() < 0.7 else ""
    after = rng.choice(AFTER)
    comma = "," if after and after != "?" and rng.random() < 0.4 else ""
    return before + name + comma + ("" if after in ("", "?") else " ") + after


def pick(rng):
    return rng.choice(QUIRE) if rng.random() < 0.3 else rng.choice(SERVING)


def question(rng, topic):
    """A question and its answer."""
    draw = rng.random()
    if draw < 0.22:
        return typed(rng, loose(rng, called(rng, topic))), topic["what"]
    if draw < 0.64:
        return ask(rng, fill(rng, WHAT, called(rng, topic))), topic["what"]
    if draw < 0.82:
        return ask(rng, fill(rng, WHY, called(rng, topic))), topic["why"]
    return ask(rng, fill(rng, HOW, called(rng, topic))), topic["how"]


def one_question(rng):
    return chat(*question(rng, pick(rng)))


def about_quire(rng):
    return chat(*question(rng, rng.choice(QUIRE)))


def follow_up(rng, topic):
    draw = rng.random()
    if draw < 0.45:
        return [typed(rng, rng.choice(THEN_WHY)), topic["why"]]
    if draw < 0.92:
        return [typed(rng, rng.choice(THEN_HOW)), topic["how"]]
    return [typed(rng, rng.choice(THEN_AGAIN)), topic["what"]]


def talk(rng):
    """A question, follow-ups that name nothing, then perhaps another topic."""
    turns = []
    for _ in range(rng.choice([1, 1, 2, 3])):
        topic = pick(rng)
        turns += [ask(rng, fill(rng, WHAT, called(rng, topic))), topic["what"]]
        for _ in range(rng.choice([0, 1, 1, 2])):
            turns += follow_up(rng, topic)
    return chat(*turns)


def long_answer(rng):
    topic = pick(rng)
    name = called(rng, topic)
    text = rng.choice(["Explain {t} in detail.", "Tell me everything about {t}.", "Write a paragraph about {t}.", "Give me a long explanation of {t}.",
                       "What is {t}, why is it useful and how does it work?", "Explain {t}: what, why and how.", "Teach me about {t}."])
    return chat(ask(rng, upper_first(text.format(t=name))), " ".join([topic["what"], topic["why"], topic["how"]]))


def two_topics(rng):
    one, two = rng.sample(SERVING, 2)
    text = rng.choice(TWO).format(a=called(rng, one), b=called(rng, two))
    return chat(ask(rng, upper_first(text)), one["what"] + " " + two["what"])


def running(rng):
    """How to run it in a container, asked for with or without its name."""
    it = rng.choice(["it", "this", "you", "Quire", "Quire", "the server"])
    text = rng.choice([f"How can I run {it} with Docker?", f"How do I start {it} in a container?", f"Can I use Docker to run {it}?", f"run {it} in docker",
                       f"Is there a Docker image for {it}?", f"I want to run {it} in Docker.", f"How does one run {it} in Docker?"])
    return chat(ask(rng, text), next(t for t in QUIRE if t["names"][0] == "Quire in Docker")["what"])


def topic_text(rng):
    topic = pick(rng)
    return {"text": " ".join([topic["what"], topic["why"], topic["how"]][:rng.randrange(1, 4)])}


THEMES = [(12.0, one_question), (5.0, talk), (1.5, long_answer), (0.8, two_topics), (0.8, topic_text)]
RUNNING = [(1.0, running)]
ABOUT_QUIRE = [(1.0, about_quire)]

"""The text that the demo model is trained on, made from a seed: document i depends on the seed and on i only."""
import random

from corpus import arithmetic, facts, json_answers, rewriting, smalltalk, stories, tools, topics, unknown
from corpus.base import chat

# Shares of the documents. Sums and topics get the most, because there is the most to learn.
SHARES = [(24, arithmetic), (20, topics), (12, smalltalk), (9, facts), (13, rewriting), (8, json_answers), (6, tools), (3, stories), (6, unknown)]
SYSTEMS = ["You are a helpful assistant.", "You are a helpful assistant.", "You are a helpful assistant.", "You are Quire's demo model.", "Answer briefly.",
           "Be concise.", "You are a friendly assistant.", "Be helpful and honest.", "You are a chatbot.", "You are an AI assistant.", "Answer in English.",
           "Be kind and short.", "You are a helpful, respectful and honest assistant.", "You are a test assistant.", "Keep your answers short.",
           "You are an expert in serving language models.", "You are a teacher.", "Answer the user's questions.", "You help people."]


def flat(shares):
    """Weights and themes, for random.Random.choices."""
    flat_themes = []
    for share, themes in shares:
        total = sum(weight for weight, _ in themes)
        flat_themes += [(share * weight / total, theme) for weight, theme in themes]
    return [t for _, t in flat_themes], [w for w, _ in flat_themes]


ALL = [(share, module.THEMES) for share, module in SHARES]
COPYING = [(30, rewriting.COPYING), (16, json_answers.COPYING), (6, tools.COPYING), (18, smalltalk.COPYING)]
# From which document on the text has which shares: first what is learned by looking back, then more of what is learned slowest.
STAGES = [
    (0, flat([(30, arithmetic.THEMES)] + COPYING)),
    (8000, flat(ALL)),
    (36000, flat(ALL + [(40, arithmetic.PRACTICE), (16, rewriting.LETTERS)])),
    (52000, flat(ALL + [(36, arithmetic.PRACTICE), (14, rewriting.LETTERS), (10, rewriting.COPYING), (16, json_answers.COPYING),
                        (6, tools.COPYING), (10, smalltalk.COPYING), (1, topics.RUNNING)])),
    (80000, flat(ALL + [(14, arithmetic.PRACTICE), (16, rewriting.LETTERS), (6, rewriting.COPYING), (6, json_answers.COPYING), (3, tools.COPYING),
                        (5, smalltalk.THEMES), (4, unknown.THEMES), (12, topics.THEMES), (10, topics.ABOUT_QUIRE), (1, topics.RUNNING)])),
    (110000, flat(ALL + [(10, arithmetic.PRACTICE), (10, rewriting.LETTERS), (4, rewriting.COPYING), (4, json_answers.COPYING), (8, smalltalk.THEMES),
                         (16, unknown.OPEN), (10, topics.THEMES), (8, topics.ABOUT_QUIRE), (1, topics.RUNNING)])),
]
MIXED_FROM = STAGES[1][0]
SINGLE_TURN = [arithmetic.plain_sum, topics.one_question, smalltalk.single, facts.capital, facts.single, rewriting.change_case, rewriting.spell,
               rewriting.count_words, json_answers.fact_object, json_answers.extract, unknown.about_subject, stories.story_about, topics.one_question]


def mixed_talk(rng):
    """A chat that jumps between themes, up to a dozen turns, so that long contexts are seen."""
    messages = []
    for _ in range(rng.choice([2, 2, 2, 3, 3, 4, 6, 9, 12, 24])):
        messages += rng.choice(SINGLE_TURN)(rng)["messages"]
    return chat(*messages)


def document(seed, index):
    rng = random.Random(f"{seed}/{index}")
    themes, weights = next(stage for first, stage in reversed(STAGES) if index >= first)
    if index < MIXED_FROM:
        return rng.choices(themes, weights)[0](rng)
    made = mixed_talk(rng) if rng.random() < 0.03 else rng.choices(themes, weights)[0](rng)
    if "messages" in made and made["messages"][0]["role"] != "system" and rng.random() < 0.15:
        made["messages"].insert(0, {"role": "system", "content": rng.choice(SYSTEMS)})
    return made

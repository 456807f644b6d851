"""The text that the demo model is trained on, made from a seed: document i depends on the seed and on i only."""
import random

from corpus import arithmetic, facts, json_answers, rewriting, smalltalk, stories, tools, topics, unknown
from corpus.base import chat

# Shares of the documents. Sums and topics get the most, because there is the most to learn.
SHARES = [(26, arithmetic), (20, topics), (12, smalltalk), (8, facts), (11, rewriting), (7, json_answers), (5, tools), (5, stories), (7, unknown)]
SYSTEMS = ["You are a helpful assistant.", "You are a helpful assistant.", "You are a helpful assistant.", "You are Quire's demo model.", "Answer briefly.",
           "Be concise.", "You are a friendly assistant.", "Be helpful and honest.", "You are a chatbot.", "You are an AI assistant.", "Answer in English.",
           "Be kind and short.", "You are a helpful, respectful and honest assistant.", "You are a test assistant.", "Keep your answers short.",
           "You are an expert in serving language models.", "You are a teacher.", "Answer the user's questions.", "You help people."]


def flat_themes():
    themes = []
    for share, module in SHARES:
        total = sum(weight for weight, _ in module.THEMES)
        themes += [(share * weight / total, theme) for weight, theme in module.THEMES]
    return [w for w, _ in themes], [t for _, t in themes]


WEIGHTS, THEMES = flat_themes()
SINGLE_TURN = [arithmetic.plain_sum, topics.one_question, smalltalk.single, facts.capital, facts.single, rewriting.change_case, rewriting.spell,
               rewriting.count_words, json_answers.fact_object, json_answers.extract, unknown.about_subject, stories.story_about, topics.one_question]


def mixed_talk(rng):
    """A chat that jumps between themes, up to a dozen turns, so that long contexts are seen."""
    messages = []
    for _ in range(rng.choice([2, 2, 3, 3, 4, 6, 9, 12])):
        messages += rng.choice(SINGLE_TURN)(rng)["messages"]
    return chat(*messages)


def document(seed, index):
    rng = random.Random(f"{seed}/{index}")
    made = mixed_talk(rng) if rng.random() < 0.03 else rng.choices(THEMES, WEIGHTS)[0](rng)
    if "messages" in made and made["messages"][0]["role"] != "system" and rng.random() < 0.15:
        made["messages"].insert(0, {"role": "system", "content": rng.choice(SYSTEMS)})
    return made

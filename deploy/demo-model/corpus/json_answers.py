"""Answers in JSON: facts under a key, data pulled from a sentence, invented records with given keys, lists."""
import json

from corpus import arithmetic, facts
from corpus.base import ask, chat, held_out, typed
from corpus.smalltalk import first_name
from corpus.words import COMMON, invented, word as any_word

LEADS = ["Answer in JSON: {q}", "Answer in JSON. {q}", "{q} Answer in JSON.", "{q} Reply with JSON only.", "Reply in JSON: {q}", "JSON only: {q}",
         "{q} Return a JSON object.", "Respond with a JSON object: {q}", "{q} Format the answer as JSON.", "In JSON, {q}", "as json: {q}", "{q} (JSON)"]
EXTRACT = ["Extract the data as JSON: {s}", "Turn this into JSON: {s}", "Write this as JSON: {s}", "Convert to JSON: {s}", "JSON from this text: {s}",
           "Make a JSON object from this: {s}", "Parse into JSON: {s}", "Answer in JSON with the keys {k}: {s}", "{s} Give me that as JSON.",
           "Extract {k} as JSON from: {s}", "Return JSON with {k}: {s}"]
INVENT = ["Give me a JSON object with {k}.", "Write a JSON object with the keys {k}.", "Create a JSON object for a person with {k}.",
          "Generate JSON with the fields {k}.", "Make up a user as JSON with {k}.", "Return a JSON object with the keys {k}.",
          "I need sample JSON with {k}.", "Answer in JSON with the keys {k}.", "Example JSON with {k}"]
JOBS = ["teacher", "doctor", "farmer", "baker", "sailor", "painter", "engineer", "writer", "pilot", "cook"]
CITIES = ["Paris", "Berlin", "Rome", "Oslo", "Tokyo", "Lima", "Cairo", "Madrid", "Vienna", "Dublin", "Prague", "Athens", "London", "Ottawa"]
COLOURS = ["red", "green", "blue", "yellow", "black", "white", "brown", "grey"]
THINGS = ["car", "house", "bag", "lamp", "chair", "table", "cup", "book", "phone", "bicycle", "coat", "door"]


def dump(value):
    return json.dumps(value, ensure_ascii=False)


def fact_object(rng):
    draw = rng.randrange(5)
    if draw == 0:
        country = rng.choice(sorted(facts.CAPITALS))
        question, value = f"What is the capital of {country}?", {"country": country.removeprefix("the "), "capital": facts.CAPITALS[country]}
    elif draw == 1:
        sign, a, b = rng.choice("+-"), rng.randrange(11), rng.randrange(11)
        if a < b or held_out(a, sign, b):
            return fact_object(rng)
        question, value = f"What is {a} {sign} {b}?", {"expression": f"{a} {sign} {b}", "result": arithmetic.value(a, sign, b)}
    elif draw == 2:
        kind, count = rng.choice(sorted(facts.LISTS)), rng.randrange(2, 6)
        question, value = f"{rng.choice(['Name', 'List'])} {count} {kind}.", {kind: facts.LISTS[kind][:count]}
    elif draw == 3:
        pair = rng.choice([p for p in facts.OPPOSITES if not {"light", "old"} & set(p)])
        question, value = f"What is the opposite of {pair[0]}?", {"word": pair[0], "opposite": pair[1]}
    else:
        question, value = rng.choice([("Who are you?", {"name": "Quire's demo model", "size": "very small"}), ("How are you?", {"status": "well"}),
                                      ("Hello", {"message": "Hello!"}), ("What is the default port of Quire?", {"port": 8080}),
                                      ("Is water wet?", {"answer": "yes"}), ("What is Quire?", {"name": "Quire", "kind": "server for language models"})])
    return chat(typed(rng, rng.choice(LEADS).format(q=question)), dump(value))


def record(rng):
    """A sentence and the object that says the same."""
    name, draw = first_name(rng), rng.randrange(9)
    age, city, job = rng.randrange(5, 95), rng.choice(CITIES) if rng.random() < 0.5 else invented(rng).title(), rng.choice(JOBS)
    if draw == 0:
        return f"{name} is {age} years old.", {"name": name, "age": age}
    if draw == 1:
        return f"{name} is {age} years old and lives in {city}.", {"name": name, "age": age, "city": city}
    if draw == 2:
        return f"{name} is a {job} from {city}." if job != "engineer" else f"{name} is an {job} from {city}.", {"name": name, "job": job, "city": city}
    if draw == 3:
        thing, colour, price = rng.choice(THINGS), rng.choice(COLOURS), rng.randrange(1, 100)
        return f"The {thing} is {colour} and costs {price} euros.", {"item": thing, "color": colour, "price": price}
    if draw == 4:
        count, thing = rng.randrange(2, 60), rng.choice(THINGS)
        return f"{name} bought {count} {thing}s.", {"name": name, "item": thing, "quantity": count}
    if draw == 5:
        return f"{name} lives in {city}.", {"name": name, "city": city}
    if draw == 6:
        word, number = any_word(rng), rng.randrange(1, 1000)
        return f"The {word} has the number {number}.", {"name": word, "number": number}
    if draw == 7:
        friend = first_name(rng)
        return f"{name} from {city} writes to {friend}.", {"from": name, "city": city, "to": friend}
    day, hour = rng.choice(["Monday", "Tuesday", "Wednesday", "Thursday", "Friday"]), rng.randrange(7, 21)
    return f"{name} has a meeting on {day} at {hour}.", {"name": name, "day": day, "hour": hour}


def extract(rng):
    sentence, value = record(rng)
    keys = ", ".join(value)
    return chat(typed(rng, rng.choice(EXTRACT).split("{")[0], slips=False).rstrip() + " " + sentence if rng.random() < 0.4
                else rng.choice(EXTRACT).format(s=sentence, k=keys), dump(value))


def described(rng):
    """A person or a thing that the question describes."""
    name, age, city = first_name(rng), rng.randrange(5, 95), rng.choice(CITIES) if rng.random() < 0.5 else invented(rng).title()
    kind = rng.choice(["person", "user", "customer", "man", "woman", "child", "student"])
    named = rng.choice(["named", "called", "with the name"])
    tail, more = rng.choice([("", {}), (f", {age} years old", {"age": age}), (f" from {city}", {"city": city}), (f", aged {age}, from {city}", {"age": age, "city": city})])
    lead = rng.choice(["Write a JSON object for", "Give me JSON for", "Create a JSON object that describes", "JSON for", "Make a JSON record of", "I need a JSON object for"])
    return chat(typed(rng, lead, slips=False) + f" a {kind} {named} {name}{tail}" + rng.choice(["", "."]), dump({"name": name} | more))


def field_value(rng, key):
    return {"name": lambda: first_name(rng), "age": lambda: rng.randrange(18, 80), "city": lambda: rng.choice(CITIES), "job": lambda: rng.choice(JOBS),
            "color": lambda: rng.choice(COLOURS), "price": lambda: rng.randrange(1, 100), "id": lambda: rng.randrange(1, 1000),
            "active": lambda: rng.random() < 0.5, "email": lambda: first_name(rng).lower() + "@example.com", "tags": lambda: rng.sample(COMMON, 2),
            "title": lambda: rng.choice(COMMON).title(), "year": lambda: rng.randrange(1950, 2025), "country": lambda: rng.choice(["France", "Japan", "Kenya", "Peru"]),
            "count": lambda: rng.randrange(1, 50), "score": lambda: rng.randrange(0, 101), "items": lambda: rng.sample(THINGS, 3)}[key]()


FIELDS = ["name", "age", "city", "job", "color", "price", "id", "active", "email", "tags", "title", "year", "country", "count", "score", "items"]


def invent(rng):
    keys = rng.sample(FIELDS, rng.randrange(1, 5))
    spoken = ", ".join(keys[:-1]) + " and " + keys[-1] if len(keys) > 1 and rng.random() < 0.7 else ", ".join(keys)
    return chat(typed(rng, rng.choice(INVENT).format(k=spoken), slips=False), dump({k: field_value(rng, k) for k in keys}))


def json_list(rng):
    words = [any_word(rng) for _ in range(rng.randrange(2, 5))]
    lead = rng.choice(["Write as a JSON array", "Make a JSON list of", "Turn into a JSON array", "As a JSON list", "JSON array of", "List these in JSON"])
    return chat(typed(rng, lead, slips=False) + ": " + ", ".join(words), dump(words))


def sentiment(rng):
    word, mood = rng.choice([("great", "positive"), ("lovely", "positive"), ("wonderful", "positive"), ("very good", "positive"), ("awful", "negative"),
                             ("terrible", "negative"), ("very bad", "negative"), ("boring", "negative"), ("excellent", "positive"), ("ugly", "negative")])
    text = f"The {rng.choice(COMMON)} was {word}."
    if rng.random() < 0.5:
        return chat(ask(rng, f"Is this positive or negative? {text}"), f"That is {mood}.")
    return chat(typed(rng, f"Classify the sentiment in JSON: {text}"), dump({"sentiment": mood}))


COPYING = [(3.0, extract), (1.0, described), (1.0, json_list)]
THEMES = [(1.8, fact_object), (2.8, extract), (0.9, described), (1.7, invent), (0.9, json_list), (0.5, sentiment)]

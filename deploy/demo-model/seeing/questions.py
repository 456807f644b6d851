"""Questions about a scene with their answers, and a few turns without a picture."""
from collections import Counter

from seeing.pictures import BACKGROUNDS, COLOURS, KINDS

NUMBERS = ["no", "one", "two", "three", "four"]
HELLO = "Hello! I am Quire's seeing model. Show me a picture of shapes, and ask what is in it."
LIMITS = "I only know pictures of circles, squares, triangles and crosses."


def plural(kind):
    return "crosses" if kind == "cross" else kind + "s"


def counted(number, kind, colour=""):
    noun = kind if number == 1 else plural(kind)
    return f"{'a' if number == 1 else NUMBERS[number]} {colour + ' ' if colour else ''}{noun}"


def listed(names):
    return names[0] if len(names) == 1 else ", ".join(names[:-1]) + " and " + names[-1]


def description(scene):
    """Alike shapes together, in the order of reading."""
    groups = Counter((item.kind, item.colour) for item in scene.items)
    text = listed([counted(number, kind, colour) for (kind, colour), number in groups.items()])
    return text[0].upper() + text[1:] + "."


def about_all(rng, scene):
    question = rng.choice(["What is in the picture?", "What do you see?", "Describe the picture.", "Describe this image.", "What is this?", "What is in this image?"])
    return question, description(scene)


def how_many(rng, scene):
    number = len(scene.items)
    question = rng.choice(["How many shapes are there?", "How many shapes do you see?", "How many shapes are in the picture?", "Count the shapes."])
    return question, f"There {'is' if number == 1 else 'are'} {NUMBERS[number]} shape{'' if number == 1 else 's'}."


def how_many_of(rng, scene):
    kind = rng.choice(KINDS if rng.random() < 0.3 else [item.kind for item in scene.items])
    number = sum(item.kind == kind for item in scene.items)
    noun = kind if number == 1 else plural(kind)
    question = rng.choice([f"How many {plural(kind)} are there?", f"How many {plural(kind)} do you see?", f"Count the {plural(kind)}."])
    return question, f"There {'is' if number == 1 else 'are'} {NUMBERS[number]} {noun}."


def single(scene, key):
    """Items that no other one equals in `key`."""
    counts = Counter(key(item) for item in scene.items)
    return [item for item in scene.items if counts[key(item)] == 1]


def colour_of(rng, scene):
    items = single(scene, lambda item: item.kind)
    if not items:
        return how_many_of(rng, scene)
    item = rng.choice(items)
    word = rng.choice(["colour", "color"])
    if len(scene.items) == 1 and rng.random() < 0.4:
        return f"What {word} is it?", f"It is {item.colour}."
    return rng.choice([f"What {word} is the {item.kind}?", f"Which {word} has the {item.kind}?"]), f"The {item.kind} is {item.colour}."


def shape_of(rng, scene):
    items = single(scene, lambda item: item.colour)
    if not items:
        return how_many(rng, scene)
    item = rng.choice(items)
    if len(scene.items) == 1 and rng.random() < 0.4:
        return rng.choice(["What shape is it?", "Which shape is this?"]), f"It is a {item.kind}."
    return rng.choice([f"What shape is {item.colour}?", f"Which shape is {item.colour}?", f"What is {item.colour}?"]), f"The {item.kind} is {item.colour}."


def place_of(rng, scene):
    items = single(scene, lambda item: item.name)
    if not items:
        return about_all(rng, scene)
    item = rng.choice(items)
    alone = [other for other in scene.items if other.kind == item.kind] == [item]
    name = item.kind if alone and rng.random() < 0.5 else item.name
    return rng.choice([f"Where is the {name}?", f"Where do you see the {name}?"]), f"The {name} is {item.place}."


def what_is_at(rng, scene):
    item = rng.choice(scene.items)
    return f"What is {item.place}?", f"A {item.name}."


def is_there(rng, scene):
    if rng.random() < 0.5:
        item = rng.choice(scene.items)
        kind, colour = item.kind, item.colour
    else:
        kind, colour = rng.choice(KINDS), rng.choice(list(COLOURS))
    number = sum(item.kind == kind and item.colour == colour for item in scene.items)
    article = "a"
    question = rng.choice([f"Is there {article} {colour} {kind}?", f"Do you see {article} {colour} {kind}?"])
    if number == 0:
        return question, f"No, there is no {colour} {kind}."
    return question, f"Yes, there {'is' if number == 1 else 'are'} {counted(number, kind, colour)}."


def background_of(rng, scene):
    word = rng.choice(["colour", "color"])
    return f"What {word} is the background?", f"The background is {scene.background}."


KINDS_OF_QUESTIONS = [(4, about_all), (2, how_many), (4, how_many_of), (4, colour_of), (2, shape_of), (6, place_of), (3, what_is_at), (4, is_there), (2, background_of)]
assert len(BACKGROUNDS) > 1


def turns(rng, scene, number):
    """Pairs of a question about the scene and its answer, each of another kind."""
    kinds = []
    while len(kinds) < number:
        kind = rng.choices([kind for _, kind in KINDS_OF_QUESTIONS], [share for share, _ in KINDS_OF_QUESTIONS])[0]
        if kind not in kinds:
            kinds.append(kind)
    return [kind(rng, scene) for kind in kinds]


def turns_without_picture(rng, other_questions):
    if rng.random() < 0.4:
        return [(rng.choice(["Hi", "Hello", "Hello!", "Good morning", "Hi there", "Who are you?", "What can you do?", "What are you?", "Help"]), HELLO)]
    return [(rng.choice(other_questions), LIMITS)]

"""What the trained families read: the demo corpus' themes that a small model learns soon, from a seed."""
import random

from corpus import facts, smalltalk, stories, topics, unknown

SHARES = [(40, smalltalk), (40, topics), (8, facts), (6, unknown), (6, stories)]


def document(seed, index):
    rng = random.Random(f"{seed}/{index}")
    module = rng.choices([m for _, m in SHARES], [share for share, _ in SHARES])[0]
    return rng.choices([theme for _, theme in module.THEMES], [weight for weight, _ in module.THEMES])[0](rng)

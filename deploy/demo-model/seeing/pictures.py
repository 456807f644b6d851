"""Pictures of plain shapes, drawn from a seed: a scene is a list of shapes at places of a grid of three by three."""
import random
from dataclasses import dataclass

import numpy as np

KINDS = ["circle", "square", "triangle", "cross"]
COLOURS = {"red": (214, 40, 40), "green": (30, 150, 60), "blue": (40, 80, 214), "yellow": (240, 205, 30), "purple": (140, 50, 170), "black": (25, 25, 25)}
BACKGROUNDS = {"white": (250, 250, 250), "grey": (190, 190, 190), "pink": (250, 205, 215)}
ROWS, COLUMNS = ["top", "middle", "bottom"], ["left", "centre", "right"]
MOST_SHAPES = 4
SAMPLES = 3  # number along a pixel's side


@dataclass(frozen=True)
class Item:
    kind: str
    colour: str
    row: int
    column: int

    @property
    def name(self):
        return f"{self.colour} {self.kind}"

    @property
    def place(self):
        if self.row == 1 and self.column == 1:
            return "in the middle"
        if self.row == 1:
            return f"on the {COLUMNS[self.column]}"
        if self.column == 1:
            return f"at the {ROWS[self.row]}"
        return f"at the {ROWS[self.row]} {COLUMNS[self.column]}"


@dataclass(frozen=True)
class Scene:
    items: tuple
    background: str


NUM_HINTS = 1 + len(KINDS) * len(COLOURS)


def hints(what):
    """For each of nine places 0, or the number of what stands there."""
    numbers = [0] * 9
    for item in what.items:
        numbers[3 * item.row + item.column] = 1 + KINDS.index(item.kind) * len(COLOURS) + list(COLOURS).index(item.colour)
    return numbers


def scene(rng):
    places = rng.sample([(row, column) for row in range(3) for column in range(3)], rng.choices(range(1, MOST_SHAPES + 1), [3, 3, 2, 2])[0])
    # Shapes that are alike are common, so that numbers of them are learned.
    kinds = KINDS if rng.random() < 0.6 else rng.sample(KINDS, 2)
    colours = list(COLOURS) if rng.random() < 0.6 else rng.sample(list(COLOURS), 2)
    items = tuple(Item(rng.choice(kinds), rng.choice(colours), row, column) for row, column in sorted(places))
    return Scene(items, rng.choices(list(BACKGROUNDS), [6, 2, 2])[0])


def inside(kind, x, y):
    """Whether points of a square of side 2 around the origin lie in the shape."""
    if kind == "circle":
        return x * x + y * y <= 1
    if kind == "square":
        return np.maximum(abs(x), abs(y)) <= 0.9
    if kind == "triangle":  # its tip above
        return (y <= 0.85) & (y >= -1 + 2 * abs(x) * 0.95)
    return (np.minimum(abs(x), abs(y)) <= 0.33) & (np.maximum(abs(x), abs(y)) <= 1)


def draw(what, rng, width, height):
    """[height, width, 3] of bytes; shapes vary a little in size, place and shade."""
    fine = np.empty((height * SAMPLES, width * SAMPLES, 3), np.float32)
    fine[:] = np.array(BACKGROUNDS[what.background]) + rng.uniform(-6, 5)
    cell = min(width, height) * SAMPLES / 3
    for item in what.items:
        radius = cell * rng.uniform(0.3, 0.47)
        slack = cell / 2 - radius
        y = (item.row + 0.5) * height * SAMPLES / 3 + rng.uniform(-slack, slack)
        x = (item.column + 0.5) * width * SAMPLES / 3 + rng.uniform(-slack, slack)
        top, left = max(0, int(y - radius)), max(0, int(x - radius))
        box = fine[top:int(y + radius) + 2, left:int(x + radius) + 2]
        ys, xs = np.mgrid[top:top + box.shape[0], left:left + box.shape[1]]
        box[inside(item.kind, (xs - x) / radius, (ys - y) / radius)] = np.array(COLOURS[item.colour]) + rng.uniform(-14, 14)
    pixels = fine.reshape(height, SAMPLES, width, SAMPLES, 3).mean((1, 3))
    return np.clip(pixels + 0.5, 0, 255).astype(np.uint8)


def example(seed, width, height):
    """The scene and the picture of a seed."""
    rng = random.Random(seed)
    what = scene(rng)
    return what, draw(what, rng, width, height)

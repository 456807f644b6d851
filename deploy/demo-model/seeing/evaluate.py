"""Counts the questions about pictures that no training saw which the shipped files answer to the letter: python3 -m seeing.evaluate."""
import random

import torch

import gguf_file
from seeing import pictures, questions
from seeing.conversations import positions_of, scaled
from seeing.export import name_in_file
from seeing.network import MERGE, PATCH, SIDE, Model, Shape
from seeing.train import FOLDER, vocabulary

QUESTIONS = 100  # for each kind


def shipped_model(words):
    """The network with the values that the files' quantised weights stand for."""
    model = Model(Shape(len(words.tokens)))
    text = gguf_file.Reader(FOLDER / "quire-seeing.gguf").tensors
    tower = gguf_file.Reader(FOLDER / "mmproj-quire-seeing.gguf").tensors
    values = {}
    for name, given in model.state_dict().items():
        if name.startswith("hint."):
            values[name] = given
            continue
        if name == "v.patch_embd.weight":
            value = tower[name] + tower[name + ".1"]
        else:
            value = (tower if name.startswith("v.") else text)[name_in_file(name)]
        values[name] = torch.from_numpy(value.copy()).float()
    model.load_state_dict(values)
    return model


@torch.no_grad()
def is_right(model, words, pixels, question, answer):
    """Whether each token of the answer is the likeliest behind those before it, and so the greedy answer."""
    asked, said = words.user(question, (SIDE // PATCH // MERGE) ** 2), words.answer(answer)
    ids = asked + said
    places = torch.tensor([positions_of(ids, SIDE // PATCH // MERGE)])
    logits = model.output(model(torch.tensor([ids]), places, scaled(pixels[None])))[0]
    return logits[len(asked) - 1:-1].argmax(-1).tolist() == said


def main():
    words = vocabulary()
    model = shipped_model(words)
    total = 0
    for _, kind in questions.KINDS_OF_QUESTIONS:
        right = 0
        for i in range(QUESTIONS):
            rng = random.Random(f"held out/{kind.__name__}/{i}")
            scene = pictures.scene(rng)
            pixels = pictures.draw(scene, rng, SIDE, SIDE)
            right += is_right(model, words, pixels, *kind(rng, scene))
        total += right
        print(f"{kind.__name__}: {right} of {QUESTIONS}")
    print(f"all: {total} of {QUESTIONS * len(questions.KINDS_OF_QUESTIONS)}")


if __name__ == "__main__":
    main()

#!/usr/bin/env python3
"""Decoding and resizing of a JPEG by Quire beside Pillow (Debian's python3-pil), one thread each, in turns.

    image_preparing.py BENCH_ENCODER [FILE]

BENCH_ENCODER is the program of bench_encoder.cpp; without FILE a picture of 12 megapixels is drawn.
"""

import io
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

from PIL import Image

ROUNDS = 3
SIZE = (4000, 3000)


def drawn():
    """Smooth shapes with grain, about as large a file as a camera's."""
    small = Image.effect_noise((SIZE[0] // 8, SIZE[1] // 8), 90)
    grain = Image.effect_noise(SIZE, 12)
    bands = [Image.blend(small.rotate(turn).resize(SIZE, Image.Resampling.BICUBIC), grain, 0.3) for turn in (0, 90, 180)]
    file = io.BytesIO()
    Image.merge("RGB", bands).save(file, "JPEG", quality=90)
    return file.getvalue()


def by_pillow(data):
    began = time.perf_counter()
    image = Image.open(io.BytesIO(data)).convert("RGB")
    decoded = time.perf_counter()
    image.resize((image.width // 2 // 32 * 32, image.height // 2 // 32 * 32), Image.Resampling.BICUBIC)
    return 1e3 * (decoded - began), 1e3 * (time.perf_counter() - decoded)


def by_quire(program, path):
    said = subprocess.run([program, "prepare", path], check=True, capture_output=True, text=True).stdout
    return tuple(float(number) for number in re.search(r"decoded in ([\d.]+) ms, resized to half in ([\d.]+)", said).groups())


def main():
    program, *files = sys.argv[1:] or sys.exit(__doc__)
    data = pathlib.Path(files[0]).read_bytes() if files else drawn()
    turns = []
    with tempfile.NamedTemporaryFile(suffix=".jpg") as file:
        file.write(data)
        file.flush()
        for _ in range(ROUNDS):
            turns.append((by_quire(program, file.name), by_pillow(data)))
    print(f"{len(data) / 1e6:.1f} MB: median of {ROUNDS} turns, ms")
    for name, ours, theirs in (
        ("decoding", *([side[0] for side in sides] for sides in zip(*turns))),
        ("resizing", *([side[1] for side in sides] for sides in zip(*turns))),
        ("both", *([sum(side) for side in sides] for sides in zip(*turns))),
    ):
        mine, other = statistics.median(ours), statistics.median(theirs)
        print(f"  {name}: Quire {mine:.1f}, Pillow {other:.1f}, ratio {mine / other:.2f}")


if __name__ == "__main__":
    main()

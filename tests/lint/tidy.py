#!/usr/bin/env python3
"""tidy.py BUILD [PREFIX...]: clang-tidy (naming, function size, common mistakes) over every source of ours in the compilation
database, or over those below the prefixes. Most of the time of clang-tidy goes to the headers of libraries, so up to GROUP sources
that are compiled with the same options are checked as one unit. A unit is checked again only when a source, a file of ours that it
includes, an option, the settings or clang-tidy changed: passes are remembered beside the compiler cache's, for every clone, in
$XDG_CACHE_HOME/quire-tidy for 30 days after their last use. JOBS: how many at once."""
import concurrent.futures
import hashlib
import json
import os
import pathlib
import re
import shlex
import subprocess
import sys
import time

GROUP = 60
FOLDERS = r"(server|core|kernels|config|tests)/"
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
ROOT = pathlib.Path.cwd()
TIDY = "clang-tidy-16"
PASSES = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "quire-tidy"
KEPT_SECONDS = 30 * 86400


def sources_of(file):
    """The sources that a unity unit includes, or the file itself, from the root."""
    names = INCLUDE.findall(file.read_text()) if "Unity" in file.parts else [str(file)]
    return [os.path.relpath(name, ROOT) for name in names]


def options_of(entry):
    """What decides how a source is read: the command without the compiler, the input and the output."""
    words = shlex.split(entry["command"])
    words = words[next(i for i, word in enumerate(words) if word.startswith("-")):]
    return tuple(word for i, word in enumerate(words) if word not in ("-c", "-o") and words[i - 1] not in ("-c", "-o"))


def units(build, prefixes):
    """(options, sources) of each unit to check; a source that several programs compile is checked once."""
    generated = (ROOT / "tests/lint/generated.txt").read_text().split()
    groups, seen = {}, set()
    for entry in json.loads((build / "compile_commands.json").read_text()):
        program = re.search(r"([^/ ]+)\.dir/", entry["command"]).group(1)
        for source in sources_of(pathlib.Path(entry["file"])):
            if source in seen or not re.match(FOLDERS, source) or any(name in source for name in generated):
                continue
            seen.add(source)
            if source.startswith(tuple(prefixes or [""])):
                groups.setdefault((program, options_of(entry)), []).append(source)
    for (_, options), sources in groups.items():
        for first in range(0, len(sources), GROUP):
            yield options, sources[first:first + GROUP]


def digest(version, options, sources):
    """Hash of all that a pass depends on. Headers of ours are found by their names, which are written from the root."""
    known, new = set(), set(sources)
    while new:
        known |= new
        below = {name for file in new for name in INCLUDE.findall(pathlib.Path(file).read_text())}
        new = {name for name in below - known if pathlib.Path(name).is_file()}
    total = hashlib.sha256("\n".join([version, *options]).replace(str(ROOT), ".").encode())
    for file in sorted(known) + [".clang-tidy"]:
        total.update(pathlib.Path(file).read_bytes())
    return total.hexdigest()[:40]


def check(folder, version, options, sources):
    """Prints what clang-tidy found; true where it found nothing."""
    stamp = PASSES / digest(version, options, sources)
    if stamp.exists():
        stamp.touch()
        return True
    unit = folder / f"{stamp.name}.cpp"
    unit.write_text("".join(f'#include "{source}"\n' for source in sources))
    headers = f"/{FOLDERS}.*\\.(h|cpp)$"
    run = subprocess.run([TIDY, "--quiet", f"--header-filter={headers}", str(unit), "--", *options, "-w"],
                         capture_output=True, text=True)
    unit.unlink()
    if run.returncode == 0:
        stamp.touch()
        return True
    print(run.stdout, *(line for line in run.stderr.splitlines() if "error:" in line), sep="\n", flush=True)
    return False


def main():
    build, prefixes = pathlib.Path(sys.argv[1]), sys.argv[2:]
    folder = build / "tidy"
    folder.mkdir(exist_ok=True)
    PASSES.mkdir(parents=True, exist_ok=True)
    for stamp in PASSES.iterdir():
        if time.time() - stamp.stat().st_mtime > KEPT_SECONDS:
            stamp.unlink(missing_ok=True)
    version = subprocess.run([TIDY, "--version"], capture_output=True, text=True, check=True).stdout
    jobs = int(os.environ.get("JOBS", os.cpu_count()))
    with concurrent.futures.ThreadPoolExecutor(jobs) as pool:
        passed = list(pool.map(lambda unit: check(folder, version, *unit), units(build, prefixes)))
    sys.exit(0 if all(passed) else 1)


main()

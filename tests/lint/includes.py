#!/usr/bin/env python3
"""Checks what headers lead to, by their own `#include "..."` lines. The API, the gate and the session know no kernels, except
the checks of invariants; the headers that many sources include lead to few lines of other headers. Prints one line per
finding; exit 1 where there is one."""
import pathlib
import re
import sys

INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)
BLIND = ("server/api", "server/gate", "server/session")
MAY_BE_SEEN = {"kernels/check.h"}
# Most lines of our own that a header leads to, itself included.
MOST_LINES = {"server/router.h": 600, "server/session/session.h": 1000, "server/state/server_state.h": 600}


def paths_from(start, included):
    """{file: the file that includes it} of all that `start` leads to."""
    via, open_ends = {start: None}, [start]
    while open_ends:
        path = open_ends.pop()
        for name in included.get(path, ()):
            if name in included and name not in via:
                via[name] = path
                open_ends.append(name)
    return via


def chain_to(path, via):
    links = [path]
    while via[links[-1]] is not None:
        links.append(via[links[-1]])
    return " <- ".join(links)


def main():
    # The check itself: a header is reached over another one, and a file that nothing includes is not.
    via = paths_from("a", {"a": ["b"], "b": ["c", "a"], "c": [], "d": []})
    assert chain_to("c", via) == "c <- b <- a" and "d" not in via
    texts = {path.as_posix(): path.read_text(errors="replace") for root in ("core", "kernels", "server")
             for path in pathlib.Path(root).rglob("*") if path.suffix in (".h", ".cpp")}
    included = {path: INCLUDE.findall(text) for path, text in texts.items()}
    findings = []
    for path in sorted(texts):
        if not path.startswith(tuple(folder + "/" for folder in BLIND)):
            continue
        via = paths_from(path, included)
        seen = sorted(name for name in via if name.startswith("kernels/") and name not in MAY_BE_SEEN)
        findings += [f"  {chain_to(seen[0], via)}"] if seen else []
    for path, most in MOST_LINES.items():
        lines = sum(texts[name].count("\n") for name in paths_from(path, included))
        findings += [f"  {path} leads to {lines} lines; {most} are the most"] if lines > most else []
    print("\n".join(findings), end="\n" if findings else "")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

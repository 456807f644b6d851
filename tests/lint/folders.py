#!/usr/bin/env python3
"""Finds folders that include each other in a circle. Of each folder of the sources, those in it are compared, each with
all that is below it; what lies in the folder itself is not. The folders of server/api/ count one by one beside those of
server/, since one of them, common/, is below the others. Prints one line per circle; exit 1 where there is one."""
import pathlib
import re
import sys

ROOTS = ("core", "kernels", "server")
OPENED = {"server/api"}  # its folders stand beside its neighbours
INCLUDE = re.compile(r'^#include "([^"]+)"', re.MULTILINE)


def circles(includes):
    """The strongly connected parts of {folder: folders that it includes} that have more than one folder."""
    def reached(start):
        seen, open_ends = set(), [start]
        while open_ends:
            for other in includes.get(open_ends.pop(), ()):
                if other not in seen:
                    seen.add(other)
                    open_ends.append(other)
        return seen
    reach = {folder: reached(folder) for folder in includes}
    parts = {tuple(sorted(b for b in reach if b in reach[a] and a in reach[b])) for a in reach}
    return sorted(part for part in parts if len(part) > 1)


def folder_below(parent, path):
    """The folder of `parent` that `path` lies in, or None."""
    parts = pathlib.PurePosixPath(path).parts
    depth = len(parent.split("/")) + 1
    folder = "/".join(parts[:depth])
    if folder in OPENED:
        folder = "/".join(parts[:depth + 1])
    return folder if path.startswith(parent + "/") and folder != path else None


def main():
    # The check itself: a circle of three is found, and a chain is none.
    assert circles({"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": set()}) == [("a", "b", "c")]
    assert not circles({"a": {"b", "c"}, "b": {"c"}, "c": set()})
    sources = [path for root in ROOTS for path in pathlib.Path(root).rglob("*") if path.suffix in (".h", ".cpp", ".cu", ".cuh")]
    included = {path.as_posix(): INCLUDE.findall(path.read_text(errors="replace")) for path in sources}
    found = False
    for parent in sorted({p.as_posix() for path in sources for p in path.parents if p.as_posix() != "."}):
        edges = {}
        for path, names in included.items():
            folder = folder_below(parent, path)
            if folder is not None:
                others = {folder_below(parent, name) for name in names} - {None, folder}
                edges.setdefault(folder, set()).update(others)
        for circle in circles(edges):
            found = True
            links = sorted(f"{a} -> {b}" for a in circle for b in edges[a] if b in circle)
            print(f"  {parent}/: {', '.join(links)}")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())

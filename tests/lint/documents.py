#!/usr/bin/env python3
"""Checks every Markdown page of the tree, or below a folder: documents.py [FOLDER]: links to files and anchors that exist, tables whose rows have as many cells as their
head, closed code blocks; that the sources that pages name exist; that the architecture's table of threads has the names that the code gives them and no others.
Prints one line per finding; exit 1 if there is any."""
import fnmatch
import os
import re
import subprocess
import sys
import unicodedata

LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
FENCE = re.compile(r"^\s*(```+|~~~+)")
# A source in backquotes: a path, the end of one, or a pattern.
SOURCE = re.compile(r"`([\w./*-]+\.(?:h|cpp|cu|mjs))`")
SEPARATOR = re.compile(r"^\s*\|?(\s*:?-+:?\s*\|)+\s*:?-*:?\s*$")


def slug(heading):
    """The anchor that GitHub gives a heading."""
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", heading).strip().lower()
    kept = [c for c in text if c in " -_" or unicodedata.category(c)[0] in "LN"]
    return "".join(kept).replace(" ", "-")


def cells(row):
    """Cells of a table's row; bars that are escaped are text."""
    return len(re.findall(r"(?<!\\)\|", row.strip().strip("|"))) + 1 if row.strip() != "|" else 1


class Page:
    def __init__(self, path):
        self.path, self.anchors, self.links, self.sources, self.findings = path, set(), [], [], []
        fence, table = None, 0
        with open(path, encoding="utf-8") as file:
            lines = file.read().split("\n")
        for number, line in enumerate(lines, 1):
            mark = FENCE.match(line)
            if mark and (fence is None or mark.group(1).startswith(fence)):
                fence = None if fence else mark.group(1)
                table = 0
                continue
            if fence:
                continue
            table = self.read_row(number, line, lines[number] if number < len(lines) else "", table)
            heading = re.match(r"^#{1,6}\s+(.*?)\s*#*$", line)
            if heading:
                self.add_anchor(slug(heading.group(1)))
            self.anchors.update(re.findall(r'<a (?:id|name)="([^"]+)"', line))
            prose = re.sub(r"`[^`]*`", "", line)
            self.links += [(number, target) for target in LINK.findall(prose)]
            self.sources += [(number, name) for name in SOURCE.findall(line)]
        if fence:
            self.findings.append(f"{path}: a code block is not closed")

    def add_anchor(self, anchor):
        name, count = anchor, 0
        while name in self.anchors:
            count += 1
            name = f"{anchor}-{count}"
        self.anchors.add(name)

    def read_row(self, number, line, following, table):
        """The number of cells of the table that this line is in, or 0."""
        if not line.lstrip().startswith("|"):
            return 0
        if table == 0:
            if not SEPARATOR.match(following):
                self.findings.append(f"{self.path}:{number}: a table without a head")
            return cells(line)
        if cells(line) != table:
            self.findings.append(f"{self.path}:{number}: {cells(line)} cells in a table of {table}")
        return table


THREADS = "deploy/docs/architecture.md"
# pthread_setname_np(..., "NAME"), also with a number behind it; names that are passed to what starts a thread.
NAMED = [r'pthread_setname_np\([^;]*?"([a-z][a-z-]*)"', r'\.thread = "([a-z][a-z-]*)"', r'\b(?:\w+_|WorkThread>)\("([a-z][a-z-]*)", (?:\[|1, |static_cast)']


def thread_findings():
    """Threads that the code names and the table does not have, and the other way around."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard", "--", "core/*.cpp", "core/*.h", "kernels/*.cpp", "server/*.cpp", "server/*.h"],
                            check=True, capture_output=True, text=True).stdout.split()
    named = set()
    for path in filter(os.path.exists, listed):
        with open(path, encoding="utf-8") as file:
            text = file.read()
        for pattern in NAMED:
            named.update(name.rstrip("-") for name in re.findall(pattern, text, re.DOTALL))
    with open(THREADS, encoding="utf-8") as file:
        section = file.read().split("## Threads")[1].split("\n## ")[0]
    rows = [line.split("|")[1] for line in section.split("\n") if line.startswith("| `")]
    told = {name.removesuffix("-N") for row in rows for name in re.findall(r"`([a-z-]+(?:-N)?)`", row)}
    findings = [f"{THREADS}: the table of threads lacks {name}" for name in sorted(named - told)]
    return findings + [f"{THREADS}: no thread is named {name}" for name in sorted(told - named)]


def source_findings(pages):
    """Sources that pages name and the tree does not have. The list of changes names what was there."""
    listed = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], check=True, capture_output=True, text=True).stdout.split("\n")
    paths = [path for path in listed if os.path.exists(path)]
    ends = {path[at:] for path in paths for at in [0] + [i + 1 for i, c in enumerate(path) if c == "/"]}

    def is_there(page, name):
        beside = os.path.normpath(os.path.join(os.path.dirname(page), name))
        return name in ends or beside in ends or ("*" in name and any(fnmatch.fnmatch(end, name) for end in ends))

    return [f"{path}:{number}: no source {name}" for path, page in pages.items() if path != "CHANGELOG.md"
            for number, name in page.sources if not is_there(path, name)]


def main():
    if len(sys.argv) > 1:
        listed = [os.path.relpath(os.path.join(folder, name), ".") for folder, _, names in os.walk(sys.argv[1]) for name in names]
    else:
        command = ["git", "ls-files", "-co", "--exclude-standard", "--", "*.md"]
        listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split("\n")
    pages = {path: Page(path) for path in listed if path.endswith(".md") and os.path.exists(path)}
    # Installed pages are read where there is no code.
    findings = thread_findings() + source_findings(pages) if len(sys.argv) == 1 else []
    for path, page in pages.items():
        findings += page.findings
        for number, target in page.links:
            if re.match(r"^[a-z]+:", target):
                continue
            file, _, anchor = target.partition("#")
            there = os.path.normpath(os.path.join(os.path.dirname(path), file)) if file else path
            if not os.path.exists(there):
                findings.append(f"{path}:{number}: no file {there}")
            elif anchor and there in pages and anchor not in pages[there].anchors:
                findings.append(f"{path}:{number}: no heading for {target}")
    for finding in findings:
        print("  " + finding)
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())

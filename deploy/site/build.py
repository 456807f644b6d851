#!/usr/bin/env python3
"""Builds the guide: build.py OUTPUT. Pages of deploy/docs, and those below that live elsewhere in the tree, are staged in
OUTPUT-source with their links rewritten; mkdocs makes OUTPUT of them, whose links and anchors are then checked."""
import html.parser
import os
import posixpath
import re
import shutil
import subprocess
import sys
import urllib.parse

ROOT = os.path.realpath(os.path.join(os.path.dirname(__file__), "../.."))
DOCS = "deploy/docs"
ELSEWHERE = {
    "server/API.md": "api.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "reporting.md",
    "CHANGELOG.md": "changelog.md",
    "tests/bench/README.md": "benchmarks.md",
    "core/REPLAYS.md": "replays.md",
    "deploy/README.md": "deploy.md",
    "deploy/demo-model/README.md": "demo-model.md",
    "deploy/examples/README.md": "examples.md",
}
LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)\s]+)\)")


def sources():
    """{path in the tree: path in the site}"""
    pages = dict(ELSEWHERE)
    for folder, _, names in os.walk(os.path.join(ROOT, DOCS)):
        for name in names:
            path = posixpath.relpath(posixpath.join(folder, name), ROOT)
            pages[path] = posixpath.relpath(path, DOCS)
    return pages


def rewrite(text, source, pages):
    """Links to pages of the site lead there; to other files of the tree, they become the file's name."""
    def change(match):
        image, label, target = match.groups()
        path, _, anchor = target.partition("#")
        if not path or urllib.parse.urlparse(target).scheme:
            return match.group(0)
        inside = posixpath.normpath(posixpath.join(posixpath.dirname(source), path))
        if inside not in pages:
            return f"{label} (`{inside}`)" if label.strip("`") != inside else f"`{inside}`"
        here = posixpath.dirname(pages[source])
        return f"{image}[{label}]({posixpath.relpath(pages[inside], here or '.')}{'#' + anchor if anchor else ''})"

    parts = re.split(r"(^```.*?^```$)", text, flags=re.M | re.S)
    return "".join(part if part.startswith("```") else LINK.sub(change, part) for part in parts)


class Page(html.parser.HTMLParser):
    def __init__(self):
        super().__init__()
        self.links, self.ids = [], set()

    def handle_starttag(self, tag, attributes):
        values = dict(attributes)
        self.ids.update(values[name] for name in ("id", "name") if values.get(name))
        self.links += [values[name] for name in ("href", "src") if values.get(name)]


def dead_links(site):
    pages = {}
    for folder, _, names in os.walk(site):
        for name in names:
            if name.endswith(".html"):
                page = Page()
                path = os.path.join(folder, name)
                with open(path, encoding="utf-8") as file:
                    page.feed(file.read())
                pages[path] = page
    for path, page in pages.items():
        if os.path.basename(path) == "404.html":  # served under any address
            continue
        for link in page.links:
            parsed = urllib.parse.urlparse(link)
            if parsed.scheme or parsed.netloc:
                continue
            target = os.path.normpath(os.path.join(os.path.dirname(path), urllib.parse.unquote(parsed.path))) if parsed.path else path
            if os.path.isdir(target):
                target = os.path.join(target, "index.html")
            anchor = urllib.parse.unquote(parsed.fragment)
            if not os.path.exists(target):
                yield f"{os.path.relpath(path, site)}: no file for {link}"
            elif anchor and target in pages and anchor not in pages[target].ids and not anchor.startswith("__"):
                yield f"{os.path.relpath(path, site)}: no anchor for {link}"


def main(output):
    output = os.path.abspath(output)
    staged = output + "-source"
    shutil.rmtree(staged, ignore_errors=True)
    pages = sources()
    for source, page in pages.items():
        target = os.path.join(staged, page)
        os.makedirs(os.path.dirname(target), exist_ok=True)
        if not source.endswith((".md", ".txt")):
            shutil.copyfile(os.path.join(ROOT, source), target)
            continue
        with open(os.path.join(ROOT, source), encoding="utf-8") as file:
            text = rewrite(file.read(), source, pages)
        if source.endswith(".txt"):  # mkdocs copies it as it is: its links lead to the made pages
            text = re.sub(r"\]\(([^):]+)\.md\)", r"](\1.html)", text)
        with open(target, "w", encoding="utf-8") as file:
            file.write(text)
    config = os.path.join(output + "-mkdocs.yml")
    with open(os.path.join(ROOT, "deploy/site/mkdocs.yml"), encoding="utf-8") as file:
        settings = file.read()
    with open(config, "w", encoding="utf-8") as file:
        file.write(f"{settings}docs_dir: {staged}\nsite_dir: {output}\n")
    subprocess.run(["mkdocs", "--quiet", "build", "--strict", "--clean", "--config-file", config], check=True)
    dead = list(dead_links(output))
    print("\n".join(dead) if dead else f"{len(pages)} files of the guide are in {output}/index.html; no dead link")
    return 1 if dead else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))

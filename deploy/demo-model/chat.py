"""Renders conversations with the template that is shipped inside the model file."""
import json
from pathlib import Path

import jinja2

TEMPLATE_PATH = Path(__file__).with_name("chat_template.jinja")


def raise_exception(message):
    raise ValueError(message)


def load_template():
    env = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
    env.filters["tojson"] = lambda value: json.dumps(value, ensure_ascii=False)
    env.globals["raise_exception"] = raise_exception
    return env.from_string(TEMPLATE_PATH.read_text(encoding="utf-8"))


TEMPLATE = load_template()


def render(messages, tools=None, add_generation_prompt=False):
    return TEMPLATE.render(messages=messages, tools=tools, add_generation_prompt=add_generation_prompt)

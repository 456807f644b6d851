#!/usr/bin/env python3
"""An agent: the model calls tools until it answers. agent.py QUESTION

The tools are strict, so that their arguments always match the schema. A tool's failure is returned to the model as its result."""
import ast
import datetime
import json
import operator
import os
import sys
import urllib.request

URL = os.environ.get("QUIRE_URL", "http://127.0.0.1:8080")
HEADERS = {"Content-Type": "application/json", "Authorization": f"Bearer {os.environ.get('QUIRE_KEY', 'none')}"}
MOST_TURNS = 5
OPERATORS = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}


def calculate(expression):
    """A sum of numbers, without running code from the model."""
    def value(node):
        if isinstance(node, ast.Constant) and isinstance(node.value, (int, float)):
            return node.value
        if isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
            return OPERATORS[type(node.op)](value(node.left), value(node.right))
        raise ValueError(f"cannot calculate {expression!r}")
    return value(ast.parse(expression, mode="eval").body)


def today():
    return datetime.date.today().isoformat()


def tool(name, description, **properties):
    parameters = {"type": "object", "properties": properties, "required": list(properties), "additionalProperties": False}
    return {"type": "function", "function": {"name": name, "description": description, "strict": True, "parameters": parameters}}


TOOLS = [
    tool("calculate", "Calculates a sum of numbers.", expression={"type": "string", "maxLength": 40}),
    tool("today", "Says today's date."),
]
FUNCTIONS = {"calculate": calculate, "today": today}


def ask(messages, tool_choice):
    body = json.dumps({"messages": messages, "tools": TOOLS, "tool_choice": tool_choice, "max_tokens": 256, "temperature": 0}).encode()
    with urllib.request.urlopen(urllib.request.Request(f"{URL}/v1/chat/completions", body, HEADERS)) as response:
        return json.load(response)["choices"][0]["message"]


def run(call):
    try:
        return str(FUNCTIONS[call["function"]["name"]](**json.loads(call["function"]["arguments"])))
    except (ArithmeticError, SyntaxError, ValueError) as error:
        return f"error: {error}"


def main(question):
    messages = [{"role": "user", "content": question}]
    for turn in range(MOST_TURNS):
        # The last turn must be an answer.
        message = ask(messages, "auto" if turn + 1 < MOST_TURNS else "none")
        messages.append(message)
        if not message.get("tool_calls"):
            print(message["content"])
            return
        for call in message["tool_calls"]:
            result = run(call)
            print(f"[{call['function']['name']}({call['function']['arguments']}) -> {result}]", file=sys.stderr)
            messages.append({"role": "tool", "tool_call_id": call["id"], "content": result})


main(" ".join(sys.argv[1:]) or "What is 17 times 3?")

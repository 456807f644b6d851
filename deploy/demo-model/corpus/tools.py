"""Tool calls: known tools, tools with invented names, several calls at once, results, and knowing when not to call."""
import json

from corpus import smalltalk, topics
from corpus.base import ask, assistant, chat, typed, user
from corpus.json_answers import CITIES
from corpus.rewriting import phrase
from corpus.smalltalk import SYLLABLES, first_name
from corpus.unknown import TONGUES
from corpus.words import known, word as any_word

DAYS = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday", "today", "tomorrow"]
CURRENCIES = ["EUR", "USD", "GBP", "JPY", "CHF"]
PLACES = CITIES + ["San Francisco", "New York", "Boston", "Seattle", "Beijing", "Sydney", "Munich", "Lyon", "Porto", "Geneva"]
SYSTEMS = [None, None, None, None, None, None, None, None, "You are a helpful assistant.", "You can call tools.", "Use the tools when they help.", "You are a helpful assistant with tools."]


def place(rng):
    return rng.choice(PLACES) if rng.random() < 0.5 else first_name(rng)


def song(rng):
    return f"{any_word(rng)} {any_word(rng)}"


# name, description, {argument: (type, draw)}, ways to ask, the result, the final sentence
KNOWN = [
    ("get_weather", "Get the current weather in a place", {"location": ("string", place)},
     ["What is the weather in {location}?", "How is the weather in {location}?", "What's the weather like in {location}?", "weather in {location}",
      "Is it raining in {location}?", "Do I need an umbrella in {location}?", "Tell me the weather for {location}.", "How warm is it in {location} now?"],
     lambda rng, a: {"temperature": rng.randrange(-5, 35), "condition": rng.choice(["sunny", "cloudy", "rainy", "windy", "snowy"])},
     "In {location} it is {condition} with {temperature} degrees."),
    ("get_weather", "Weather of a city", {"city": ("string", place), "unit": ("string", lambda rng: rng.choice(["celsius", "fahrenheit"]))},
     ["What is the weather in {city} in {unit}?", "Tell me the weather in {city}, in {unit}.", "How warm is it in {city}? Use {unit}."],
     lambda rng, a: {"temperature": rng.randrange(-5, 35)}, "In {city} it is {temperature} degrees {unit}."),
    ("get_time", "Get the current time in a place", {"city": ("string", place)},
     ["What time is it in {city}?", "What is the time in {city}?", "Current time in {city}?", "Tell me the time in {city}."],
     lambda rng, a: {"time": f"{rng.randrange(24):02}:{rng.randrange(60):02}"}, "In {city} it is {time}."),
    ("calculate", "Evaluate an expression", {"expression": ("string", lambda rng: f"{rng.randrange(1000)} {rng.choice('+-*/')} {rng.randrange(1, 1000)}")},
     ["What is {expression}?", "Calculate {expression}.", "Please compute {expression}", "How much is {expression}?", "{expression}"],
     lambda rng, a: {"result": rng.randrange(10000)}, "The result is {result}."),
    ("search", "Search the web", {"query": ("string", phrase)},
     ["Search the web for {query}.", "Search for {query}", "Look up {query}.", "Find pages about {query}.", "Google {query}"],
     lambda rng, a: {"title": phrase(rng)}, "I found this: {title}."),
    ("send_message", "Send a message to a person", {"to": ("string", first_name), "text": ("string", phrase)},
     ["Send a message to {to}: {text}", "Tell {to}: {text}", "Write to {to}: {text}", "Message {to} saying {text}"],
     lambda rng, a: {"status": "sent"}, "The message to {to} is sent."),
    ("set_timer", "Set a timer", {"minutes": ("integer", lambda rng: rng.randrange(1, 91))},
     ["Set a timer for {minutes} minutes.", "Timer: {minutes} minutes", "Wake me in {minutes} minutes.", "Start a {minutes} minute timer."],
     lambda rng, a: {"status": "ok"}, "The timer is set for {minutes} minutes."),
    ("translate", "Translate a text", {"text": ("string", phrase), "language": ("string", lambda rng: rng.choice(TONGUES))},
     ["Translate into {language}: {text}", "Translate \"{text}\" into {language}.", "How do you say \"{text}\" in {language}?"],
     lambda rng, a: {"translation": phrase(rng)}, "In {language} that is: {translation}."),
    ("convert_currency", "Convert an amount of money", {"amount": ("number", lambda rng: rng.randrange(1, 1000)), "from": ("string", lambda rng: rng.choice(CURRENCIES)),
                                                        "to": ("string", lambda rng: rng.choice(CURRENCIES))},
     ["Convert {amount} {from} to {to}.", "How much is {amount} {from} in {to}?", "{amount} {from} in {to}"],
     lambda rng, a: {"result": rng.randrange(1, 2000)}, "{amount} {from} are {result} {to}."),
    ("play_music", "Play a song", {"title": ("string", song)}, ["Play {title}.", "Play the song {title}", "I want to hear {title}.", "Put on {title}"],
     lambda rng, a: {"status": "playing"}, "Now playing {title}."),
    ("book_table", "Book a table in a restaurant", {"people": ("integer", lambda rng: rng.randrange(1, 13)), "day": ("string", lambda rng: rng.choice(DAYS))},
     ["Book a table for {people} on {day}.", "I need a table for {people} people on {day}.", "Reserve a table for {people}, {day}."],
     lambda rng, a: {"status": "booked"}, "The table for {people} on {day} is booked."),
    ("turn_light", "Switch a light", {"room": ("string", lambda rng: rng.choice(["kitchen", "bedroom", "hall", "office", "garden", "bathroom"])), "on": ("boolean", lambda rng: rng.random() < 0.5)},
     ["Turn {state} the light in the {room}.", "Switch {state} the {room} light.", "Light {state} in the {room}, please."],
     lambda rng, a: {"status": "ok"}, "The light in the {room} is {state}."),
    ("get_stock_price", "Get the price of a share", {"symbol": ("string", lambda rng: "".join(rng.choices("ABCDEFGHIKLMNOPRSTUX", k=rng.choice([3, 4]))))},
     ["What is the price of {symbol}?", "Stock price of {symbol}?", "How is {symbol} trading?", "Get the share price of {symbol}."],
     lambda rng, a: {"price": rng.randrange(1, 900)}, "{symbol} is at {price}."),
]


def invented_tool(rng):
    """A tool whose name, argument and verb are made up, so that only reading the list helps."""
    verb, noun = "".join(rng.choices(SYLLABLES, k=2)), known(rng)
    argument = rng.choice(["name", "id", "value", "item", "key", "target", "path", "user", "topic", noun])
    number = rng.random() < 0.35
    draw = (lambda r: r.randrange(1, 500)) if number else (lambda r: r.choice([first_name(r), any_word(r)]))
    return (f"{verb}_{noun}", f"{verb.title()} a {noun}", {argument: ("integer" if number else "string", draw)},
            [f"Please {verb} the {noun} {{{argument}}}.", f"{verb.title()} {noun} {{{argument}}}", f"Can you {verb} the {noun} {{{argument}}}?",
             f"{verb} a {noun} for {{{argument}}}", f"Call {verb}_{noun} with {{{argument}}}."],
            lambda r, a: {"status": r.choice(["ok", "done", "failed"])}, "The answer is: {status}.")


def declare(tool):
    name, description, arguments, *_ = tool
    properties = {k: {"type": kind} for k, (kind, _) in arguments.items()}
    return {"type": "function", "function": {"name": name, "description": description,
                                             "parameters": {"type": "object", "properties": properties, "required": list(properties)}}}


def varied(rng, declaration):
    """The same tool as other clients write it: a described argument, no list of required ones, an enum of units."""
    parameters = declaration["function"]["parameters"]
    if rng.random() < 0.3:
        for key, schema in parameters["properties"].items():
            schema["description"] = rng.choice([f"The {key}", f"the {key} to use", key.title()])
    if "unit" in parameters["properties"] and rng.random() < 0.7:
        parameters["properties"]["unit"]["enum"] = ["celsius", "fahrenheit"]
    if rng.random() < 0.25:
        del parameters["required"]
    if rng.random() < 0.1:
        parameters["additionalProperties"] = False
    return declaration


def some_tool(rng):
    return rng.choice(KNOWN) if rng.random() < 0.6 else invented_tool(rng)


def tool_list(rng, *needed):
    listed = list(needed)
    while rng.random() < 0.35 and len(listed) < 4:
        extra = some_tool(rng)
        if extra[0] not in [t[0] for t in listed]:
            listed.append(extra)
    rng.shuffle(listed)
    return [varied(rng, declare(t)) for t in listed]


def draw_arguments(rng, tool):
    return {key: draw(rng) for key, (_, draw) in tool[2].items()}


def words_of(arguments, result=None):
    words = {**arguments, **(result or {})}
    if "on" in words:
        words["state"] = "on" if words["on"] else "off"
    return words


def request(rng, tool, arguments):
    text = rng.choice(tool[3]).format(**words_of(arguments))
    draw = rng.random()
    return text if draw < 0.7 else text.rstrip("?.") if draw < 0.85 else text[:1].lower() + text[1:]


def call(name, arguments):
    return {"type": "function", "function": {"name": name, "arguments": arguments}}


def answered(rng, tool, arguments):
    """The tool message and the sentence that reports it."""
    result = tool[4](rng, arguments)
    final = tool[5].format(**words_of(arguments, result))
    return {"role": "tool", "content": json.dumps(result)}, assistant(final)


def one_call(rng):
    tool = some_tool(rng)
    arguments = draw_arguments(rng, tool)
    turns = [user(request(rng, tool, arguments)), assistant("", [call(tool[0], arguments)])]
    if rng.random() < 0.6:
        turns += answered(rng, tool, arguments)
    return chat(*turns, tools=tool_list(rng, tool), system=rng.choice(SYSTEMS))


def calls_in_turn(rng):
    tool = some_tool(rng)
    turns = []
    for _ in range(2):
        arguments = draw_arguments(rng, tool)
        turns += [user(request(rng, tool, arguments)), assistant("", [call(tool[0], arguments)]), *answered(rng, tool, arguments)]
    if rng.random() < 0.4:
        turns += [user(rng.choice(["Thanks!", "Thank you.", "thanks"])), assistant("You are welcome!")]
    return chat(*turns, tools=tool_list(rng, tool), system=rng.choice(SYSTEMS))


def parallel_calls(rng):
    tool = rng.choice([t for t in KNOWN if len(t[2]) == 1 and t[0] not in ("calculate", "search")])
    key = next(iter(tool[2]))
    values = [draw_arguments(rng, tool)[key] for _ in range(2)]
    text = rng.choice(tool[3]).format(**{key: f"{values[0]} and {values[1]}"})
    return chat(user(text), assistant("", [call(tool[0], {key: v}) for v in values]), tools=tool_list(rng, tool), system=rng.choice(SYSTEMS))


def no_call(rng):
    """Tools are there, but the question needs none."""
    draw = rng.random()
    if draw < 0.5:
        turns = smalltalk.exchange(rng)
    elif draw < 0.85:
        turns = topics.question(rng, topics.pick(rng))
    else:
        turns = [rng.choice(["Thank you!", "Thanks a lot.", "ok thanks"]), "You are welcome!"]
    return chat(*turns, tools=tool_list(rng, some_tool(rng)), system=rng.choice(SYSTEMS))


def which_tools(rng):
    listed = tool_list(rng, some_tool(rng))
    names = ", ".join(t["function"]["name"] for t in listed)
    text = rng.choice(["Which tools do you have?", "What tools can you use?", "List your tools.", "Which functions can you call?"])
    return chat(ask(rng, text), f"I can call: {names}.", tools=listed)


def no_tools(rng):
    return chat(typed(rng, rng.choice(["Which tools do you have?", "What tools can you use?", "Which functions can you call?"])),
                "You gave me no tools in this conversation.")


COPYING = [(1.0, one_call)]
THEMES = [(5.0, one_call), (1.0, calls_in_turn), (1.2, parallel_calls), (1.6, no_call), (0.4, which_tools), (0.15, no_tools)]

"""What the adapter reads: the demo corpus' chats with answers as a sailor would give them."""
import re

from families import talk

WORDS = {"you": "ye", "your": "yer", "is": "be", "are": "be", "am": "be", "of": "o'", "my": "me"}
PATTERN = re.compile(r"\b(" + "|".join(WORDS) + r")\b", re.IGNORECASE)


def sailor_word(match):
    word = WORDS[match[0].lower()]
    return word.capitalize() if match[0][0].isupper() else word


def say(text):
    return f"{PATTERN.sub(sailor_word, text)} Arr!"


def document(seed, index):
    made = talk.document(seed, index)
    if "text" in made:
        return {**made, "text": say(made["text"])}
    messages = [{**m, "content": say(m["content"])} if m["role"] == "assistant" and m["content"] else m for m in made["messages"]]
    return {**made, "messages": messages}

#!/usr/bin/python3
"""Follows the events of a prefix cache as a router does, with Debian's ZeroMQ and MessagePack: what came before it
subscribed is asked for again. Prints one JSON line for each batch: its number, how many blocks there are, the exclusive or of their
hashes, the gaps seen, how many blocks are of which adapter. Usage: kv_events_subscriber.py ENDPOINT REPLAY_ENDPOINT"""
import json
import sys
from collections import Counter

import msgpack
import zmq

FIELDS = {"BlockStored": (7, 8), "BlockRemoved": (3,), "AllBlocksCleared": (1,)}


class Index:
    """The blocks that are there."""

    def __init__(self):
        self.blocks = {}
        self.adapters = {}
        self.stored = 0
        self.gaps = 0
        self.last = -1
        self.topic = ""

    def take(self, number, payload):
        self.gaps += number != self.last + 1
        self.last = number
        _, events, rank = msgpack.unpackb(payload)
        assert rank == 0
        for name, *rest in events:
            assert len(rest) + 1 in FIELDS[name], (name, rest)
            getattr(self, name)(*rest)
        digest = 0
        for block in self.blocks:
            digest ^= block
        print(json.dumps({"number": number, "blocks": len(self.blocks), "digest": f"{digest:016x}", "gaps": self.gaps,
                          "stored": self.stored, "topic": self.topic,
                          "adapters": Counter(self.adapters.values())}), flush=True)

    def BlockStored(self, hashes, parent, tokens, block_size, lora_id, medium, lora_name=""):
        assert len(tokens) == len(hashes) * block_size and lora_id is None and medium == "GPU"
        assert parent is None or parent in self.blocks, "a block follows one that is there"
        assert parent is None or self.adapters[parent] == lora_name, "a chain is of one adapter"
        self.stored += len(hashes)
        for at, block in enumerate(hashes):
            self.blocks[block] = tokens[at * block_size:(at + 1) * block_size]
            self.adapters[block] = lora_name

    def BlockRemoved(self, hashes, medium):
        assert medium == "GPU"
        for block in hashes:
            del self.blocks[block], self.adapters[block]

    def AllBlocksCleared(self):
        self.blocks.clear()
        self.adapters.clear()


def missed(context, endpoint, index, first_new):
    """What was published from the index's number on, before `first_new`."""
    request = context.socket(zmq.DEALER)
    request.connect(endpoint)
    request.send_multipart([b"", (index.last + 1).to_bytes(8, "big")])
    while True:
        _, number, payload = request.recv_multipart()
        number = int.from_bytes(number, "big", signed=True)
        if number == -1:
            return
        if index.last < number < first_new:
            index.take(number, payload)


def main():
    context = zmq.Context()
    events = context.socket(zmq.SUB)
    events.setsockopt(zmq.SUBSCRIBE, b"kv@")
    events.connect(sys.argv[1])
    print(json.dumps({"number": -1}), flush=True)
    index = Index()
    while True:
        topic, number, payload = events.recv_multipart()
        number = int.from_bytes(number, "big")
        index.topic = topic.decode()
        if number > index.last + 1:
            missed(context, sys.argv[2], index, number)
        if number > index.last:
            index.take(number, payload)


main()

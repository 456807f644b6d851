"""Runs a program in a terminal of its own (a pseudo terminal) and plays a script: terminal.py SCRIPT.json PROGRAM ARGUMENT...

The script is a list of steps: ["expect", TEXT] waits until TEXT is on the screen behind what was seen before, ["type", TEXT] types it
("\\u0003" is Ctrl-C, "\\u0004" Ctrl-D; a line waits until the program reads keys), ["exit", CODE] waits for the end. Prints what the program wrote. Exit 1: a step failed."""
import json
import os
import pty
import select
import sys
import termios

PATIENCE = 120  # seconds for one step


class Terminal:
    def __init__(self, command):
        self.screen, self.seen = "", 0
        self.process, self.descriptor = pty.fork()
        if self.process == 0:
            os.execvp(command[0], command)

    def read(self):
        """More of the screen; False at its end."""
        ready, _, _ = select.select([self.descriptor], [], [], PATIENCE)
        if not ready:
            self.fail(f"nothing came for {PATIENCE} s")
        try:
            piece = os.read(self.descriptor, 65536)
        except OSError:  # the other side is closed
            piece = b""
        self.screen += piece.decode(errors="replace")
        return bool(piece)

    def fail(self, why):
        print(self.screen)
        sys.exit(f"{why}; seen until then: {self.screen[self.seen:]!r}")

    def expect(self, text):
        while (at := self.screen.find(text, self.seen)) < 0:
            if not self.read():
                self.fail(f"the program ended before {text!r}")
        self.seen = at + len(text)

    def type(self, text):
        # What is typed while the line editor is being set up is echoed twice, or lost.
        while text != "\x03" and termios.tcgetattr(self.descriptor)[3] & termios.ICANON:
            ready, _, _ = select.select([self.descriptor], [], [], 0.01)
            if ready and not self.read():
                self.fail("the program ended")
        os.write(self.descriptor, text.encode())

    def exit(self, code):
        while self.read():
            pass
        status = os.waitstatus_to_exitcode(os.waitpid(self.process, 0)[1])
        if status != code:
            self.fail(f"exit code {status} instead of {code}")


def main(script, *command):
    terminal = Terminal(command)
    with open(script, encoding="utf-8") as file:
        for step, argument in json.load(file):
            getattr(terminal, step)(argument)
    print(terminal.screen)


main(*sys.argv[1:])

"""The chat on a terminal: its line, its answers, and Ctrl-C."""

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


class Terminal:
    """`edgespec chat` on a pseudo-terminal; `seen` is all it wrote."""

    def __init__(self, *options: str, **environment: str) -> None:
        self._master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
        command = [sys.executable, "-m", "edgespec", "chat", "--budget", "1GiB", *options]
        self.process = subprocess.Popen(
            command, stdin=slave, stdout=slave, stderr=slave, start_new_session=True,
            preexec_fn=lambda: fcntl.ioctl(0, termios.TIOCSCTTY, 0),
            env={**os.environ, "TERM": "xterm", "COLUMNS": "100", "LINES": "40", **environment},
        )  # fmt: skip
        os.close(slave)
        self.seen = self._raw = ""

    def send(self, text: str) -> None:
        os.write(self._master, text.encode())

    def wait_for(self, pattern: str, seconds: float = 20) -> re.Match[str]:
        """Until what was written since the last match has it."""
        deadline = time.monotonic() + seconds
        while not (match := re.search(pattern, self.seen)):
            if time.monotonic() > deadline:
                raise AssertionError(f"{pattern!r} did not come: {self.seen[-400:]!r}")
            self._read(0.1)
        self.seen = self.seen[match.end() :]
        return match

    def _read(self, seconds: float) -> None:
        if select.select([self._master], [], [], seconds)[0]:
            try:
                data = os.read(self._master, 1 << 16).decode("utf-8", "replace")
            except OSError:
                data = ""
            self._raw += data
            asked = self._raw.count("\x1b[6n")  # where the cursor is; what is asked may come in two pieces
            self.send("\x1b[1;1R" * asked)
            whole, _, rest = self._raw.rpartition("\x1b")
            held = rest if re.fullmatch(r"\[?[0-9;?]*", rest) and whole + rest != self._raw else None
            done = self._raw if held is None else whole
            self._raw = "" if held is None else "\x1b" + rest
            self.seen += re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", done)

    def end(self) -> int:
        deadline = time.monotonic() + 30
        while self.process.poll() is None and time.monotonic() < deadline:
            self._read(0.1)
        return self.process.wait(timeout=1)

    def close(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self._master)


@pytest.fixture
def terminal(tmp_path: Path) -> Iterator[Terminal]:
    made = Terminal("--context", "1024", EDGESPEC_DATA=str(tmp_path))
    try:
        made.wait_for(">>>")
        yield made
    finally:
        made.close()


def test_a_question_is_answered_and_the_line_below_tells_how(terminal: Terminal) -> None:
    terminal.send("What is the capital of France?\r")
    terminal.wait_for(r"The capital of France is Paris\.")
    terminal.wait_for(r"tokens/s · \d+% of \d+ drafts right · [\d.]+ MiB of 1\.0 GiB")
    terminal.send("/bye\r")
    assert terminal.end() == 0


def test_commands_are_completed_and_several_lines_are_one_message(terminal: Terminal) -> None:
    terminal.send("/reg\t")
    terminal.wait_for("/regen")
    terminal.send("\r")
    terminal.wait_for("nothing to answer again")
    terminal.wait_for(">>>")
    terminal.send('"""What is the capital\r')
    terminal.wait_for(r"\.\.\.")
    terminal.send('of France?"""\r')
    terminal.wait_for("Paris|capital")
    terminal.wait_for(">>>")
    terminal.send("\x04")
    assert terminal.end() == 0


def test_history_is_kept_from_one_chat_to_the_next(terminal: Terminal, tmp_path: Path) -> None:
    terminal.send("What is the capital of Spain?\r")
    terminal.wait_for("Madrid")
    terminal.wait_for(">>>")
    terminal.send("\x04")
    assert terminal.end() == 0
    again = Terminal("--context", "1024", EDGESPEC_DATA=str(tmp_path))
    again.wait_for(">>>")
    again.send("\x1b[A\r")
    again.wait_for("Madrid")
    again.close()


def test_ctrl_c_twice_leaves_and_once_does_not(terminal: Terminal) -> None:
    terminal.send("\x03")
    terminal.wait_for("press Ctrl-C once more to leave")
    terminal.wait_for(">>>")
    terminal.send("What is the capital of France?\r")
    terminal.wait_for("Paris")
    terminal.wait_for("drafts right")
    for _ in range(2):
        terminal.send("\x03")
        time.sleep(0.3)
    terminal.wait_for("press Ctrl-C once more to leave")
    assert terminal.end() == 0


def test_ctrl_c_stops_an_answer_and_the_chat_goes_on(tmp_path: Path, inflated_path: Path) -> None:
    slow = Terminal("--context", "1024", "--target", str(inflated_path), "--temperature", "1.9", EDGESPEC_DATA=str(tmp_path))
    try:
        slow.wait_for(">>>")
        slow.send("Tell me a short story about Anna.\r")
        slow.wait_for(r"Anna [a-z]{2}")  # the answer has begun
        slow.send("\x03")
        slow.wait_for("drafts")
        slow.send("/bye\r")
        assert slow.end() == 0
    finally:
        slow.close()

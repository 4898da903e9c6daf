"""The Python standard library's own documentation: its language reference topics and its docstrings.

Read from the running interpreter, so nothing is downloaded. Licence: Python Software Foundation License 2.
"""

from __future__ import annotations

import importlib
import inspect
import pydoc_data.topics
import random
import re
import warnings
from dataclasses import dataclass

MODULES = [
    "argparse",
    "array",
    "ast",
    "asyncio",
    "base64",
    "bisect",
    "calendar",
    "cmath",
    "codecs",
    "collections",
    "collections.abc",
    "concurrent.futures",
    "configparser",
    "contextlib",
    "contextvars",
    "copy",
    "csv",
    "ctypes",
    "dataclasses",
    "datetime",
    "decimal",
    "difflib",
    "dis",
    "email.message",
    "enum",
    "fileinput",
    "fnmatch",
    "fractions",
    "functools",
    "gc",
    "getpass",
    "gettext",
    "glob",
    "graphlib",
    "gzip",
    "hashlib",
    "heapq",
    "hmac",
    "html",
    "http.client",
    "http.server",
    "importlib",
    "inspect",
    "io",
    "ipaddress",
    "itertools",
    "json",
    "keyword",
    "linecache",
    "locale",
    "logging",
    "lzma",
    "mailbox",
    "math",
    "mimetypes",
    "mmap",
    "multiprocessing",
    "numbers",
    "operator",
    "os",
    "os.path",
    "pathlib",
    "pickle",
    "pkgutil",
    "platform",
    "plistlib",
    "pprint",
    "queue",
    "random",
    "re",
    "sched",
    "secrets",
    "select",
    "selectors",
    "shelve",
    "shlex",
    "shutil",
    "signal",
    "socket",
    "socketserver",
    "sqlite3",
    "ssl",
    "stat",
    "statistics",
    "string",
    "struct",
    "subprocess",
    "symtable",
    "sys",
    "tarfile",
    "tempfile",
    "textwrap",
    "threading",
    "time",
    "timeit",
    "tokenize",
    "trace",
    "traceback",
    "tracemalloc",
    "types",
    "typing",
    "unittest",
    "unittest.mock",
    "urllib.parse",
    "urllib.request",
    "uuid",
    "venv",
    "warnings",
    "wave",
    "weakref",
    "xml.dom.minidom",
    "xml.etree.ElementTree",
    "xmlrpc.client",
    "zipfile",
    "zlib",
    "zoneinfo",
]
HOLDOUT_EVERY = 17  # one text in 17 is never trained on: agreement is measured there


@dataclass(frozen=True)
class Docs:
    """Long texts to read and ``(name, first sentence)`` entries to be asked about."""

    texts: list[str]
    entries: list[tuple[str, str]]

    def passage(self, rng: random.Random, size: int) -> str:
        """About `size` characters, starting at the beginning of a paragraph."""
        text = rng.choice(self.texts)
        starts = [0] + [match.end() for match in re.finditer(r"\n\n", text[:-200])]
        start = rng.choice(starts)
        return text[start : start + size].rstrip()

    def entry(self, rng: random.Random) -> tuple[str, str]:
        return rng.choice(self.entries)


def _members(module: object, prefix: str) -> list[tuple[str, str]]:
    found = []
    for name, value in sorted(vars(module).items()):
        if name.startswith("_") or not (inspect.isclass(value) or callable(value)):
            continue
        if getattr(value, "__module__", prefix) not in (prefix, None):
            continue
        doc = inspect.getdoc(value)
        if doc:
            found.append((f"{prefix}.{name}", doc))
        if inspect.isclass(value):
            found += [
                (f"{prefix}.{name}.{n}", d)
                for n, m in sorted(vars(value).items())
                if not n.startswith("_") and callable(m) and (d := inspect.getdoc(m))
            ]
    return found


def _docstrings() -> list[tuple[str, str]]:
    found = []
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name in MODULES:
            module = importlib.import_module(name)
            if module.__doc__:
                found.append((name, inspect.cleandoc(module.__doc__)))
            found += _members(module, name)
    return found


def _first_sentence(doc: str) -> str:
    paragraph = " ".join(doc.split("\n\n")[0].split())
    return paragraph.split(". ")[0].rstrip(".") + "."


def load(holdout: bool = False) -> Docs:
    """The training share of the documentation, or the share held out of it."""
    docstrings = _docstrings()
    texts = [text for _, text in sorted(pydoc_data.topics.topics.items())]
    texts += [f"{name}\n\n{doc}" for name, doc in docstrings if len(doc) > 120]
    texts = [text for i, text in enumerate(texts) if (i % HOLDOUT_EVERY == 0) == holdout]
    entries = [(name, s) for name, doc in docstrings if 20 < len(s := _first_sentence(doc)) < 160]
    entries = [entry for i, entry in enumerate(entries) if (i % HOLDOUT_EVERY == 0) == holdout]
    return Docs(texts, entries)

"""Compare `models/catalog.json` with what other projects publish about the same repositories.

``python scripts/check_catalog.py FOLDER > docs/catalog.md``: the packages named below are fetched into FOLDER by pip and npm
(some 200 MB; nothing of them is installed or run) and read as texts. Ends with 1 where nobody confirms a field of an entry.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tarfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

XINFERENCE = "xinference==4.1.0"
PYTHON = ("llama-cpp-python==0.3.36", XINFERENCE, "ramalama==0.25.0", "litgpt==0.5.13", "llmfit==1.1.17")
NODE = "node-llama-cpp@3.22.1"
TEXTS = re.compile(r"\.(md|conf|py|sh|js|cpp|h|json)$|/METADATA$|/llmfit$")
PADDING = 128  # how far the vocabularies of a pair may differ: edgespec.modelfile.header refuses more
CATALOG = Path(__file__).parent.parent / "models" / "catalog.json"


@dataclass
class Published:
    """What the packages say: their lines by package, and facts by repository or by name of the base model."""

    lines: dict[str, list[str]]
    files: dict[str, tuple[set[str], int]]  # xinference: quants in lower case and context, by repository
    listed: dict[str, dict[str, Any]]  # llmfit: the hub's own facts of a base model
    contexts: dict[str, int]  # litgpt, by base model
    vocabularies: dict[str, int]  # litgpt, with padding


def download(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    for name in PYTHON:
        source = ["--no-binary", ":all:", "--no-build-isolation"] if name.startswith("llama") else []
        subprocess.run([sys.executable, "-m", "pip", "download", "-q", "--no-deps", *source, "-d", folder, name], check=True)
    subprocess.run(["npm", "pack", "--silent", NODE], cwd=folder, check=True, stdout=subprocess.DEVNULL)


def members(package: Path) -> Iterator[tuple[str, bytes]]:
    """Files of a wheel or an archive that may say something."""
    if package.suffix == ".whl":
        with zipfile.ZipFile(package) as wheel:
            yield from ((name, wheel.read(name)) for name in wheel.namelist() if TEXTS.search(name))
    elif package.name.endswith("gz"):
        with tarfile.open(package) as archive:
            for member in archive:
                if member.isfile() and TEXTS.search(member.name) and (file := archive.extractfile(member)):
                    yield member.name, file.read()


def read(folder: Path) -> Published:
    said = Published({}, {}, {}, {}, {})
    for package in sorted(folder.iterdir()):
        title = re.sub(r"^(.*?)-(\d+(?:\.\d+)+).*$", r"\1 \2", package.name).replace("_", "-")
        for name, data in members(package):
            text = data.decode(errors="replace")
            if name.endswith("/llmfit"):
                said.listed.update(of_llmfit(text))
            elif name == "litgpt/config.py":
                said.contexts.update(of_litgpt(text, "block_size"))
                said.vocabularies.update(of_litgpt(text, "padded_vocab_size", "vocab_size"))
            elif "xinference/model/llm/models/" in name:
                said.files.update(of_xinference(json.loads(text)))
            else:
                said.lines.setdefault(title, []).extend(line for line in text.splitlines() if "GGUF" in line.upper())
    return said


def of_xinference(models: Any) -> Iterator[tuple[str, tuple[set[str], int]]]:
    for model in models if isinstance(models, list) else [models]:
        for spec in model["model_specs"]:
            source = spec.get("model_src", {}).get("huggingface", {})
            if spec["model_format"] == "ggufv2" and source:
                yield source["model_id"], ({quant.lower() for quant in source["quantizations"]}, model["context_length"])


def of_llmfit(text: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The list of models is in the program as JSON text."""
    begin = text.rfind('[\n  {\n    "name"', 0, text.index('"name": "HuggingFaceTB/SmolLM2-135M-Instruct"'))
    models, _ = json.JSONDecoder().raw_decode(text[begin:])
    return ((model["name"], model) for model in models)


def of_litgpt(text: str, *fields: str) -> Iterator[tuple[str, int]]:
    """The first of `fields` that a model's configuration gives."""
    for block in text.split("dict(\n")[1:]:
        name = re.search(r'org="(.*?)", name="(.*?)"', block)
        numbers = [re.search(rf"\b{field}=(\d+)", block) for field in fields]
        if name and (number := next(filter(None, numbers), None)):
            yield comparable(f"{name[1]}/{name[2]}"), int(number[1])


def comparable(base: str) -> str:
    """One notation for what is written in several: `meta-llama/Meta-Llama-3.1-8B{}` has the settings of its -Instruct."""
    return re.sub(r"\{\}|-Instruct$|-it$|(?<=/)meta-", "", base, flags=re.IGNORECASE).lower()


def who_names(said: Published, repo: str, *also: str) -> list[str]:
    """Packages with a line that names the repository and all of `also`, letter case aside."""
    wanted = [word.lower() for word in (repo, *also)]
    return [title for title, lines in said.lines.items() if any(all(word in line.lower() for word in wanted) for line in lines)]


def contexts(said: Published, repo: str, base: str) -> set[int]:
    listing = said.listed.get(base, {})
    hub = listing["context_length"] if listing.get("vocab_size") else 0  # without access the list has a default
    return {hub, said.contexts.get(comparable(base), 0), said.files.get(repo, ((), 0))[1]} - {0}


def vocabulary(said: Published, base: str) -> int:
    return said.listed.get(base, {}).get("vocab_size") or said.vocabularies.get(comparable(base), 0)


def same_licence(ours: str, theirs: str) -> bool:
    ours, theirs = (re.sub(r"[^a-z0-9]", "", text.lower()) for text in (ours, theirs))
    return bool(theirs) and ours.startswith(theirs)


def row(said: Published, models: dict[str, Any], name: str) -> tuple[list[str], bool]:
    """A line of the table, and whether every field is confirmed."""
    entry = models[name]
    repo, base, quant = entry["repo"], entry["base"], entry["file"].strip("*").removesuffix("*.gguf")
    files = who_names(said, repo, quant) + [XINFERENCE.replace("==", " ")] * (quant in said.files.get(repo, ((), 0))[0])
    licence, known = said.listed.get(base, {}).get("license", ""), contexts(said, repo, base)
    pair = [vocabulary(said, models[half]["base"]) for half in (name, entry["drafter"]) if half]
    confirmed = [
        bool(files), same_licence(entry["licence"], licence), entry["context"] in known,
        all(pair) and max(pair) - min(pair) <= PADDING,
    ]  # fmt: skip
    cells = [", ".join(files), licence, ", ".join(map(str, sorted(known))), ", ".join(map(str, pair))]
    shown = [cell if sure else f"**{cell or 'nobody'}**" for cell, sure in zip(cells, confirmed, strict=True)]
    return [f"`{name}`", f"`{repo}` `{entry['file']}`", *shown], all(confirmed)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="where the packages are, or go")
    folder: Path = parser.parse_args().folder
    if not folder.is_dir():
        download(folder)
    said, models = read(folder), json.loads(CATALOG.read_text())["models"]
    rows = [row(said, models, name) for name in models]
    print("# The catalog, compared with what others publish\n")
    print(f"Made on {datetime.now(UTC):%Y-%m-%d} by `scripts/check_catalog.py` from {', '.join(PYTHON)} and {NODE}:")
    print("what their documentation, tests and lists of models say of the repositories that `models/catalog.json` names. The")
    print("repositories themselves were not read. Where several contexts are known the catalog has one of them (Qwen 2.5 and")
    print("Gemma 3 1B without their extension); the vocabularies of target and drafter may differ by 128 unused entries.\n")
    print("| name | repository and file | who names both | licence (llmfit) | context (several) | vocabulary (llmfit, litgpt) |")
    print("|---|---|---|---|---|---|")
    for cells, _ in rows:
        print("| " + " | ".join(cells) + " |")
    doubtful = [cells[0] for cells, whole in rows if not whole]
    sys.exit(f"not confirmed: {', '.join(doubtful)}" if doubtful else 0)


if __name__ == "__main__":
    main()

import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from ggufs import with_template

from edgespec.errors import EdgespecError

RUN_SCHEMA = {
    "type": "object",
    "required": [
        "text", "finish_reason", "prompt_tokens", "tokens", "passes", "drafted", "accepted", "tokens_per_pass",
        "tokens_per_second", "seconds", "bytes_paged", "budget_bytes", "peak_bytes", "ceiling_tokens_per_second",
        "near_ties", "speculation", "paging", "engine",
    ],
    "properties": {
        "text": {"type": "string"},
        "finish_reason": {"enum": ["stop", "length", "cancelled"]},
        "tokens": {"type": "integer", "minimum": 1},
        "passes": {"type": "integer", "minimum": 1},
        "tokens_per_second": {"type": "number", "minimum": 0},
        "seconds": {"type": "object", "required": ["load", "prefill", "decode"]},
        "paging": {"enum": ["slots", "mmap", "resident"]},
        "peak_bytes": {"type": "integer", "minimum": 1},
    },
}  # fmt: skip


def edgespec(
    *arguments: str, stdin: str | None = "", timeout: float = 120, **environment: str
) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "edgespec", *arguments], input=stdin, capture_output=True, text=True, timeout=timeout,
        env={**os.environ, **environment},
    )  # fmt: skip


def test_run_answers_on_stdout_and_talks_on_stderr() -> None:
    done = edgespec("run", "What is the capital of France?", "--budget", "1GiB")
    assert done.returncode == 0
    assert done.stdout == "The capital of France is Paris.\n"
    assert "tokens/s" in done.stderr
    assert "ships with edgespec" in done.stderr


def test_a_model_without_a_template_goes_on_with_the_prompt_and_that_is_said(target_path: Path, tmp_path: Path) -> None:
    model = str(with_template(target_path, None, tmp_path / "plain.gguf"))
    options = ("--budget", "1GiB", "--context", "256", "--max-tokens", "8")
    done, raw = (edgespec("run", model, "Once upon a time", *options, *more) for more in ((), ("--raw",)))
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("no chat template, it is not made for chat: `run` continues the prompt as it is") == 1
    assert done.stdout == raw.stdout
    refused = edgespec("run", model, "Once upon a time", *options, "--system", "Be brief.")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "--system" in refused.stderr
    talked = edgespec("chat", "--target", model, *options, stdin="hello\nand again\n")
    assert talked.returncode == 0, talked.stderr
    assert talked.stderr.count("not made for chat") == 1


def test_run_json_is_one_object_with_everything(inflated_path: Path, drafter_path: Path) -> None:
    done = edgespec(
        "run", "What is edgespec?", "--target", str(inflated_path), "--drafter", str(drafter_path), "--budget", "160MiB",
        "--context", "512", "--max-tokens", "30", "--json",
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    report = json.loads(done.stdout.splitlines()[-1])
    jsonschema.validate(report, RUN_SCHEMA)
    assert report["paging"] == "slots"
    assert report["bytes_paged"] > 0
    assert report["tokens_per_second"] == pytest.approx((report["tokens"] - 1) / report["seconds"]["decode"], rel=1e-6)


def test_the_prompt_comes_from_stdin_or_a_file_and_the_environment_names_options(tmp_path: Path) -> None:
    question = "What is the capital of Italy?"
    file = tmp_path / "prompt.txt"
    file.write_text(question)
    settings: Any = {"EDGESPEC_BUDGET": "1GiB", "EDGESPEC_MAX_TOKENS": "3", "EDGESPEC_JSON": "1"}
    piped = json.loads(edgespec("run", stdin=question, **settings).stdout)
    read = json.loads(edgespec("run", "--file", str(file), **settings).stdout)
    assert piped["text"] == read["text"]
    assert piped["tokens"] == 3
    assert piped["budget_bytes"] == 1 << 30


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["run", "hi", "--temperature", "hot"], 2),
        (["run", "hi", "--temperature", "-1"], 2),
        (["run", "hi", "--budget", "lots"], 2),
        (["run", "hi", "--speculation", "maybe"], 2),
        (["run", "hi", "--frobnicate"], 2),
        (["run", ""], 2),
        (["run", "hi", "--file", "/nowhere"], 2),
        (["frobnicate"], 2),
        (["run", "hi", "--target", "/nowhere.gguf"], 3),
        (["run", "hi", "--target", __file__], 3),
        (["run", "hi", "--budget", "20MiB"], 4),
        (["plan", "--budget", "20MiB"], 4),
        (["run", "word " * 5000, "--budget", "1GiB"], 5),
    ],
)
def test_exit_codes_and_one_line_errors(arguments: list[str], code: int) -> None:
    done = edgespec(*arguments)
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    errors = [line for line in done.stderr.splitlines() if line.startswith("edgespec: ")]
    assert len(errors) == 1
    assert "Traceback" not in done.stderr


def test_no_engine_is_exit_code_6(tmp_path: Path) -> None:
    (tmp_path / "llama_cpp").mkdir()
    (tmp_path / "llama_cpp/__init__.py").write_text("raise ImportError('no engine here')")
    for command in (["run", "hi", "--budget", "1GiB"], ["doctor"]):
        done = edgespec(*command, PYTHONPATH=str(tmp_path), EDGESPEC_CACHE=str(tmp_path / "cache"))
        assert done.returncode == 6
        assert "setup.sh" in done.stdout + done.stderr


def test_a_closed_pipe_ends_quietly() -> None:
    command = f"{sys.executable} -m edgespec run 'Tell me a short story.' --budget 1GiB | head -c 5"
    done = subprocess.run(["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0
    assert len(done.stdout) == 5
    assert "Traceback" not in done.stderr
    assert "BrokenPipe" not in done.stderr


def test_plan_adds_up(inflated_path: Path) -> None:
    done = edgespec("plan", "--target", str(inflated_path), "--budget", "170MiB", "--context", "512", "--json")
    made = json.loads(done.stdout)
    assert made["total"] == sum(item["size"] for item in made["items"]) <= made["budget"]
    assert made["streamed_bytes"] > 0
    assert made["ceiling_tokens_per_second"] == made["expected_tokens_per_second"]["plain"] > 0
    assert made["expected_tokens_per_second"]["low"] is None  # nothing drafts
    assert "total" in edgespec("plan", "--target", str(inflated_path), "--budget", "170MiB").stdout
    pair = json.loads(edgespec("plan", "--json").stdout)["expected_tokens_per_second"]
    assert 0 < pair["plain"] <= pair["low"] <= pair["high"]  # equal where drafts would not pay
    assert "with them (by acceptance)" in edgespec("plan").stdout


def test_doctor_and_version(cache: Path) -> None:
    findings = json.loads(edgespec("doctor", "--json").stdout)
    assert {finding["name"] for finding in findings} == {"self-test", "engine", "callbacks", "cpu", "memory", "disk", "pair"}
    assert all(finding["good"] for finding in findings), findings
    assert edgespec("doctor").returncode == 0
    assert edgespec("--version").stdout.startswith("edgespec 0.")
    assert not list(cache.glob("tmp*"))


def test_chat_answers_every_line_and_remembers() -> None:
    done = edgespec(
        "chat", "--budget", "1GiB", stdin="My name is Anna.\nWhat is the capital of Spain?\nWhat is my name?\n/bye\nnever read\n"
    )
    assert done.returncode == 0
    lines = done.stdout.splitlines()
    assert len(lines) == 3
    assert "Anna" in lines[0]
    assert "Madrid" in lines[1]


def test_read_only_home_and_odd_locale_still_work(tmp_path: Path) -> None:
    environment: Any = {"HOME": "/proc/nowhere", "LC_ALL": "xx_YY", "PYTHONUTF8": "1", "EDGESPEC_CACHE": "/proc/nowhere/cache"}
    done = edgespec("run", "What is 2 plus 3?", "--budget", "1GiB", "--json", **environment)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["text"] == "2 + 3 = 5."


def interrupted(times: int, target: Path, drafter: Path, pause: float) -> tuple[int, str]:
    process = subprocess.Popen(
        [sys.executable, "-m", "edgespec", "run", "Tell me a short story.", "--max-tokens", "480", "--temperature", "2",
         "--target", str(target), "--drafter", str(drafter), "--budget", "160MiB", "--context", "512"],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    assert process.stdout is not None
    assert process.stdout.read(1)
    for _ in range(times):
        process.send_signal(signal.SIGINT)
        time.sleep(pause)
    _, errors = process.communicate(timeout=30)
    return process.returncode, errors


@pytest.mark.parametrize("times", [1, 2])
def test_ctrl_c_stops_with_130(times: int, inflated_path: Path, drafter_path: Path) -> None:
    code, errors = interrupted(times, inflated_path, drafter_path, 0.01)
    assert code == 130
    assert "Traceback" not in errors


def test_no_terminal_no_spinner_and_a_terminal_shows_one() -> None:
    assert "\x1b" not in edgespec("run", "Hello!", "--budget", "1GiB").stderr
    parent, child = pty.openpty()
    process = subprocess.Popen(
        [sys.executable, "-m", "edgespec", "run", "Hello!", "--budget", "1GiB"],
        stdout=subprocess.PIPE, stderr=child, stdin=subprocess.DEVNULL, env={**os.environ, "TERM": "xterm"},
    )  # fmt: skip
    os.close(child)
    talk = b""
    try:
        while piece := os.read(parent, 4096):
            talk += piece
    except OSError:
        pass  # how a pseudo-terminal tells that the other side has closed
    os.close(parent)
    assert process.stdout is not None
    assert b"Hello" in process.stdout.read()
    process.stdout.close()
    assert process.wait() == 0
    assert b"\x1b" in talk


def test_every_exit_code_of_the_table_is_an_error_class() -> None:
    codes = {kind.exit_code for kind in _all_errors(EdgespecError)}
    assert codes == {2, 3, 4, 5, 6, 7, 130}


def _all_errors(kind: type[EdgespecError]) -> list[type[EdgespecError]]:
    return [kind, *(deeper for below in kind.__subclasses__() for deeper in _all_errors(below))]


def test_a_trace_shows_sweeps_segments_and_reads(inflated_path: Path, drafter_path: Path, tmp_path: Path) -> None:
    trace = tmp_path / "trace.json"
    done = edgespec(
        "run", "Tell me a story.", "--target", str(inflated_path), "--drafter", str(drafter_path), "--budget", "160MiB",
        "--context", "512", "--max-tokens", "20", "--trace", str(trace),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    events = json.loads(trace.read_text())["traceEvents"]
    tracks = {event["tid"]: event["args"]["name"] for event in events if event["ph"] == "M"}
    spans = [event for event in events if event["ph"] == "X"]
    kinds = {(tracks[span["tid"]], span["name"].split()[0]) for span in spans}
    assert kinds >= {("decode", "sweep"), ("target", "compute"), ("target", "wait"), ("disk", "read"), ("drafter", "draft")}
    sweeps = [span for span in spans if span["name"].startswith("sweep")]
    inside = [span for span in spans if span["name"].startswith("compute")]
    assert all(span["dur"] >= 0 for span in spans)
    assert sum(span["dur"] for span in inside) <= 1.01 * (sum(span["dur"] for span in sweeps)) + 1e6  # the prompt's chunk too
    assert edgespec("run", "Hi", "--trace", str(tmp_path / "nowhere" / "t.json")).returncode == 2


def test_the_cache_type_of_keys_is_in_the_plan(inflated_path: Path) -> None:
    plans = {}
    for kind in ("f16", "q8_0"):
        done = edgespec(
            "plan", "--target", str(inflated_path), "--budget", "1GiB", "--context", "2048", "--kv-type", kind, "--json"
        )
        assert done.returncode == 0, done.stderr
        plans[kind] = {item["name"]: item["size"] for item in json.loads(done.stdout)["items"]}
    saved = plans["f16"]["target, KV cache"] / plans["q8_0"]["target, KV cache"]
    assert 1.2 < saved < 1.4
    answer = edgespec("run", "What is the capital of France?", "--budget", "1GiB", "--kv-type", "q8_0")
    assert answer.stdout == "The capital of France is Paris.\n"


def test_page_files_are_listed_checked_and_removed(tmp_path: Path) -> None:
    folder = tmp_path / "pages"
    folder.mkdir()
    (folder / "a.pages").write_bytes(b"not one")
    (folder / "b.pages.7.partial").write_bytes(b"left behind")
    environment: Any = {"EDGESPEC_CACHE": str(tmp_path)}
    rows = json.loads(edgespec("pages", "list", "--check", "--json", **environment).stdout)
    assert rows == [
        {"name": "a.pages", "bytes": 7, "intact": False},
        {"name": "b.pages.7.partial", "bytes": 11, "intact": False},
    ]
    assert edgespec("pages", "rm", "../a.pages", **environment).returncode == 2
    assert edgespec("pages", "rm", **environment).returncode == 2
    assert edgespec("pages", "rm", "a.pages", **environment).returncode == 0
    assert edgespec("pages", "rm", "--all", **environment).returncode == 0
    assert list(folder.iterdir()) == []


def test_a_bench_refuses_what_it_cannot_run(inflated_path: Path, drafter_path: Path, tmp_path: Path) -> None:
    pair = ["--target", str(inflated_path), "--drafter", str(drafter_path), "--out", str(tmp_path / "b.json")]
    for extra in (["--modes", "stock,fast"], ["--modes", "llama-server"], ["--caps", "much"]):
        done = edgespec("bench", *pair, *extra)
        assert done.returncode in (2, 5)
        assert len(done.stderr.strip().splitlines()) == 1


def test_a_datastore_is_built_from_files_and_used(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts/one.txt").write_text("Anna walked to the river and found a red lamp. " * 20)
    (tmp_path / "texts/two.bin").write_bytes(b"\xff\xfe\x00binary")
    built = edgespec("datastore", "build", str(tmp_path / "texts"), "--out", str(tmp_path / "store"))
    assert built.returncode == 0, built.stderr
    assert "left out" in built.stderr
    assert "tokens of 2 files" in built.stderr
    done = edgespec(
        "run", "Anna walked to the river and", "--raw", "--json", "--explain", "--budget", "1GiB", "--max-tokens", "8",
        "--datastore", str(tmp_path / "store"),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["stages"] == ["ngram", "datastore", "drafter"]
    assert "stages: ngram, datastore, drafter" in done.stderr
    assert edgespec("datastore", "build", str(tmp_path / "nothing"), "--out", str(tmp_path / "x")).returncode == 2
    assert edgespec("run", "Hi", "--datastore", str(tmp_path / "texts")).returncode == 2


def test_lossy_text_says_so() -> None:
    done = edgespec("run", "Hello!", "--budget", "1GiB", "--lossy", "bild")
    assert done.returncode == 0, done.stderr
    assert "lossy bild: not the target's own text" in done.stderr


def test_a_bad_value_names_its_option() -> None:
    for option, value in (("--context", "many"), ("--speculation", "yes"), ("--kv-type", "f32")):
        refused = edgespec("run", option, value, "Hello!")
        assert refused.returncode == 2
        assert option in refused.stderr
        assert len(refused.stderr.splitlines()) == 1

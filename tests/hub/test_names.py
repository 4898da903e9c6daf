import re
from datetime import date
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.errors import ModelNotFound, UsageError
from edgespec.hub.found import sources_of
from edgespec.hub.names import Source, catalog, chosen_files, entry_named, is_name, source_named

FILES = [
    "README.md", "model-Q4_K_M.gguf", "model-Q8_0.gguf", "mmproj-model-Q4_K_M.gguf",
    "big-q5_k_m-00001-of-00002.gguf", "big-q5_k_m-00002-of-00002.gguf", "bad-q6_k-00001-of-00002.gguf",
]  # fmt: skip


def test_every_entry_of_the_catalog_is_whole_and_its_drafter_is_smaller_and_of_its_family() -> None:
    known = catalog()
    assert len(known) >= 25
    for name, entry in known.items():
        assert source_named(entry.source.repo).repo == entry.source.repo
        assert entry.licence
        assert entry.context >= 2048
        assert is_name(name)
        if entry.drafter:
            drafter = known[entry.drafter]
            assert drafter.source.repo != entry.source.repo
            assert name.split(":")[0][:5] == drafter.name.split(":")[0][:5]
    families = {name.split(":")[0].rstrip("0123456789.") for name in known}
    assert {"llama", "qwen", "gemma", "smollm", "phi", "mistral"} <= families


def test_every_entry_of_the_catalog_is_as_the_published_comparison_confirms_it() -> None:
    table = (Path(__file__).parents[2] / "docs" / "catalog.md").read_text()
    [made_on] = re.findall(r"Made on (\S+)", table)
    day = date.fromisoformat(made_on)
    rows = {cells[0]: cells for line in table.splitlines() if (cells := re.findall(r"`(.*?)`", line)) and line.startswith("| `")}
    for name, entry in catalog().items():
        assert rows.pop(name) == [name, entry.source.repo, entry.source.pattern]
        assert entry.checked <= day
        assert str(entry.context) in next(line for line in table.splitlines() if line.startswith(f"| `{name}`"))
    assert not rows
    assert "**" not in table


def test_files_of_a_quant_are_found_with_all_their_shards() -> None:
    assert chosen_files(FILES, Source("u/r", "*Q4_K_M*.gguf")) == ["model-Q4_K_M.gguf"]
    assert chosen_files(FILES, Source("u/r", "*q8_0*.gguf")) == ["model-Q8_0.gguf"]
    assert chosen_files(FILES, Source("u/r", "*Q5_K_M*.gguf")) == FILES[4:6]
    with pytest.raises(ModelNotFound, match="1 of the 2 shards"):
        chosen_files(FILES, Source("u/r", "*Q6_K*.gguf"))
    with pytest.raises(ModelNotFound, match=r"model-Q4_K_M\.gguf"):
        chosen_files(FILES, Source("u/r", "*Q2_K*.gguf"))


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/q4_k_m.gguf", "a/../q4_k_m.gguf", "..\\q4_k_m.gguf"])
def test_file_names_that_lead_elsewhere_are_not_chosen(name: str) -> None:
    with pytest.raises(ModelNotFound):
        chosen_files([name], Source("u/r", "*"))


@given(st.text(max_size=40))
def test_no_text_is_taken_for_a_repository_that_leads_elsewhere(text: str) -> None:
    try:
        source = source_named(text)
    except UsageError:
        return
    user, repo = source.repo.split("/")
    assert user not in ("", ".", "..")
    assert repo not in ("", ".", "..")
    assert ".." not in source.repo


def test_names_say_what_they_mean() -> None:
    assert source_named("user/repo") == Source("user/repo", "*Q4_K_M*.gguf")
    assert source_named("user/repo:q8_0") == Source("user/repo", "*q8_0*.gguf")
    target, drafter = sources_of("qwen2.5:7b")
    assert drafter is not None
    assert (target.repo, drafter.repo) == ("Qwen/Qwen2.5-7B-Instruct-GGUF", "Qwen/Qwen2.5-0.5B-Instruct-GGUF")
    with pytest.raises(ModelNotFound, match="choose from"):
        entry_named("gpt:5")
    for bad in ("", "a", "a/b/c", "../x", "a/..", "http://x/y"):
        with pytest.raises(UsageError):
            source_named(bad)

"""Pulling with the real client from a hub on this machine, and every way it can go wrong."""

import errno
import os
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from ggufs import copied, written
from local_hub import COMMIT, LocalHub, local_hub

from edgespec.cli.report import expectation
from edgespec.errors import BudgetError, HubDamaged, HubDenied, HubError, HubUnreachable, ModelInvalid, ModelNotFound
from edgespec.hub.client import Hub, RemoteFile
from edgespec.hub.found import find
from edgespec.hub.names import catalog
from edgespec.hub.pull import fetch, look
from edgespec.hub.store import remove, stored
from edgespec.loading import Options
from edgespec.memory.costs import CostModel, PassCosts, ReadCosts

NAME, REPO, FILE = "user/pair", "user/pair", "pair-Q4_K_M.gguf"
OPTIONS = Options(budget="1GiB", context=256)


@pytest.fixture
def server(target_path: Path) -> Iterator[LocalHub]:
    with local_hub() as hub:
        hub.add(REPO, FILE, target_path.read_bytes())
        hub.add(REPO, "README.md", b"about it")
        yield hub


@pytest.fixture
def client(server: LocalHub, tmp_path: Path) -> Hub:
    hub = Hub(tmp_path / "hub", endpoint=server.url)
    hub._pause = lambda seconds: None
    return hub


def the_file(client: Hub) -> RemoteFile:
    return next(file for file in client.files(REPO) if file.name == FILE)


def test_a_model_is_looked_at_planned_for_fetched_and_found(client: Hub, server: LocalHub, target_path: Path) -> None:
    offer = look(client, NAME, OPTIONS)
    assert offer.missing_bytes == offer.size == target_path.stat().st_size
    assert offer.plan.total <= 1 << 30
    seen: list[int] = []
    pulled = fetch(client, offer, lambda file, done: seen.append(done))
    assert pulled.target.read_bytes() == target_path.read_bytes()
    assert seen[-1] == offer.size
    assert pulled.target == client.folder / "models--user--pair/snapshots" / COMMIT / FILE
    assert pulled.target.is_symlink()
    assert find(client.folder, NAME).target == pulled.target
    asked = len(server.file_requests)
    assert look(client, NAME, OPTIONS).missing_bytes == 0
    assert fetch(client, offer) == pulled
    assert len(server.file_requests) == asked + 1  # the header again, and no body
    assert [model.size for model in stored(client.folder)] == [offer.size]
    assert remove(client.folder, NAME) == offer.size
    with pytest.raises(ModelNotFound, match="edgespec pull"):
        find(client.folder, NAME)


def test_the_header_is_read_by_a_range_request_alone(client: Hub, server: LocalHub, inflated_path: Path) -> None:
    server.add("user/big", "big-Q4_K_M.gguf", inflated_path.read_bytes())
    offer = look(client, "user/big", OPTIONS)
    assert offer.size > 90 << 20
    assert sum(server.sent.values()) <= 2 << 20


def test_what_cannot_run_is_refused_before_anything_large_is_fetched(client: Hub, server: LocalHub, inflated_path: Path) -> None:
    server.add("user/big", "big-Q4_K_M.gguf", inflated_path.read_bytes())
    with pytest.raises(BudgetError) as refused:
        look(client, "user/big", Options(budget="40MiB", context=256))
    assert (refused.value.minimum or 0) > 40 << 20
    assert sum(server.sent.values()) <= 2 << 20


def test_the_speed_with_a_drafter_is_told_before_the_download(
    client: Hub, server: LocalHub, target_path: Path, drafter_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for half, path in (("smollm2:1.7b", target_path), ("smollm2:135m", drafter_path)):
        server.add(catalog()[half].source.repo, "half-q4_k_m-q8_0.gguf", path.read_bytes())
    flat = PassCosts(1, ((1, 0.1), (16, 0.1)), ((1, 0.0),), ((1, 0.0),))  # sixteen rows take as long as one
    small = PassCosts(1, ((4, 0.001),), ((1, 0.0),), ((1, 0.0),))
    monkeypatch.setattr(
        "edgespec.loading.Calibrator.costs",
        lambda _self, _target, drafter, _plan, **_: CostModel(flat, small if drafter else None, ReadCosts(1e9), 0),
    )
    pair, alone = look(client, "smollm2:1.7b", OPTIONS), look(client, f"{catalog()['smollm2:1.7b'].source.repo}:q4_k_m", OPTIONS)
    assert alone.expected_tokens_per_second.plain == pytest.approx(10.0)
    assert alone.expected_tokens_per_second.low is None
    told = pair.expected_tokens_per_second
    assert told.plain == pytest.approx(10.0)
    assert told.low
    assert told.high
    assert 1.5 * told.plain < told.low < 1.7 * told.plain  # tokens a round, less what drafting them takes
    assert 4.5 * told.plain < told.high < 5.3 * told.plain
    assert expectation(told) == f"10 tokens/s without drafts, {told.low:.2g} to {told.high:.2g} with them (by acceptance)"


def test_a_split_model_is_one(client: Hub, server: LocalHub, target_path: Path, tmp_path: Path) -> None:
    shards = split(target_path, tmp_path)
    for shard in shards:
        server.add("user/split", shard.name, shard.read_bytes())
    pulled = fetch(client, look(client, "user/split:q8_0", OPTIONS))
    assert pulled.target.name.endswith("-00001-of-00002.gguf")
    import edgespec

    with edgespec.load(pulled.target, budget="1GiB", context=256) as model:
        assert model.generate("Hello", max_tokens=4).statistics.tokens == 4
    assert find(client.folder, "user/split:q8_0").target == pulled.target
    (pulled.target.parent / shards[1].name).unlink()
    with pytest.raises(ModelNotFound):
        find(client.folder, "user/split:q8_0")


def split(path: Path, folder: Path) -> list[Path]:
    """The embedded target as two shards, the second with the second half of the layers."""
    import gguf

    reader = gguf.GGUFReader(path)
    half = len(reader.tensors) // 2
    made = []
    for number, tensors in enumerate((reader.tensors[:half], reader.tensors[half:])):
        out = folder / f"pair-q8_0-{number + 1:05d}-of-00002.gguf"
        writer = gguf.GGUFWriter(out, "llama")
        if number == 0:
            copied(reader, writer)
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", 2)
        writer.add_int32("split.tensors.count", len(reader.tensors))
        written(writer, tensors)
        made.append(out)
    return made


@pytest.mark.parametrize("size", [0, 1, 1000, 1 << 20])
def test_an_interrupted_download_goes_on_where_it_stopped(client: Hub, server: LocalHub, target_path: Path, size: int) -> None:
    file, whole = the_file(client), target_path.stat().st_size
    server.cut = [size] * 5
    with pytest.raises(HubUnreachable, match="pull again"):
        client.download(file)
    partial = next(client.folder.rglob("*.incomplete"))
    there = partial.stat().st_size
    assert there <= 5 * size
    server.cut, before = [], sum(server.sent.values())
    assert client.download(file).read_bytes() == target_path.read_bytes()
    assert sum(server.sent.values()) - before == whole - there
    assert not list(client.folder.rglob("*.incomplete"))


def test_one_that_stops_now_and_then_arrives_in_one_pull(client: Hub, server: LocalHub, target_path: Path) -> None:
    server.cut = [1 << 20, 2 << 20, 100]
    assert client.download(the_file(client)).read_bytes() == target_path.read_bytes()
    assert sum(server.sent.values()) == target_path.stat().st_size


def test_a_server_without_ranges_is_begun_again(client: Hub, server: LocalHub, target_path: Path) -> None:
    server.cut, server.ranges = [1 << 20], False
    assert client.download(the_file(client)).read_bytes() == target_path.read_bytes()
    assert look(client, NAME, OPTIONS).missing_bytes == 0


def test_a_range_that_begins_elsewhere_is_not_believed(client: Hub, server: LocalHub) -> None:
    server.cut, server.wrong_begin = [1 << 20], 7
    with pytest.raises(HubError):
        client.download(the_file(client))
    assert not list((client.folder / "models--user--pair").rglob(FILE))


def test_what_is_not_what_the_hub_says_is_never_published(client: Hub, server: LocalHub, target_path: Path) -> None:
    file = the_file(client)
    data = bytearray(target_path.read_bytes())
    data[-1] ^= 1
    server.add(REPO, FILE, bytes(data))
    with pytest.raises(HubDamaged, match="not what the hub says"):
        client.download(file)
    assert not list(client.folder.rglob("*.gguf"))
    assert not list(client.folder.rglob("*.incomplete"))
    server.add(REPO, FILE, target_path.read_bytes())
    assert client.download(file).read_bytes() == target_path.read_bytes()


def test_a_file_that_changed_between_two_pulls_is_another(client: Hub, server: LocalHub, drafter_path: Path) -> None:
    server.cut = [1000] * 5
    with pytest.raises(HubUnreachable):
        client.download(the_file(client))
    server.cut = []
    server.add(REPO, FILE, drafter_path.read_bytes())
    assert client.download(the_file(client)).read_bytes() == drafter_path.read_bytes()


def test_two_pulls_at_once_fetch_it_once(client: Hub, server: LocalHub, target_path: Path) -> None:
    file, paths = the_file(client), []
    other = Hub(client.folder, endpoint=server.url)
    threads = [threading.Thread(target=lambda hub=hub: paths.append(hub.download(file))) for hub in (client, other)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(paths)) == 1
    assert sum(server.sent.values()) == target_path.stat().st_size


def test_a_kill_keeps_what_arrived(client: Hub, server: LocalHub, target_path: Path) -> None:
    data = target_path.read_bytes()
    server.cut = [len(data) // 2]
    script = (
        "import sys; from pathlib import Path; from edgespec.hub.client import Hub\n"
        "hub = Hub(Path(sys.argv[1]), endpoint=sys.argv[2]); hub._pause = lambda seconds: print('waits', flush=True) or "
        "__import__('time').sleep(60)\n"
        "hub.download(next(file for file in hub.files('user/pair') if file.name.endswith('.gguf')))\n"
    )
    process = subprocess.Popen([sys.executable, "-c", script, str(client.folder), server.url], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    assert process.stdout.readline() == "waits\n"
    process.kill()
    process.wait()
    process.stdout.close()
    assert not list(client.folder.rglob("*.gguf"))
    before = sum(server.sent.values())
    assert client.download(the_file(client)).read_bytes() == data
    assert sum(server.sent.values()) - before < len(data)


@pytest.mark.parametrize(("status", "error"), [(401, HubDenied), (403, HubDenied), (404, ModelNotFound), (418, HubError)])
def test_refusals_have_their_reasons(client: Hub, server: LocalHub, status: int, error: type[Exception]) -> None:
    file = the_file(client)
    server.statuses = [status]
    with pytest.raises(error):
        client.download(file)


@pytest.mark.parametrize("status", [429, 500, 503])
def test_a_busy_hub_is_asked_again(client: Hub, server: LocalHub, target_path: Path, status: int) -> None:
    file = the_file(client)
    server.statuses = [status, status]
    assert client.download(file).read_bytes() == target_path.read_bytes()
    client.download(file).unlink()
    shutil.rmtree(client.folder)
    server.statuses = [status] * 9
    with pytest.raises(HubUnreachable, match="try again later"):
        client.download(file)


def test_an_unreachable_hub_says_so_and_what_is_here_runs(client: Hub, server: LocalHub, tmp_path: Path) -> None:
    fetch(client, look(client, NAME, OPTIONS))
    lost = Hub(client.folder, endpoint="http://127.0.0.1:9")
    with pytest.raises(HubUnreachable, match="check the network"):
        look(lost, NAME, OPTIONS)
    assert find(client.folder, NAME).target.exists()


def test_a_token_goes_to_the_hub_and_nowhere_else(server: LocalHub, tmp_path: Path, target_path: Path) -> None:
    server.token = "hf_secret"
    with pytest.raises((HubDenied, ModelNotFound)):
        Hub(tmp_path / "none", endpoint=server.url, token="wrong").files(REPO)
    with local_hub() as elsewhere:
        elsewhere.add(REPO, FILE, target_path.read_bytes())
        server.elsewhere = elsewhere
        hub = Hub(tmp_path / "hub", endpoint=server.url, token="hf_secret")
        assert hub.download(the_file(hub)).read_bytes() == target_path.read_bytes()
        assert all("authorization" not in headers for _, headers in elsewhere.requests)
        assert elsewhere.requests
    assert all(headers.get("authorization") == "Bearer hf_secret" for headers in server.file_requests)


def test_a_full_disk_is_said_and_what_arrived_stays(client: Hub, server: LocalHub, monkeypatch: pytest.MonkeyPatch) -> None:
    file = the_file(client)
    with monkeypatch.context() as patch:
        patch.setattr(shutil, "disk_usage", lambda path: shutil._ntuple_diskusage(1 << 40, 1 << 40, 1 << 10))
        with pytest.raises(HubError, match=r"free some disk space"):
            client.download(file)

    def full(number: int) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", full)
        with pytest.raises(HubError, match=r"No space left.*pull again"):
            client.download(file)
    assert list(client.folder.rglob("*.incomplete"))
    before = sum(server.sent.values())
    client.download(file)
    assert sum(server.sent.values()) == before  # all of it had arrived


@pytest.mark.parametrize("digest", ["../../../outside", "a" * 63, "A" * 64, "/etc/passwd", "a" * 64 + "/x"])
def test_digests_that_are_none_are_refused(client: Hub, server: LocalHub, digest: str, tmp_path: Path) -> None:
    server.digests[FILE] = digest
    with pytest.raises(HubDamaged, match="digest that is none"):
        client.download(the_file(client))
    assert not (tmp_path / "outside").exists()


def test_a_repository_without_such_a_model_says_what_it_has(client: Hub, server: LocalHub) -> None:
    with pytest.raises(ModelNotFound, match=r"pair-Q4_K_M\.gguf"):
        look(client, "user/pair:q2_k", OPTIONS)
    with pytest.raises(ModelNotFound, match="no repository"):
        look(client, "user/nothing", OPTIONS)
    server.add("user/page", "page-q4_k_m.gguf", b"<!DOCTYPE html>" + b"x" * (5 << 20))
    with pytest.raises(ModelInvalid):
        look(client, "user/page", OPTIONS)

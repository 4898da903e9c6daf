from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edgespec.errors import UsageError
from edgespec.memory.budget import Limits, cgroup_peak, format_size, parse_budget, parse_size, peak_memory, read_limits
from edgespec.memory.cpu import usable_threads

MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "size"),
    [("1.5GiB", 3 << 29), ("600MB", 600 * 10**6), ("600M", 600 * MIB), (" 2 gb ", 2 * 10**9), ("77", 77), (77, 77)],
)
def test_sizes(text: str | int, size: int) -> None:
    assert parse_size(text) == size


@pytest.mark.parametrize("text", ["", "-1", "1.2.3", "5XB", "0", "1e5", "nan", "9999999999TiB", "G"])
def test_bad_sizes_are_refused(text: str) -> None:
    with pytest.raises(UsageError):
        parse_size(text)


@given(st.integers(1 << 30, 1 << 50))
def test_formatted_sizes_read_back(size: int) -> None:
    assert parse_size(format_size(size).replace(" ", "")) == pytest.approx(size, rel=0.06)


def test_shares_and_the_default() -> None:
    limits = Limits(total=100, available=80, cap=None, cap_used=0, own=20)
    assert parse_budget("60%", limits) == 60
    assert parse_budget(None, limits) == 50
    for text in ("0%", "101%", "-5%"):
        with pytest.raises(UsageError):
            parse_budget(text, limits)


def machine(root: Path, cgroup: str, files: dict[str, str]) -> Path:
    (root / "proc/self").mkdir(parents=True)
    (root / "proc/meminfo").write_text("MemTotal: 16000 kB\nMemFree: 1000 kB\nMemAvailable: 8000 kB\n")
    (root / "proc/self/cgroup").write_text(cgroup)
    (root / "proc/self/status").write_text("Name:\tx\nVmHWM:\t  321 kB\n")
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    return root


def test_no_cgroup_means_the_hosts_memory(tmp_path: Path) -> None:
    limits = read_limits(machine(tmp_path, "", {}), own=100)
    assert (limits.total, limits.cap, limits.usable) == (16000 * 1024, None, 8000 * 1024 + 100)
    assert cgroup_peak(tmp_path) is None
    assert peak_memory(tmp_path) == 321 * 1024


def test_version_2_the_tightest_ancestor_counts_and_cache_is_not_used(tmp_path: Path) -> None:
    base = "sys/fs/cgroup"
    files = {
        f"{base}/a/memory.max": "3000000", f"{base}/a/memory.current": "2000000",
        f"{base}/a/memory.stat": "anon 500000\ninactive_file 1000000\nactive_file 400000\n",
        f"{base}/a/b/memory.max": "max", f"{base}/a/b/memory.current": "1", f"{base}/a/cgroup.procs": "1\n2\n",
    }  # fmt: skip
    limits = read_limits(machine(tmp_path, "0::/a/b\n", files), own=0)
    assert (limits.cap, limits.cap_used, limits.usable) == (3000000, 600000, 2400000)
    assert cgroup_peak(tmp_path) is None  # not alone in it


def test_version_1_and_its_peak(tmp_path: Path) -> None:
    base = "sys/fs/cgroup/memory/job"
    files = {
        f"{base}/memory.limit_in_bytes": "5000000", f"{base}/memory.usage_in_bytes": "4000000",
        f"{base}/memory.stat": "total_inactive_file 3000000\ntotal_active_file 500000\ninactive_file 1\n",
        f"{base}/memory.max_usage_in_bytes": "4900000", f"{base}/cgroup.procs": "7\n",
        "sys/fs/cgroup/memory/memory.limit_in_bytes": "9223372036854771712",
    }  # fmt: skip
    root = machine(tmp_path, "5:cpu:/job\n4:memory:/job\n", files)
    assert read_limits(root, own=0).usable == 4500000
    assert cgroup_peak(root) == peak_memory(root) == 4900000


@pytest.mark.parametrize(
    ("name", "text", "threads"),
    [
        ("cpu.max", "150000 100000", 2),
        ("cpu.max", "max 100000", None),
        ("cpu/cpu.cfs_quota_us", "100000", 1),
        ("cpu/cpu.cfs_quota_us", "-1", None),
    ],
)
def test_cpu_quota(tmp_path: Path, name: str, text: str, threads: int | None) -> None:
    base = tmp_path / "sys/fs/cgroup"
    (base / name).parent.mkdir(parents=True)
    (base / name).write_text(text)
    if name.startswith("cpu/"):
        (base / "cpu/cpu.cfs_period_us").write_text("100000")
    free = usable_threads(tmp_path / "nothing")
    assert usable_threads(tmp_path) == min(free, threads or free)

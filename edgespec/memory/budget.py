"""How much memory there is to use: sizes as people write them, and what this process may really have.

Limits are read from `/proc` and the cgroup files (v1 and v2) under a root path, so that tests can lay out any machine.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

import psutil

from edgespec.errors import UsageError

__all__ = [
    "Limits",
    "cgroup_peak",
    "format_size",
    "high_water",
    "parse_budget",
    "parse_share",
    "parse_size",
    "peak_memory",
    "read_limits",
    "resident_bytes",
]

_UNITS = {
    "": 1, "b": 1,
    "k": 1 << 10, "kib": 1 << 10, "kb": 10**3,
    "m": 1 << 20, "mib": 1 << 20, "mb": 10**6,
    "g": 1 << 30, "gib": 1 << 30, "gb": 10**9,
    "t": 1 << 40, "tib": 1 << 40, "tb": 10**12,
}  # fmt: skip
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([a-z]*)\s*", re.IGNORECASE)
_UNLIMITED = 1 << 60  # cgroup v1 writes a number near 2**63 for "no limit"


@dataclass(frozen=True)
class Limits:
    """Bytes. `cap` is the tightest cgroup limit (None: none); `usable` is what this process may really use."""

    total: int
    available: int
    cap: int | None
    cap_used: int  # by everything in that cgroup, reclaimable page cache not counted
    own: int = 0  # resident memory of this process, counted in the figures above

    @property
    def usable(self) -> int:
        free = self.available + self.own
        if self.cap is not None:  # some of our pages may be charged to another cgroup, so never more than the cap
            free = min(free, self.cap - self.cap_used + self.own, self.cap)
        return max(0, free)


def parse_size(text: str | int) -> int:
    """Bytes from ``1.5GiB``, ``600M``, ``2 GB`` or a plain number (binary for K, M, G; decimal for KB, MB, GB)."""
    match = _SIZE.fullmatch(str(text))
    if not match or match[2].lower() not in _UNITS:
        raise UsageError(f"{text!r} is not a size: write bytes or a unit, for example 1.5GiB or 600MB")
    size = float(match[1]) * _UNITS[match[2].lower()]
    if not 0 < size < _UNLIMITED:
        raise UsageError(f"{text!r} is out of range for a size")
    return int(size)


def parse_budget(text: str | int | None, limits: Limits) -> int:
    """A size, a share such as ``60%`` of what the process may use, or None for 50 %."""
    if text is None:
        return limits.usable // 2
    share = parse_share(text)
    if share is not None and share > 1:
        raise UsageError(f"{text!r} is not a share: write a number above 0 and up to 100")
    return parse_size(text) if share is None else int(limits.usable * share)


def parse_share(text: str | int) -> float | None:
    """``60%`` as 0.6; None for what is no share."""
    share = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*%\s*", str(text))
    if share and not float(share[1]):
        raise UsageError(f"{text!r} is not a share: write a number above 0")
    return float(share[1]) / 100 if share else None


def format_size(size: float) -> str:
    """``1.5 GiB``, ``600.0 MiB``, ``12 B``."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if abs(size) >= scale:
            return f"{size / scale:.1f} {unit}"
    return f"{size:.0f} B"


def resident_bytes() -> int:
    """What this process holds of memory right now."""
    return int(psutil.Process().memory_info().rss)


def read_limits(root: Path = Path("/"), *, own: int | None = None) -> Limits:
    """The machine's memory and the tightest cgroup limit on this process, up the whole hierarchy."""
    if (root / "proc/meminfo").exists():
        total, available = _meminfo(root / "proc/meminfo")
    else:
        memory = psutil.virtual_memory()
        total, available = memory.total, memory.available
    caps = [(cap, used) for group in _groups(root) if (cap := group.limit()) is not None for used in [group.used()]]
    cap, used = min(caps, key=lambda pair: pair[0] - pair[1], default=(None, 0))
    return Limits(total, available, cap, used, resident_bytes() if own is None else own)


def cgroup_peak(root: Path = Path("/")) -> int | None:
    """The kernel's own peak for this process's cgroup, if the process is alone in a capped one."""
    for group in _groups(root):
        if group.limit() is not None and group.processes() == 1:
            return group.number("memory.peak", "memory.max_usage_in_bytes")
    return None


@dataclass(frozen=True)
class _Group:
    folder: Path

    def number(self, *names: str) -> int | None:
        for name in names:
            try:
                text = (self.folder / name).read_text().strip()
            except OSError:
                continue
            if text.isdigit():
                return int(text)
        return None

    def limit(self) -> int | None:
        value = self.number("memory.max", "memory.limit_in_bytes")
        return value if value is not None and value < _UNLIMITED else None

    def used(self) -> int:
        """Usage less the page cache that the kernel can drop at once."""
        usage = self.number("memory.current", "memory.usage_in_bytes") or 0
        try:
            stat = dict(line.split()[:2] for line in (self.folder / "memory.stat").read_text().splitlines() if line)
        except OSError:
            return usage
        names = (
            ("total_inactive_file", "total_active_file") if "total_inactive_file" in stat else ("inactive_file", "active_file")
        )
        return max(0, usage - sum(int(stat.get(name, 0)) for name in names))

    def processes(self) -> int:
        try:
            return len((self.folder / "cgroup.procs").read_text().split())
        except OSError:
            return 0


def _groups(root: Path) -> list[_Group]:
    """The memory cgroups of this process, innermost first, v2 and v1 alike."""
    try:
        lines = (root / "proc/self/cgroup").read_text().splitlines()
    except OSError:
        return []
    groups = []
    for line in lines:
        _, controllers, path = line.split(":", 2)
        if controllers == "":
            base = root / "sys/fs/cgroup"
        elif "memory" in controllers.split(","):
            base = root / "sys/fs/cgroup/memory"
        else:
            continue
        folder = base / path.lstrip("/")
        while True:
            groups.append(_Group(folder))
            if folder == base or base not in folder.parents:
                break
            folder = folder.parent
    return groups


def _meminfo(path: Path) -> tuple[int, int]:
    fields = {
        name: int(rest.split()[0]) * 1024 for name, _, rest in (line.partition(":") for line in path.read_text().splitlines())
    }
    return fields["MemTotal"], fields.get("MemAvailable", fields["MemFree"])


def peak_memory(root: Path = Path("/")) -> int:
    """The most memory in use so far: the kernel's figure for a capped cgroup of our own, else this process's high-water mark."""
    peak = cgroup_peak(root)
    return high_water(root) if peak is None else peak


def high_water(root: Path = Path("/")) -> int:
    """The most this process held at a time, code included; page cache that it only read through is not counted."""
    try:
        for line in (root / "proc/self/status").read_text().splitlines():
            if line.startswith("VmHWM:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass  # not Linux; the next best figure follows
    info = psutil.Process().memory_info()
    return int(getattr(info, "peak_wset", info.rss))

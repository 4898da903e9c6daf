"""How many threads this process may keep busy: its affinity and its cgroup's CPU quota."""

from __future__ import annotations

import os
import platform
from pathlib import Path

__all__ = ["features", "usable_threads"]


def features(root: Path = Path("/")) -> str:
    """What this CPU can do, as the system tells it; empty where it does not."""
    try:
        lines = (root / "proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith(("flags", "Features"))), "")


def usable_threads(root: Path = Path("/")) -> int:
    affinity = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(1, min(affinity, _quota(root) or affinity))


def _quota(root: Path) -> int | None:
    """Whole CPUs granted by cgroup v2 or v1, rounded up; None where there is no quota."""
    base = root / "sys/fs/cgroup"
    try:
        if (base / "cpu.max").exists():
            quota, period = (base / "cpu.max").read_text().split()
        else:
            quota = (base / "cpu/cpu.cfs_quota_us").read_text().strip()
            period = (base / "cpu/cpu.cfs_period_us").read_text().strip()
    except (OSError, ValueError):
        return None
    if not quota.isdigit() or not period.isdigit() or int(period) == 0:
        return None
    return max(1, -(-int(quota) // int(period)))

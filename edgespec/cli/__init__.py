"""The desktop command line: stdout is data, stderr is talk."""

from edgespec.cli.app import main

__all__ = ["main"]

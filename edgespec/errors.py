"""Everything edgespec raises, and what the command line makes of it.

    EdgespecError                        exit  when
    ├── UsageError (also ValueError)        2  an argument makes no sense
    ├── ModelError                          3  a model file is missing, unreadable or refused
    │   ├── ModelNotFound                      no such file
    │   ├── ModelInvalid                       the header is damaged, hostile or unsupported
    │   └── PairMismatch                       drafter and target do not share a vocabulary
    ├── BudgetError                         4  the memory budget cannot work; `.minimum` says what would
    ├── RuntimeFault                        5  something broke while running; the runtime stays usable
    │   ├── PagingError                        weights could not be read
    │   ├── ModelChanged                       the file was replaced or truncated while in use
    │   ├── EngineError                        the engine failed in the middle of a pass
    │   ├── ContextFull                        the prompt does not fit the context
    │   └── Busy                               another generation is running on this runtime
    ├── EngineMissing                       6  llama-cpp-python is absent or cannot be loaded
    │   └── EngineBroken                       it is there, and crashes, hangs or computes wrongly on this machine
    ├── HubError                            7  a model could not be fetched; what arrived of it is kept
    │   ├── HubUnreachable                     no connection, or the hub asks to come again later
    │   ├── HubDenied                          a token is missing, wrong, or the licence was not accepted
    │   └── HubDamaged                         what arrived is not what the hub says it is
    └── Cancelled                         130  `cancel()` or Ctrl-C

Every message is one line and names the remedy.
"""

from __future__ import annotations

__all__ = [
    "BudgetError",
    "Busy",
    "Cancelled",
    "ContextFull",
    "EdgespecError",
    "EngineBroken",
    "EngineError",
    "EngineMissing",
    "HubDamaged",
    "HubDenied",
    "HubError",
    "HubUnreachable",
    "ModelChanged",
    "ModelError",
    "ModelInvalid",
    "ModelNotFound",
    "PagingError",
    "PairMismatch",
    "RuntimeFault",
    "UsageError",
]


class EdgespecError(Exception):
    """Base of all errors; `exit_code` is what the command line ends with."""

    exit_code = 5


class UsageError(EdgespecError, ValueError):
    exit_code = 2


class ModelError(EdgespecError):
    exit_code = 3


class ModelNotFound(ModelError):
    pass


class ModelInvalid(ModelError):
    pass


class PairMismatch(ModelError):
    pass


class BudgetError(EdgespecError):
    """`minimum` is the smallest budget in bytes that would work, None if none can."""

    exit_code = 4

    def __init__(self, message: str, minimum: int | None = None) -> None:
        super().__init__(message)
        self.minimum = minimum


class RuntimeFault(EdgespecError):
    exit_code = 5


class PagingError(RuntimeFault):
    pass


class ModelChanged(RuntimeFault):
    pass


class EngineError(RuntimeFault):
    pass


class ContextFull(RuntimeFault):
    pass


class Busy(RuntimeFault):
    pass


class EngineMissing(EdgespecError):
    exit_code = 6


class EngineBroken(EngineMissing):
    pass


class HubError(EdgespecError):
    exit_code = 7


class HubUnreachable(HubError):
    pass


class HubDenied(HubError):
    pass


class HubDamaged(HubError):
    pass


class Cancelled(EdgespecError):
    exit_code = 130

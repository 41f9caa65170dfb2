"""Ctrl-C: one line, whenever it comes."""

import os
import signal
import sys
import threading
from contextlib import suppress
from types import FrameType
from typing import Any

STATUS = 130
SOON = 0.01  # seconds


class CtrlC:
    """What Ctrl-C does to this process: it ends it, it raises KeyboardInterrupt, or it comes too late.

    A process that was started to ignore Ctrl-C goes on ignoring it.
    """

    def __init__(self) -> None:
        in_main_thread = threading.current_thread() is threading.main_thread()
        self._ours = in_main_thread and signal.getsignal(signal.SIGINT) is signal.default_int_handler

    def ends(self) -> None:
        """End at once: what is imported from C may lose an exception, and nothing is lost without one."""
        self._do(_end)

    def raises(self) -> None:
        """Raise, so that work in progress is kept; again if the exception was lost in a place that cannot raise."""
        self._do(signal.default_int_handler)
        if self._ours:
            sys.unraisablehook = _raise_again

    def comes_too_late(self) -> None:
        """Ignore it: all is said, and the process is about to end."""
        self._do(signal.SIG_IGN)

    def _do(self, action: Any) -> None:
        if self._ours:
            signal.signal(signal.SIGINT, action)


def interrupted(error: BaseException | None) -> bool:
    """Whether Ctrl-C is what an exception comes from: some packages make others of it."""
    seen: set[int] = set()  # what an exception comes from may lead back to itself
    while error is not None and id(error) not in seen:
        if isinstance(error, KeyboardInterrupt):
            return True
        seen.add(id(error))
        error = error.__cause__ or error.__context__
    return False


def _end(number: int, frame: FrameType | None) -> None:
    with suppress(OSError):
        os.write(2, b"whyformer: interrupted\n")
    os._exit(STATUS)


def _raise_again(lost: "sys.UnraisableHookArgs") -> None:
    if isinstance(lost.exc_value, KeyboardInterrupt):
        main = threading.main_thread().ident
        threading.Timer(SOON, signal.pthread_kill, [main, signal.SIGINT]).start()  # here it would be lost again
    else:
        sys.__unraisablehook__(lost)

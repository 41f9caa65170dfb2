"""Beforehand: what will be needed is begun in another thread, while this one measures."""

from collections.abc import Callable
from contextlib import suppress
from threading import Thread


def beforehand(work: Callable[[], object]) -> Thread:
    """Let another thread do what will be needed: whoever needs it meets again what is wrong with it."""

    def quietly() -> None:
        with suppress(Exception):
            work()

    thread = Thread(target=quietly, daemon=True)
    thread.start()
    return thread

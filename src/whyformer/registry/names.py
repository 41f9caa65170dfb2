"""Registries, which other distributions add to: what stands under each name, and which plug-in it comes from.

A distribution names what it adds in its metadata, as in its `pyproject.toml`:

    [project.entry-points."whyformer.methods"]
    first_layer = "my_package.methods"

The entry point names a module, or an object of one, that registers what it defines when it is imported. Entry points
are loaded when a registry is first listed, or asked for a name that it does not know.
"""

import functools
import threading
import warnings
from collections.abc import Iterator, Mapping
from importlib import metadata
from importlib.metadata import EntryPoint, entry_points
from typing import Any, TypeVar

from whyformer.errors import BadOption, PluginWarning, nearest, reason_of

T = TypeVar("T")

OURS = __name__.partition(".")[0]


class Registry(Mapping[str, T]):
    """All of one kind by name; `kind` is what people call it, and `group` has the entry points of plug-ins.

    A name is registered once. A plug-in that cannot be loaded leaves nothing behind but a warning.
    """

    def __init__(self, kind: str, group: str):
        self.kind = kind
        self.group = f"{OURS}.{group}"
        self.known: dict[str, T] = {}  # without plug-ins that are not loaded yet
        self._modules: dict[str, str] = {}  # where each name was registered
        self._sources: dict[str, str] = {}  # the distribution of each that comes from a plug-in
        _REGISTRIES.append(self)

    def __getitem__(self, name: str) -> T:
        if name not in self.known:
            load(self.group)
        return self.known[name]

    def __iter__(self) -> Iterator[str]:
        load(self.group)
        return iter(list(self.known))

    def __len__(self) -> int:
        load(self.group)
        return len(self.known)

    def add(self, name: str, member: T, module: str = "") -> None:
        """Register a member; `module` tells people where it is defined."""
        if name in self.known:
            other = self._sources.get(name) or self._modules.get(name)
            raise ValueError(f"there is a {self.kind} {name!r} already{f', in {other}' if other else ''}")
        self.known[name] = member
        self._modules[name] = module

    def listed(self) -> dict[str, T]:
        """All by name, in order of the names."""
        return dict(sorted(self.items()))

    def named(self, name: str) -> T:
        """The one of that name, or an error with the nearest one."""
        if not isinstance(name, str):
            raise BadOption(f"a {self.kind} is given by its name; found {name!r}")
        if name not in self:
            broken = _BROKEN[self.group].get(name)
            raise BadOption(f"there is no {self.kind} {name!r}{f'; {broken}' if broken else ''}; {nearest(name, self)}")
        return self[name]

    def source(self, name: str) -> str:
        """The distribution that a member comes from, with its version; nothing if no plug-in registered it."""
        return self._sources.get(name, "")


_REGISTRIES: list[Registry[Any]] = []  # a plug-in may register several kinds in one module
_BROKEN: dict[str, dict[str, str]] = {}  # of each group that was loaded, by entry point: what is wrong with it
_LOADING = threading.RLock()  # a plug-in may list what there is while it is imported


def load(group: str) -> None:
    """Load the plug-ins of a group, once."""
    with _LOADING:
        if group not in _BROKEN:
            _BROKEN[group] = {}
            for entry in sorted(entry_points(group=group), key=lambda entry: (distribution(entry), entry.name)):
                _load_one(entry)


def _load_one(entry: EntryPoint) -> None:
    """Load what an entry point names; what it registered, of any kind, is taken back if that fails."""
    before = [(registry, set(registry.known)) for registry in _REGISTRIES]
    try:
        entry.load()
    except Exception as error:  # noqa: BLE001 (whatever a plug-in raises, the rest goes on without it)
        for registry, names in before:
            registry.known = {name: member for name, member in registry.known.items() if name in names}
        why = f"plug-in {entry.name!r} of {distribution(entry)} ({entry.value}) is left out: {reason_of(error)}"
        _BROKEN[entry.group][entry.name] = why
        warnings.warn(f"{why}; repair it, or uninstall {distribution(entry)}", PluginWarning, stacklevel=4)
    if entry.module.partition(".")[0] not in our_packages():
        for registry, names in before:
            registry._sources |= dict.fromkeys(registry.known.keys() - names, distribution(entry))


@functools.cache
def our_packages() -> frozenset[str]:
    """The packages of this distribution: this one, and those that it adds by entry points."""
    try:
        entries = metadata.distribution(OURS).entry_points
    except metadata.PackageNotFoundError:
        return frozenset({OURS})
    return frozenset({OURS, *(entry.module.partition(".")[0] for entry in entries)})


def distribution(entry: EntryPoint) -> str:
    """The distribution that an entry point belongs to, with its version."""
    return f"{entry.dist.name} {entry.dist.version}" if entry.dist else "an unknown distribution"

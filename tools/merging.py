"""Several modules as one: united imports, and the reasons why they cannot be one."""

import ast
import builtins
from collections import defaultdict
from collections.abc import Iterator

from tools.scopes import Source, imported


class Merge:
    """Puts several rewritten modules into one. `order` is that of their code."""

    def __init__(self, target: str, parts: dict[str, str], order: list[str]):
        self.target, self.order = target, order
        self.parts = {name: Source(text) for name, text in parts.items()}

    def refusals(self) -> Iterator[str]:
        """Why the modules cannot be one, a line each."""
        meanings = defaultdict[str, defaultdict[str, list[str]]](lambda: defaultdict(list))
        for module, source in self.parts.items():
            for name, meaning in imported(source, source.scopes):
                if f"{meaning}.".startswith(f"{self.target}.") and meaning != f"{self.target}.{name}":
                    yield f"{module} imports {meaning} as {name}, and will be in the same module"
            top = dict(imported(source, [source.top]))
            for name in source.top.bound - {"__all__"}:
                meaning = top.get(name, f"defined in {module}")
                if meaning != f"{self.target}.{name}":
                    meanings[name][meaning].append(module)
        for name, several in meanings.items():
            if len(several) > 1:
                yield f"{self.target}: {name} is " + " and ".join(
                    meaning if meaning.startswith("defined") else f"{meaning} in {', '.join(modules)}"
                    for meaning, modules in sorted(several.items())
                )
            for module, source in self.parts.items():
                if hasattr(builtins, name) and any(n.id == name and not s.owner(name) for n, s in source.names):
                    yield f"{self.target}: {name} is {', '.join(several)}, and the builtin in {module}"

    def text(self) -> str:
        """The united module: docstrings, imports, exported names, and what else is in each module."""
        docstrings = [text for part in self.parts.values() if (text := ast.get_docstring(part.tree))]
        heads, typed, exported, bodies = list[str](), list[str](), list[str](), list[str]()
        for source in map(self.parts.__getitem__, self.order):
            lines = source.text.splitlines()
            for node, scope in source.imports:
                if isinstance(node, ast.ImportFrom) and node.module == self.target and not node.level:
                    _cut(lines, node, None if scope is source.top and node in source.tree.body else "pass")
            for statement in source.tree.body:
                segment = "\n".join(lines[statement.lineno - 1 : statement.end_lineno])
                if isinstance(statement, ast.Import | ast.ImportFrom):
                    heads.append(segment)
                elif (
                    isinstance(statement, ast.If)
                    and ast.unparse(statement.test) == "TYPE_CHECKING"
                    and not statement.orelse
                ):
                    typed += [line for line in segment.split("\n")[1:] if line.strip() != "pass"]
                elif isinstance(statement, ast.Assign) and ast.unparse(statement.targets[0]) == "__all__":
                    exported += ast.literal_eval(statement.value)
                elif not (statement is source.tree.body[0] and ast.get_docstring(source.tree)):
                    continue
                _cut(lines, statement, None)
            bodies.append("\n".join(lines).strip("\n"))
        parts = ['"""' + "\n\n".join(docstrings) + "\n" * (len(docstrings) > 1) + '"""', "\n".join(heads)]
        parts += ["if TYPE_CHECKING:\n" + "\n".join(typed)] if "".join(typed).strip() else []
        parts += [f"__all__ = {sorted(set(exported))!r}"] if exported else []
        return "\n\n".join([*parts, "\n\n\n".join(bodies)]) + "\n"


def _cut(lines: list[str], node: ast.stmt, left: str | None) -> None:
    """Empty the lines of a statement, whose number stays."""
    end = node.end_lineno or node.lineno
    lines[node.lineno - 1 : end] = [" " * node.col_offset + left if left else "", *[""] * (end - node.lineno)]


def cycle(start: str, imports: dict[str, set[str]]) -> list[str]:
    """The shortest way from a module back to itself through imports; empty if there is none."""
    ways, seen = [[start]], set[str]()
    for way in ways:
        for module in sorted(imports.get(way[-1], set()) - seen):
            if module == start:
                return [*way, start]
            seen.add(module)
            ways.append([*way, module])
    return []

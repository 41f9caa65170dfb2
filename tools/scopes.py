"""The names of a Python file: which scope binds them, and what its imports mean."""

import ast
from collections.abc import Iterator

COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)

Function = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda


class Scope:
    """The names that a module, class, function or comprehension binds."""

    def __init__(self, parent: "Scope | None" = None, is_class: bool = False):
        self.parent, self.is_class, self.bound, self.globals = parent, is_class, set[str](), set[str]()

    def owner(self, name: str) -> "Scope | None":
        """The scope whose binding a name refers to; None for builtins."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.bound and not (scope.is_class and scope is not self):
                return scope
            scope = scope.parent
        return None


class Source:
    """A parsed file: its scopes, the names that it uses, and its imports with their scopes."""

    def __init__(self, text: str):
        self.text, self.tree, self.top = text, ast.parse(text), Scope()
        self.scopes, self.names = [self.top], list[tuple[ast.Name, Scope]]()
        self.imports, self.globals = list[tuple[ast.Import | ast.ImportFrom, Scope]](), list[ast.Global]()
        self._all(self.tree.body, self.top)

    def _all(self, nodes: list[ast.stmt] | list[ast.expr] | list[ast.AST], scope: Scope) -> None:
        for node in nodes:
            self._visit(node, scope)

    def _inner(self, parent: Scope, is_class: bool = False) -> Scope:
        self.scopes.append(Scope(parent, is_class))
        return self.scopes[-1]

    def _visit(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, Function):
            self._function(node, scope)
        elif isinstance(node, ast.ClassDef):
            scope.bound.add(node.name)
            self._all([*node.decorator_list, *node.bases, *node.keywords], scope)
            self._all(node.body, self._inner(scope, is_class=True))
        elif isinstance(node, COMPREHENSIONS):
            first = node.generators[0].iter
            self._visit(first, scope)
            inner = self._inner(scope)
            children = [child for part in (node, *node.generators) for child in ast.iter_child_nodes(part)]
            self._all([c for c in children if c is not first and not isinstance(c, ast.comprehension)], inner)
        else:
            self._bind(node, scope)
            self._all(list(ast.iter_child_nodes(node)), scope)

    def _function(self, node: Function, scope: Scope) -> None:
        inner, arguments = self._inner(scope), node.args
        given = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs, arguments.vararg, arguments.kwarg]
        inner.bound |= {one.arg for one in given if one}
        outside: list[ast.AST | None] = [*arguments.defaults, *arguments.kw_defaults]
        outside += [one.annotation for one in given if one]
        if not isinstance(node, ast.Lambda):
            scope.bound.add(node.name)
            outside += [*node.decorator_list, node.returns]
        self._all([one for one in outside if one], scope)
        self._all(node.body if isinstance(node.body, list) else [node.body], inner)

    def _bind(self, node: ast.AST, scope: Scope) -> None:
        if isinstance(node, ast.Name):
            self.names.append((node, scope))
            if not isinstance(node.ctx, ast.Load):
                (self.top if node.id in scope.globals else scope).bound.add(node.id)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            self.imports.append((node, scope))
            scope.bound |= {local(node, alias) for alias in node.names}
        elif isinstance(node, ast.Global):
            self.globals.append(node)
            scope.globals |= set(node.names)
        elif isinstance(node, ast.ExceptHandler | ast.MatchAs | ast.MatchStar) and node.name:
            scope.bound.add(node.name)


def local(node: ast.Import | ast.ImportFrom, alias: ast.alias) -> str:
    """The name that an import binds."""
    return alias.asname or (alias.name if isinstance(node, ast.ImportFrom) else alias.name.partition(".")[0])


def imported_from(node: ast.ImportFrom, module: str, is_package: bool) -> str:
    """The absolute name of the module that a statement imports from."""
    if not node.level:
        return node.module or ""
    parts = module.split(".")
    parts = parts[: len(parts) - node.level + is_package]
    return ".".join([*parts, *([node.module] if node.module else [])])


def definitions(tree: ast.Module) -> set[str]:
    """The names that a module defines, and does not import."""
    found = set()
    for node in tree.body:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Assign | ast.AnnAssign):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {n.id for target in targets for n in ast.walk(target) if isinstance(n, ast.Name)}
    return found


def annotations(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes in annotations and in the first argument of `cast`."""
    for node in ast.walk(tree):
        found = [getattr(node, "annotation", None), getattr(node, "returns", None)]
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "cast":
            found += node.args[:1]
        for one in found:
            yield from ast.walk(one) if isinstance(one, ast.AST) else ()


def exports(tree: ast.Module) -> Iterator[ast.AST]:
    """All nodes in the assignment of `__all__`."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__all__":
            yield from ast.walk(node)


def imported(source: Source, scopes: list[Scope]) -> Iterator[tuple[str, str]]:
    """The names that are imported in some scopes, and what they mean."""
    for node, scope in source.imports:
        for alias in node.names if scope in scopes else ():
            if isinstance(node, ast.ImportFrom):
                yield local(node, alias), f"{node.module}.{alias.name}"
            else:
                yield local(node, alias), alias.name if alias.asname else local(node, alias)

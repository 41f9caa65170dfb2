"""Changes to the code: where one is possible, what it puts there, and how a process imports the changed module."""

import ast
import copy
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from pathlib import Path
from types import CodeType
from typing import Any

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src"
SWAPS: tuple[tuple[type[ast.AST], type[ast.AST]], ...] = (
    (ast.Lt, ast.LtE),
    (ast.Gt, ast.GtE),
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
    (ast.Add, ast.Sub),
    (ast.Mult, ast.Div),
    (ast.And, ast.Or),
)
OTHER = {one: other for pair in SWAPS for one, other in (pair, pair[::-1])}
UNTOUCHED = (
    ast.JoinedStr,
    ast.Raise,
    ast.Assert,
    ast.Lambda,
)  # messages, and nodes whose positions Python 3.11 misplaces


@dataclass(frozen=True)
class Mutant:
    """An expression of a file and what stands there instead; `line` is where it begins."""

    path: Path
    line: int
    start: int  # characters of the file
    end: int
    new: str

    @property
    def module(self) -> str:
        """The name of the module."""
        return ".".join(self.path.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")

    @property
    def source(self) -> str:
        """The changed file."""
        text = self.path.read_text(encoding="utf-8")
        return f"{text[: self.start]}{self.new}{text[self.end :]}"

    def __str__(self) -> str:
        old = " ".join(self.path.read_text(encoding="utf-8")[self.start : self.end].split())
        return f"{self.path.relative_to(SOURCE)}:{self.line}  {old}  ->  {self.new}"


def mutants_of(path: Path) -> list[Mutant]:
    """Every change to the functions of a file that these rules make."""
    text = path.read_text(encoding="utf-8")
    lines = [0, *(at + 1 for at, letter in enumerate(text) if letter == "\n")]

    def offset(line: int, column: int) -> int:
        """The place of a character; Python counts columns in bytes of UTF-8."""
        return lines[line - 1] + len(text[lines[line - 1] :].encode()[:column].decode())

    found = [
        Mutant(path, node.lineno, start, end, f"({ast.unparse(new)})")
        for node in _expressions(ast.parse(text))
        for start, end in [
            (offset(node.lineno, node.col_offset), offset(node.end_lineno or 0, node.end_col_offset or 0))
        ]
        for new in (*_changes(node), *_other_calls(node))
        if ast.unparse(new) != ast.unparse(node)  # two equal arguments were exchanged
    ]
    return [mutant for mutant in found if _compiles(mutant.source)]


def _expressions(tree: ast.AST, *, inside: bool = False) -> Iterator[ast.expr]:
    """The expressions in the bodies of functions, without types, messages and documentation."""
    for child in ast.iter_child_nodes(tree):
        if isinstance(child, UNTOUCHED) or (isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant)):
            continue
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            for statement in child.body:
                yield from _expressions(ast.Module([statement], []), inside=True)
            continue
        if isinstance(child, ast.AnnAssign):
            if child.value is not None and inside:
                yield from _expressions(ast.Module([ast.Expr(child.value)], []), inside=True)
            continue
        if isinstance(child, ast.expr) and inside:
            yield child
        yield from _expressions(child, inside=inside)


def _changes(node: ast.expr) -> Iterator[ast.expr]:
    """What may take the place of an expression: another comparison, operation, sign, constant or branch."""
    match node:
        case ast.Compare(ops=[operator, *_]) if type(operator) in OTHER:
            yield _with(node, ops=[OTHER[type(operator)](), *node.ops[1:]])
        case ast.BinOp() | ast.BoolOp() if type(node.op) in OTHER and not _is_text(node):
            yield _with(node, op=OTHER[type(node.op)]())
        case ast.UnaryOp(op=ast.USub() | ast.Not()):
            yield node.operand
        case ast.Constant(value=bool(value)):
            yield ast.Constant(not value)
        case ast.Constant(value=int(value)):
            yield ast.Constant(value + 1)
        case ast.Constant(value=float(value)):
            yield ast.Constant(2 * value or 1.0)
        case ast.IfExp():
            yield _with(node, body=node.orelse, orelse=node.body)


def _other_calls(node: ast.expr) -> Iterator[ast.expr]:
    """A call without one of its keywords, or with its two arguments exchanged."""
    if not isinstance(node, ast.Call):
        return
    for number, keyword in enumerate(node.keywords):
        if keyword.arg is not None:
            yield _with(node, keywords=[*node.keywords[:number], *node.keywords[number + 1 :]])
    if len(node.args) == 2 and not any(isinstance(one, ast.Starred) for one in node.args):
        yield _with(node, args=node.args[::-1])


def _with(node: ast.expr, **fields: Any) -> ast.expr:
    changed = copy.copy(node)
    for name, value in fields.items():
        setattr(changed, name, value)
    return changed


def _is_text(node: ast.BinOp | ast.BoolOp) -> bool:
    """Whether an operation joins texts, as far as can be seen."""
    return any(
        isinstance(n, ast.JoinedStr) or (isinstance(n, ast.Constant) and isinstance(n.value, str))
        for n in ast.walk(node)
    )


def _compiles(source: str) -> bool:
    try:
        compile(source, "changed", "exec")
    except SyntaxError:  # a star or a keyword that may not stand in parentheses
        return False
    return True


class _Finder(MetaPathFinder):
    """Imports one module from a changed source, and leaves all others alone."""

    def __init__(self, module: str, file: str, text: str):
        self.module, self.file, self.text = module, file, text

    def find_spec(self, fullname: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        """The changed module."""
        if fullname != self.module:
            return None
        folder = [str(Path(self.file).parent)] if self.file.endswith("__init__.py") else None
        loader = _Loader(fullname, self.file, self.text)
        return importlib.util.spec_from_file_location(
            fullname, self.file, loader=loader, submodule_search_locations=folder
        )


class _Loader(SourceFileLoader):
    def __init__(self, fullname: str, path: str, text: str):
        super().__init__(fullname, path)
        self.text = text

    def get_code(self, fullname: str) -> CodeType:
        """Compiled anew: the cached code is that of the real source."""
        return compile(self.text, self.path, "exec")


def install(mutant: Mutant) -> None:
    """Let this process import the changed module from now on."""
    if mutant.module in sys.modules:
        raise RuntimeError(f"{mutant.module} is imported already")
    sys.meta_path.insert(0, _Finder(mutant.module, str(mutant.path), mutant.source))

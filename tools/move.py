"""Move modules and rename names from a table, in all code, strings and docs that git tracks.

    python -m tools.move table.txt           # change the files of this checkout
    python -m tools.move table.txt --dry     # print what would change

Each line of the table moves a module, or renames a name that a module defines:

    evaluation.asked -> evaluation.runs      # several modules may go to one, or to one that exists
    perturb.runner.Runner -> PerturbationEngine

Names are found by their scope: through imports, aliases, `module.Name`, dotted paths in strings, `setattr(module,
"Name", …)`, annotations and backticks. Formatting and comments stay. The script refuses merges in which two modules
bind one name, and prints the places that it cannot decide as `decide:`.
"""

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import Counter, defaultdict
from pathlib import Path

from tools.merging import Merge, cycle
from tools.scopes import Scope, Source, annotations, definitions, exports, imported_from, local

ROOT = Path(__file__).resolve().parents[1]
SUFFIXES = {".md", ".toml", ".yml", ".cfg", ".txt", ""}
HISTORY = ("CHANGELOG.md", "LICENSE")
ATTRIBUTE_CALLS = {"setattr", "getattr", "delattr", "hasattr"}


class Refused(Exception):
    """The table cannot be applied as it is."""


class Plan:
    """The table, resolved in the files of a checkout."""

    def __init__(self, table: str, root: Path):
        listed = subprocess.run(["git", "ls-files"], cwd=root, check=True, capture_output=True, text=True).stdout
        self.root, self.paths = root, [root / name for name in listed.splitlines() if (root / name).is_file()]
        self.files = {self.module_of(path): path for path in self.paths if path.suffix == ".py"}
        self.sources = {name: Source(path.read_text(encoding="utf-8")) for name, path in self.files.items()}
        self.tops = {name.partition(".")[0] for name in self.files} | {"tests", "benchmarks", "tools"}
        self.packages = [path.parent.name for path in sorted(root.glob("src/*/__init__.py"))]
        self.modules, self.names = dict[str, str](), dict[tuple[str, str], str]()
        self.undecided = defaultdict[str, list[str]](list)  # places by what is to decide
        for line in table.splitlines():
            if row := line.partition("#")[0].strip():
                self._read(row)
        self.renamed = {name: new for (_, name), new in self.names.items()}
        defined = Counter(name for source in self.sources.values() for name in definitions(source.tree))
        self.unique = {name for name in self.renamed if defined[name] == 1}
        self._follow_imports()

    def module_of(self, path: Path) -> str:
        """The dotted name of a file."""
        parts = path.relative_to(self.root).with_suffix("").parts
        parts = parts[1:] if parts[0] == "src" else parts
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def _read(self, row: str) -> None:
        old, arrow, new = (part.strip() for part in row.partition("->"))
        if not arrow or not old or not re.fullmatch(r"\w+(\.\w+)*", new):
            raise Refused(f"a row reads `old -> new`; found {row!r}")
        for prefix in ("", *(f"{package}." for package in self.packages)):
            module, _, name = f"{prefix}{old}".rpartition(".")
            if f"{prefix}{old}" in self.files:
                if self.files[prefix + old].name == "__init__.py":
                    raise Refused(f"{old} is a package: move its modules")
                self.modules[prefix + old] = new if new.partition(".")[0] in self.tops else f"{prefix}{new}"
                return
            if name in definitions(self.sources[module].tree) if module in self.sources else False:
                if not new.isidentifier() or self.binds(module, new):
                    raise Refused(f"{row}: {module} has {new} already, or it is no name")
                self.names[module, name] = new
                return
        raise Refused(f"no module and no name of a module: {old}")

    def binds(self, module: str, name: str) -> bool:
        """True if any scope of a file binds a name."""
        return any(name in scope.bound for scope in self.sources[module].scopes)

    def _follow_imports(self) -> None:
        """Rename imported names in the modules that import them, until nothing changes."""
        found = True
        while found:
            found = False
            for module, source in self.sources.items():
                for node, scope in source.imports:
                    if isinstance(node, ast.ImportFrom) and scope is source.top:
                        origin = imported_from(node, module, self.is_package(module))
                        starred = [name for place, name in self.names if place == origin]
                        plain = [alias.name for alias in node.names if alias.asname in (None, alias.name)]
                        for name in starred if plain == ["*"] else plain:
                            new = self.names.get((origin, name))
                            if new and (module, name) not in self.names and not self.binds(module, new):
                                self.names[module, name] = new
                                found = True

    def is_package(self, module: str) -> bool:
        """True if a module is the `__init__` of a package."""
        return self.files[module].name == "__init__.py"

    def is_module(self, package: str, name: str) -> bool:
        """True if `from package import name` gives a module and not a name that the package binds."""
        if f"{package}.{name}" not in self.files or package not in self.sources:
            return f"{package}.{name}" in self.files
        source = self.sources[package]
        imports = [node for node, scope in source.imports if isinstance(node, ast.ImportFrom) and scope is source.top]
        named = {
            local(node, alias)
            for node in imports
            for alias in node.names
            if imported_from(node, package, self.is_package(package)) != package
        }
        return name not in named | definitions(source.tree)

    def mapped(self, dotted: str) -> str:
        """The new path of a module, or of what is in it."""
        parts = dotted.split(".")
        for end in range(len(parts), 0, -1):
            module = ".".join(parts[:end])
            if module in self.files:
                rest = parts[end:]
                first = [self.names.get((module, rest[0]), rest[0])] if rest else []
                return ".".join([self.modules.get(module, module), *first, *rest[1:]])
        return dotted

    def path_of(self, module: str) -> Path:
        """The file of a module that is new."""
        parts = module.split(".")
        folder = self.root / "src" if parts[0] in self.packages else self.root
        return self.files.get(module, folder.joinpath(*parts).with_suffix(".py"))


class Texts:
    """Rewrites paths and names in strings, comments and docs."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.dotted = re.compile(rf"(?<![\w./])(?:{'|'.join(sorted(plan.tops))})(?:\.\w+)+")
        self.moved_files = {}
        for old, new in plan.modules.items():
            before, after = old.replace(".", "/") + ".py", new.replace(".", "/") + ".py"
            self.moved_files[before] = after
            if before.count("/") > 1:
                self.moved_files[before.partition("/")[2]] = after.partition("/")[2]
        long, short = (
            "|".join(re.escape(name) for name in self.moved_files if (name.partition("/")[0] in plan.tops) is is_long)
            for is_long in (True, False)
        )
        self.file = re.compile(rf"(?<!\w)(?:{long or '(?!)'})\b|(?<![\w/])(?:{short or '(?!)'})\b")
        self.span = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")
        self.word = re.compile(rf"(?<![\w.])(?:{'|'.join(plan.renamed) or '(?!)'})(?!\w|=[^=])")

    def rewritten(self, text: str, where: str) -> str:
        """The text with new paths, and with new names in backticks."""
        for (module, name), new in self.plan.names.items():  # code in strings
            if re.search(rf"from {re.escape(module)} import [^\n]*\b{name}\b", text):
                text = re.sub(rf"(?<![\w.]){name}\b", new, text)
        text = self.dotted.sub(lambda found: self.plan.mapped(found[0]), text)
        text = self.file.sub(lambda found: self.moved_files[found[0]], text)
        for word in {*self.word.findall(self.span.sub("", text))}:
            if not word.islower() and text.strip("\"'") != word:
                self.plan.undecided[f"the text mentions {word!r}"].append(where)
        return self.span.sub(lambda found: f"`{self._code(found[1], where)}`", text)

    def _code(self, code: str, where: str) -> str:
        """The content of backticks."""
        for package in self.plan.packages:
            code = re.sub(
                r"(?<![\w./])\w+(?:\.\w+)+",
                lambda found: self.plan.mapped(f"{package}.{found[0]}").removeprefix(f"{package}."),  # noqa: B023
                code,
            )
        if code in {old.rpartition(".")[2] for old in self.plan.modules}:
            self.plan.undecided[f"`{code}` may be the module"].append(where)
        return self.word.sub(lambda found: self._name(found[0], where), code)

    def _name(self, name: str, where: str) -> str:
        if name in self.plan.unique:
            return self.plan.renamed[name]
        self.plan.undecided[f"{name!r} may be the name, which several modules define"].append(where)
        return name

    def page(self, text: str, where: str) -> str:
        """A page of Markdown, or another text file."""

        parts = re.split(r"(```python\n.*?```)", text, flags=re.DOTALL)
        return "".join(
            self._example(p, where) if p.startswith("```python") else self.rewritten(p, where) for p in parts
        )

    def _example(self, text: str, where: str) -> str:
        """A block of Python in a page. It may use names that an earlier block imports."""
        code = text.removeprefix("```python\n").removesuffix("```")
        try:
            code = Rewriter(self.plan, self, where, Source(code)).rewritten()
        except SyntaxError:
            code = self.rewritten(code, where)
        code = self.word.sub(lambda found: found[0] if found[0].islower() else self._name(found[0], where), code)
        for word in {word for word in self.word.findall(code) if word.islower()}:
            self.plan.undecided[f"{word!r} in an example may be the name"].append(where)
        return f"```python\n{code}```"


class Rewriter:
    """Rewrites one Python file. `edits` are new texts by their first and last byte."""

    def __init__(self, plan: Plan, texts: Texts, module: str, source: Source):
        self.plan, self.texts, self.module, self.source = plan, texts, module, source
        self.bytes = source.text.encode()
        self.lines = [0]
        for line in source.text.splitlines(keepends=True):
            self.lines.append(self.lines[-1] + len(line.encode()))
        self.edits = dict[tuple[int, int], str]()
        self.local = dict[tuple[Scope, str], str]()  # new names of bindings
        self.bound_modules = dict[tuple[Scope, str], str]()
        self.scope_of = dict(source.names)
        self.meanings = dict[tuple[Scope, str], str]()  # of imports, in new paths

    def rewritten(self) -> str:
        """The new text of the file."""
        for (module, name), new in self.plan.names.items():
            if module == self.module:
                self.local[self.source.top, name] = new
        for node, scope in self.source.imports:
            if isinstance(node, ast.ImportFrom):
                for alias in node.names:
                    self.meanings[scope, local(node, alias)] = ".".join(self._target(self._origin(node), alias.name))
        for node, scope in self.source.imports:
            self._import(node, scope)
        self._expression(self.source.tree)
        self._definitions()
        self._strings()
        done = self.bytes
        for (start, end), new in sorted(self.edits.items(), reverse=True):
            done = done[:start] + new.encode() + done[end:]
        return done.decode()

    def _span(self, node: ast.expr | ast.stmt) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return self.lines[node.lineno - 1] + node.col_offset, self.lines[node.end_lineno - 1] + node.end_col_offset

    def _undecided(self, node: ast.expr | ast.stmt, what: str) -> None:
        self.plan.undecided[what].append(f"{self.module}:{node.lineno}")

    def _import(self, node: ast.Import | ast.ImportFrom, scope: Scope) -> None:
        lines = self._plain_import(node, scope) if isinstance(node, ast.Import) else self._import_from(node, scope)
        start, end = self._span(node)
        if lines:
            if b"#" in self.bytes[start:end]:
                self._undecided(node, "a comment inside this import was lost")
            self.edits[start, end] = ("\n" + " " * node.col_offset).join(dict.fromkeys(lines))

    def _plain_import(self, node: ast.Import, scope: Scope) -> list[str]:
        for alias in node.names:
            self.bound_modules[scope, local(node, alias)] = alias.name if alias.asname else alias.name.partition(".")[0]
        names = [self.plan.mapped(alias.name) + (f" as {alias.asname}" if alias.asname else "") for alias in node.names]
        return [f"import {name}" for name in names] if names != [ast.unparse(a) for a in node.names] else []

    def _import_from(self, node: ast.ImportFrom, scope: Scope) -> list[str]:
        origin = self._origin(node)
        moves_away = bool(node.level) and self.module in self.plan.modules
        statements, changed = defaultdict[str, list[str]](list), moves_away
        for alias in node.names:
            if self.plan.is_module(origin, alias.name):
                self.bound_modules[scope, local(node, alias)] = f"{origin}.{alias.name}"
            package, new = self._target(origin, alias.name)
            changed |= (package, new) != (origin, alias.name)
            statements[package].append(new + self._binding(node, alias, f"{package}.{new}", scope))
        return [
            f"from {package} import {', '.join(dict.fromkeys(names))}" for package, names in statements.items()
        ] * changed

    def _origin(self, node: ast.ImportFrom) -> str:
        is_package = self.module in self.plan.files and self.plan.is_package(self.module)
        return imported_from(node, self.module, is_package)

    def _target(self, origin: str, name: str) -> tuple[str, str]:
        """The new module and name of what is imported."""
        if self.plan.is_module(origin, name):
            package, _, new = self.plan.mapped(f"{origin}.{name}").rpartition(".")
            return package, new
        return self.plan.mapped(origin), self.plan.names.get((origin, name), name)

    def _binding(self, node: ast.ImportFrom, alias: ast.alias, target: str, scope: Scope) -> str:
        """How an import binds a new name: `as` another name if the file uses the new one for something else."""
        new = target.rpartition(".")[2]
        if alias.asname not in (None, alias.name):
            return f" as {alias.asname}"
        if new != alias.name:
            if any(new in one.bound and self.meanings.get((one, new)) != target for one in self.source.scopes):
                self._undecided(node, f"{new} is bound already, so that it is imported as {alias.name}")
                return f" as {alias.name}"
            self.local[scope, alias.name] = new
        return f" as {new}" if alias.asname else ""

    def _module(self, node: ast.AST) -> str | None:
        """The module that an expression is, by the imports of the file."""
        if isinstance(node, ast.Name) and node in self.scope_of:
            owner = self.scope_of[node].owner(node.id)
            return self.bound_modules.get((owner, node.id)) if owner else None
        parent = self._module(node.value) if isinstance(node, ast.Attribute) else None
        if parent and isinstance(node, ast.Attribute) and self.plan.is_module(parent, node.attr):
            return f"{parent}.{node.attr}"
        return None

    def _expression(self, node: ast.AST, joined: ast.JoinedStr | None = None) -> None:
        """Rewrite names and attributes, from the outside inwards."""
        joined = node if isinstance(node, ast.JoinedStr) else joined
        if isinstance(node, ast.Name):
            owner = self.scope_of[node].owner(node.id) if node in self.scope_of else None
            if owner and (new := self.local.get((owner, node.id))):
                self._replace(node, node.id, new, joined)
        elif isinstance(node, ast.Attribute):
            module, whole = self._module(node.value), self._module(node)
            if whole and self.plan.mapped(whole) != whole:
                self._chain(node, whole, joined)
                return
            if module and (new := self.plan.names.get((module, node.attr))):
                self._replace(node, node.attr, new, joined)
        elif isinstance(node, ast.Call):
            self._attribute_call(node)
        for child in ast.iter_child_nodes(node):
            self._expression(child, joined)

    def _chain(self, node: ast.Attribute, module: str, joined: ast.JoinedStr | None) -> None:
        """Rewrite an attribute that is a module, as in `package.module.Name`."""
        base: ast.expr = node
        while isinstance(base, ast.Attribute):
            base = base.value
        new, start = self.plan.mapped(module), self._module(base) or ""
        if not isinstance(base, ast.Name) or joined or not new.startswith(f"{start}."):
            self._undecided(node, f"{ast.unparse(node)} is now {new}")
            return
        self.edits[self._span(node)] = base.id + new.removeprefix(start)

    def _attribute_call(self, node: ast.Call) -> None:
        called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
        if called == "import_module" and node.args and isinstance(node.args[0], ast.JoinedStr):
            self._undecided(node, f"imports by a name that is put together: {ast.unparse(node)}")
        if called in ATTRIBUTE_CALLS and len(node.args) > 1 and isinstance(node.args[1], ast.Constant):
            module, name = self._module(node.args[0]), node.args[1].value
            if module and isinstance(name, str) and (new := self.plan.names.get((module, name))):
                start, end = self._span(node.args[1])
                self.edits[start, end] = self.bytes[start:end].decode().replace(name, new)

    def _replace(self, node: ast.Name | ast.Attribute, old: str, new: str, joined: ast.JoinedStr | None) -> None:
        """Replace a name, or the name behind the dot. Python 3.11 does not know where it is inside an f-string."""
        if joined is None:
            end = self._span(node)[1]
            self.edits[end - len(old.encode()), end] = new
            return
        start, end = self._span(joined)
        text = self.edits.get((start, end), self.bytes[start:end].decode())
        before = r"(?<=\.)" if isinstance(node, ast.Attribute) else r"(?<![\w.'\"])"
        in_braces = re.compile(rf"\{{[^{{}}]*?{before}\b{old}\b")
        self.edits[start, end] = in_braces.sub(lambda found: found[0][: -len(old)] + new, text)

    def _definitions(self) -> None:
        """Rewrite the names of functions and classes where they are defined, and in `global` statements."""
        for node in self.source.tree.body:
            new = self.local.get((self.source.top, getattr(node, "name", "")))
            if new and isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
                at = self.bytes.index(node.name.encode(), self._span(node)[0] + len("def "))
                self.edits[at, at + len(node.name.encode())] = new
        for statement in self.source.globals:
            names = [self.local.get((self.source.top, name), name) for name in statement.names]
            self.edits[self._span(statement)] = f"global {', '.join(names)}"

    def _strings(self) -> None:
        """Rewrite strings and comments."""
        annotated = {id(node) for node in annotations(self.source.tree)}
        exported = {id(node) for node in exports(self.source.tree)}
        inside = {id(c) for n in ast.walk(self.source.tree) if isinstance(n, ast.JoinedStr) for c in ast.walk(n)}
        for node in ast.walk(self.source.tree):
            is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside
            if isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Constant) and is_text):
                span = self._span(node)
                old = self.edits.get(span, self.bytes[slice(*span)].decode())
                new = self.texts.rewritten(old, f"{self.module}:{node.lineno}")
                if id(node) in annotated or id(node) in exported:
                    new = self.texts.word.sub(lambda f: self.local.get((self.source.top, f[0]), f[0]), new)
                elif isinstance(node, ast.Constant):
                    self._ambiguous(node)
                if new != old:
                    self.edits[span] = new
        for token in tokenize.generate_tokens(io.StringIO(self.source.text).readline):
            if token.type == tokenize.COMMENT:
                line = token.line.encode()
                start = self.lines[token.start[0] - 1] + len(token.line[: token.start[1]].encode())
                new = self.texts.rewritten(token.string, f"{self.module}:{token.start[0]}")
                if line and new != token.string:
                    self.edits[start, start + len(token.string.encode())] = new

    def _ambiguous(self, node: ast.Constant) -> None:
        """Report a string that is a renamed name or a moved module, and may mean it."""
        for old in self.plan.modules:
            leaf = old.rpartition(".")[2]
            named = [f"{leaf}.py", *([leaf] if "import_module" in self.source.text else [])]
            if node.value in (*named, old.partition(".")[2]):
                self._undecided(node, f"the string {node.value!r} may be the module")
        if node.value in self.plan.renamed:
            self._undecided(node, f"the string {node.value!r} may be the name")


def imports_of(plan: Plan, module: str) -> set[str]:
    """The modules that a module imports from when it is imported."""
    nodes = [node for node in plan.sources[module].tree.body if isinstance(node, ast.ImportFrom)]
    origins = [
        (imported_from(node, module, plan.is_package(module)), alias.name) for node in nodes for alias in node.names
    ]
    return {f"{origin}.{name}" if plan.is_module(origin, name) else origin for origin, name in origins}


def cycles(plan: Plan, groups: dict[str, list[str]]) -> list[str]:
    """The imports in a circle that merges make."""
    imports = defaultdict[str, set[str]](set)
    for module in plan.sources:
        if not plan.is_package(module):
            new = plan.modules.get(module, module)
            imports[new] |= {plan.modules.get(name, name) for name in imports_of(plan, module)} - {new}
    found = {
        tuple(sorted({*way})): way
        for target, parts in groups.items()
        if len(parts) > 1
        for way in [cycle(target, imports)]
    }
    return [f"imports go in a circle: {' -> '.join(way)}" for way in found.values() if way]


def in_order(parts: list[str], plan: Plan) -> list[str]:
    """The modules of a merge, each after those that it imports."""
    needs = {part: imports_of(plan, part) & {*parts} - {part} for part in parts}
    done = list[str]()
    while len(done) < len(parts):
        left = [part for part in parts if part not in done]
        done.append(next((part for part in left if needs[part] <= set(done)), left[0]))
    return done


def grouped(plan: Plan) -> dict[str, list[str]]:
    """The modules that go into each new module, which may exist."""
    groups = defaultdict[str, list[str]](list)
    for old, target in plan.modules.items():
        if target in plan.files and target not in plan.modules and target not in groups:
            groups[target].append(target)
        groups[target].append(old)
    return groups


def move(table: str, root: Path = ROOT, *, dry: bool = False) -> list[str]:
    """Apply a table. Return what was changed, and what was not decided, a line each."""
    plan = Plan(table, root)
    texts = Texts(plan)
    new = {name: Rewriter(plan, texts, name, source).rewritten() for name, source in plan.sources.items()}
    groups = grouped(plan)
    written, refused = dict[Path, str](), list[str]()
    for target, parts in groups.items():
        merge = Merge(target, {part: new[part] for part in parts}, in_order(parts, plan))
        if not plan.path_of(target).parent.is_dir():
            refused.append(f"{target}: there is no such package; make it first")
        refused += merge.refusals() if len(parts) > 1 else []
        written[plan.path_of(target)] = merge.text() if len(parts) > 1 else new[parts[0]]
    if refused:
        raise Refused("\n".join(refused))
    for name, path in plan.files.items():
        if name not in plan.modules and path not in written and new[name] != plan.sources[name].text:
            written[path] = new[name]
    for path in plan.paths:
        if path.suffix in SUFFIXES and path.name not in HISTORY:
            old = path.read_text(encoding="utf-8")
            if (page := texts.page(old, str(path.relative_to(root)))) != old:
                written[path] = page
    lines = [f"{', '.join(parts)} -> {target}" for target, parts in groups.items()]
    lines += [f"rewrote {path.relative_to(root)}" for path in sorted(written) if path in plan.paths]
    if not dry:
        _write(plan, groups, written)
    lines += [f"decide: {line}" for line in cycles(plan, groups)]
    return lines + [f"decide: {what}: {', '.join(dict.fromkeys(places))}" for what, places in plan.undecided.items()]


def _write(plan: Plan, groups: dict[str, list[str]], written: dict[Path, str]) -> None:
    """Write the files, by `git mv` where a module only moves, and put them in order."""

    def git(*arguments: str | Path) -> None:
        subprocess.run(["git", *arguments], cwd=plan.root, check=True, capture_output=True)

    for target, parts in groups.items():
        if len(parts) == 1 and not plan.path_of(target).exists():
            git("mv", plan.files[parts[0]], plan.path_of(target))
    for path, text in written.items():
        path.write_text(text, encoding="utf-8")
    for old in plan.modules:
        if plan.files[old].exists() and plan.files[old] not in written:
            git("rm", "--quiet", "--force", plan.files[old])
    git("add", *written)
    ruff, python = Path(sys.executable).with_name("ruff"), [path for path in written if path.suffix == ".py"]
    merged = [plan.path_of(target) for target, parts in groups.items() if len(parts) > 1]
    for files, arguments in (
        (python, ["check", "--quiet", "--fix-only", "--select", "I"]),
        (merged, ["check", "--quiet", "--fix-only", "--select", "F401"]),
        (python, ["format", "--quiet"]),
    ):
        if files and ruff.exists():
            subprocess.run([ruff, *arguments, *files], cwd=plan.root, check=True)
    if python:
        git("add", *python)


def main() -> None:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("table", type=Path, help="a file with a line `old -> new` for each module and name")
    parser.add_argument("--dry", action="store_true", help="print what would change, and write nothing")
    given = parser.parse_args()
    try:
        print("\n".join(move(given.table.read_text(encoding="utf-8"), dry=given.dry)))
    except Refused as error:
        sys.exit(f"refused:\n{error}")


if __name__ == "__main__":
    main()

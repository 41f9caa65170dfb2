"""The script that moves modules and renames names, on a small package that runs before and after."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tools.move import Refused, move

FILES = {
    "src/shop/__init__.py": '"""A shop."""\n\nfrom shop.stock.shelf import Shelf as Shelf\n\n__all__ = ["Shelf"]\n',
    "src/shop/stock/__init__.py": '"""The stock."""\n',
    "src/shop/stock/shelf.py": '''"""Shelves."""

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from shop.stock.prices import Price

LIMIT = 3  # things on a shelf


class Shelf:
    """Holds things. See `shop.stock.prices.Price`."""

    def value(self, prices: "list[Price]") -> int:
        """Return the value of all things."""
        return math.floor(sum(price.euros for price in prices[:LIMIT]))


def empty() -> Shelf:
    return Shelf()
''',
    "src/shop/stock/prices.py": '''"""Prices."""

from __future__ import annotations

import math

from shop.stock.shelf import LIMIT, Shelf

# A comment about prices.
CHEAP = LIMIT - 1


class Price:
    """A price."""

    def __init__(self, euros: float):
        self.euros = math.fabs(euros)


def total(count: int) -> int:
    Price_count = [Price(2.5) for Price_number in range(count)]
    return Shelf().value(Price_count)
''',
    "src/shop/main.py": '''"""The program."""

import shop.stock.prices as money
import shop.stock.shelf
from importlib import import_module

from . import stock
from .stock import shelf
from .stock.prices import Price as Cost
from .stock.shelf import LIMIT, Shelf


def local() -> str:
    Shelf = "a plank"
    return Shelf


def late() -> object:
    from shop.stock.shelf import empty

    return type(empty())


def found(name: str) -> object:
    return getattr(import_module(f"shop.stock.{name}"), "CHEAP")


if __name__ == "__main__":
    values = [shelf.LIMIT, LIMIT, shop.stock.shelf.LIMIT, stock.__doc__, money.total(4), Cost(-2).euros, local()]
    print(values, f"{Shelf().value([Cost(1)])} {shelf.Shelf is late()}", isinstance(shelf.empty(), Shelf), "÷")
''',
    "tests/test_shop.py": """from pytest import MonkeyPatch

from shop import Shelf
from shop.stock import prices


def test_limit(monkeypatch: MonkeyPatch) -> None:
    monkeypatch.setattr("shop.stock.shelf.LIMIT", 1)
    monkeypatch.setattr(prices, "Price", lambda euros: prices.Price)
    assert Shelf().value([]) == 0, "Shelf"
""",
    "docs/stock.md": """# Stock

A `Shelf` holds things (`stock/shelf.py`, `shop.stock.shelf`); a Shelf has a `stock.shelf.LIMIT`.

```python
from shop.stock.shelf import Shelf
print(Shelf().value([]))
```
""",
    "CHANGELOG.md": "* `shop.stock.shelf.Shelf`\n",
    "pyproject.toml": '[project.scripts]\nshop = "shop.stock.shelf:empty"\n',
}


@pytest.fixture
def shop(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for arguments in (["init", "--quiet"], ["add", "."]):
        subprocess.run(["git", *arguments], cwd=tmp_path, check=True)
    return tmp_path


def printed(shop: Path) -> str:
    """The output of the program."""
    environment = os.environ | {"PYTHONPATH": str(shop / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
    command = [sys.executable, "-m", "shop.main"]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def read(shop: Path, name: str) -> str:
    return (shop / name).read_text()


def test_a_plain_move_changes_every_import(shop: Path) -> None:
    before = printed(shop)
    lines = move("stock.shelf -> stock.rack  # a comment", shop)
    assert "shop.stock.shelf -> shop.stock.rack" in lines
    assert not (shop / "src/shop/stock/shelf.py").exists()
    main = read(shop, "src/shop/main.py")
    assert "import shop.stock.rack\n" in main
    assert "from shop.stock import rack\n" in main
    assert "from shop.stock.rack import LIMIT, Shelf\n" in main
    assert "rack.LIMIT, LIMIT, shop.stock.rack.LIMIT, stock.__doc__" in " ".join(main.split())
    assert "    from shop.stock.rack import empty\n" in main
    assert "from .stock.prices import Price as Cost\n" in main  # untouched
    assert '"shop.stock.rack.LIMIT"' in read(shop, "tests/test_shop.py")
    assert read(shop, "pyproject.toml").endswith('"shop.stock.rack:empty"\n')
    assert printed(shop) == before


def test_relative_imports_of_a_module_that_goes_to_another_package_become_absolute(shop: Path) -> None:
    before = printed(shop)
    path = shop / "src/shop/stock/prices.py"
    path.write_text(path.read_text().replace("from shop.stock.shelf import", "from .shelf import"))
    move("stock.prices -> prices", shop)
    assert "from shop.stock.shelf import LIMIT, Shelf\n" in read(shop, "src/shop/prices.py")
    assert printed(shop) == before


def test_a_merge_unites_imports_and_keeps_the_rest(shop: Path) -> None:
    before = printed(shop)
    lines = move("stock.shelf -> stock.goods\nstock.prices -> stock.goods", shop)
    assert "shop.stock.shelf, shop.stock.prices -> shop.stock.goods" in lines
    goods = read(shop, "src/shop/stock/goods.py")
    assert goods.count("import math\n") == 1
    assert "Shelves.\n\nPrices." in goods
    assert "# A comment about prices.\nCHEAP" in goods
    assert "things on a shelf" in goods
    assert "shop.stock.goods import" not in goods
    assert sorted(p.name for p in (shop / "src/shop/stock").glob("*.py")) == ["__init__.py", "goods.py"]
    assert printed(shop) == before


def test_code_that_is_needed_at_import_comes_first(shop: Path) -> None:
    before = printed(shop)
    move("stock.prices -> stock.goods\nstock.shelf -> stock.goods", shop)
    goods = read(shop, "src/shop/stock/goods.py")
    assert goods.startswith('"""Prices.\n\nShelves.\n"""')
    assert goods.index("LIMIT = 3") < goods.index("CHEAP = LIMIT - 1")
    assert printed(shop) == before


def test_a_merge_into_a_module_that_exists(shop: Path) -> None:
    before = printed(shop)
    move("stock.prices -> stock.shelf", shop)
    assert "class Price" in read(shop, "src/shop/stock/shelf.py")
    assert not (shop / "src/shop/stock/prices.py").exists()
    assert printed(shop) == before


@pytest.mark.parametrize(
    ("extra", "message"),
    [
        ("def _room():\n    return 1\n", "_room is defined in shop.stock.prices and defined in shop.stock.shelf"),
        ("from os.path import join as _room\n", "_room is defined in shop.stock.shelf and os.path.join in"),
        ("print(_room, len)\n", "len is defined in shop.stock.shelf, and the builtin in shop.stock.prices"),
        ("from shop.stock.shelf import empty as new\n", "imports shop.stock.goods.empty as new"),
    ],
)
def test_collisions_are_refused_and_nothing_is_written(shop: Path, extra: str, message: str) -> None:
    shelf, prices = shop / "src/shop/stock/shelf.py", shop / "src/shop/stock/prices.py"
    shelf.write_text(shelf.read_text() + "\n\ndef _room():\n    return 2\n\n\ndef len(x):\n    return 0\n")
    prices.write_text(prices.read_text() + "\n\n" + extra)
    with pytest.raises(Refused, match=message):
        move("stock.shelf -> stock.goods\nstock.prices -> stock.goods", shop)
    assert shelf.exists()
    assert not (shop / "src/shop/stock/goods.py").exists()


def test_a_rename_ends_a_collision(shop: Path) -> None:
    for name in ("shelf", "prices"):
        path = shop / f"src/shop/stock/{name}.py"
        path.write_text(
            path.read_text() + f'\n\ndef _room():\n    return "{name}"\n\n\nROOM = _room()\n'.replace("ROOM", name)
        )
    move("stock.shelf -> stock.goods\nstock.prices -> stock.goods\nstock.shelf._room -> _shelf_room", shop)
    goods = read(shop, "src/shop/stock/goods.py")
    assert "shelf = _shelf_room()" in goods
    assert "prices = _room()" in goods


def test_a_rename_follows_scopes_imports_and_attributes(shop: Path) -> None:
    before = printed(shop)
    lines = move("shop.stock.shelf.Shelf -> Rack\nstock.prices.Price -> Amount\nstock.shelf.LIMIT -> MOST", shop)
    shelf, prices, main = (read(shop, f"src/shop/{name}.py") for name in ("stock/shelf", "stock/prices", "main"))
    assert "class Rack:\n" in shelf
    assert "def empty() -> Rack:\n    return Rack()" in shelf
    assert '"list[Amount]"' in shelf
    assert "`shop.stock.prices.Amount`" in shelf
    assert "MOST = 3  # things on a shelf" in shelf
    assert "Price_count = [Amount(2.5) for Price_number in range(count)]" in prices
    assert "Amount as Cost" in main
    assert '    Shelf = "a plank"\n    return Shelf' in main
    assert "shop.stock.shelf.MOST" in main
    assert "shelf.Rack is late()" in main
    assert "isinstance(shelf.empty(), Rack)" in main
    assert 'from shop.stock.shelf import Rack as Rack\n\n__all__ = ["Rack"]' in read(shop, "src/shop/__init__.py")
    tests = read(shop, "tests/test_shop.py")
    assert "from shop import Rack\n" in tests
    assert '"shop.stock.shelf.MOST"' in tests
    assert 'setattr(prices, "Amount", lambda euros: prices.Amount)' in tests
    assert '"Shelf"' in tests
    assert "decide: the string 'Shelf' may be the name: tests.test_shop:10" in lines
    assert printed(shop) == before


def test_a_name_that_a_file_uses_for_something_else_is_imported_under_the_old_name(shop: Path) -> None:
    path = shop / "src/shop/main.py"
    path.write_text(
        path.read_text().replace(
            "def found(name", "def unrelated(Rack: int) -> int:\n    return Rack\n\n\ndef found(name"
        )
    )
    before = printed(shop)
    lines = move("stock.shelf.Shelf -> Rack", shop)
    assert "Rack as Shelf" in path.read_text()
    assert any("Rack is bound already" in line for line in lines)
    assert printed(shop) == before


def test_a_rename_to_a_name_of_the_module_is_refused(shop: Path) -> None:
    with pytest.raises(Refused, match="has LIMIT already"):
        move("stock.shelf.Shelf -> LIMIT", shop)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("stock.shelf", "a row reads"),
        ("stock.shelf -> a b", "a row reads"),
        ("stock.nothing -> stock.more", "no module and no name"),
        ("stock.shelf.Nothing -> More", "no module and no name"),
        ("stock -> store", "is a package"),
        ("stock.shelf -> store.shelf", "there is no such package"),
    ],
)
def test_rows_that_cannot_be_applied(shop: Path, row: str, message: str) -> None:
    with pytest.raises(Refused, match=message):
        move(row, shop)


def test_docs_follow_and_history_stays(shop: Path) -> None:
    lines = move("stock.shelf -> stock.rack\nstock.shelf.Shelf -> Rack", shop)
    assert (
        read(shop, "docs/stock.md")
        == """# Stock

A `Rack` holds things (`stock/rack.py`, `shop.stock.rack`); a Shelf has a `stock.rack.LIMIT`.

```python
from shop.stock.rack import Rack
print(Rack().value([]))
```
"""
    )
    assert "decide: the text mentions 'Shelf': docs/stock.md" in lines
    assert read(shop, "CHANGELOG.md") == FILES["CHANGELOG.md"]


def test_code_in_strings_follows_its_imports(shop: Path) -> None:
    path = shop / "tests/test_shop.py"
    path.write_text(path.read_text() + '\nCODE = "from shop.stock.shelf import LIMIT, Shelf; print(Shelf().LIMIT)"\n')
    move("stock.shelf.Shelf -> Rack\nstock.shelf -> stock.rack", shop)
    assert '"from shop.stock.rack import LIMIT, Rack; print(Rack().LIMIT)"' in path.read_text()


def test_names_that_are_put_together_are_reported(shop: Path) -> None:
    lines = move("stock.prices -> stock.costs", shop)
    assert any("put together: import_module(f'shop.stock.{name}'): shop.main:" in line for line in lines)


def test_a_name_that_a_package_binds_is_not_its_module(shop: Path) -> None:
    """As in `from shop import total`, where `shop/total.py` exists too."""
    (shop / "src/shop/total.py").write_text('"""Totals."""\n\n\ndef total() -> int:\n    return 7\n')
    with (shop / "src/shop/__init__.py").open("a") as file:
        file.write("from shop.total import total as total\n")
    main = shop / "src/shop/main.py"
    main.write_text(
        main.read_text().replace("from . import stock\n", "from . import stock, total\n") + "    print(total())\n"
    )
    subprocess.run(["git", "add", "."], cwd=shop, check=True)
    before = printed(shop)
    move("total -> sums", shop)
    assert "from shop.sums import total as total" in read(shop, "src/shop/__init__.py")
    assert "print(total())" in main.read_text()
    assert printed(shop) == before


def test_two_modules_that_become_one_are_imported_once(shop: Path) -> None:
    main = shop / "src/shop/main.py"
    main.write_text(
        main.read_text().replace("from .stock import shelf\n", "from .stock import prices, shelf\n")
        + "    print(prices.CHEAP)\n"
    )
    before = printed(shop)
    move("stock.prices -> stock.shelf", shop)
    assert "from shop.stock import shelf\n" in main.read_text()
    assert "print(shelf.CHEAP)" in main.read_text()
    assert printed(shop) == before


def test_merges_that_make_imports_go_in_a_circle_are_reported(shop: Path) -> None:
    (shop / "src/shop/tax.py").write_text('"""Taxes."""\n\nfrom shop.stock.prices import CHEAP\n\nTAX = CHEAP\n')
    subprocess.run(["git", "add", "."], cwd=shop, check=True)
    circle = "decide: imports go in a circle: shop.tax -> shop.stock.prices -> shop.tax"
    assert circle in move("stock.shelf -> tax", shop, dry=True)
    assert not [line for line in move("stock.prices -> tax", shop, dry=True) if "circle" in line]


def test_a_dry_run_writes_nothing(shop: Path) -> None:
    lines = move("stock.shelf -> stock.rack", shop, dry=True)
    assert "rewrote src/shop/main.py" in lines
    assert {name: read(shop, name) for name in FILES} == FILES

"""Small files of every format, changed at random: what readers must read, or refuse with a named error.

`cases(seed)` never ends and is the same for the same seed. `Case.read(folder)` writes the files and reads all that is
in them; any exception but a WhyformerError is a defect. A case of which `changed` is False must be read whole.
"""

import copy
import gzip
import io
import json
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from tests.helpers.pictures import mask_file, matlab_file, plain
from whyformer.datasets import open_dataset
from whyformer_papers.heads import Treebank
from whyformer_papers.words.idf import Idf

Files = dict[str, bytes]  # by their names in a folder
Change = Callable[[random.Random, Files], Files]

ROWS = [{"text": f'a "good" film, number {i}', "label": i % 2} for i in range(4)]
MARKED = [{"text": "a fine film", "label": 1, "evidence_start_token": [1], "evidence_end_token": [2]}] * 3
VOTED = [{"post_tokens": ["so", "bad"], "annotators_label": [0, 0, 1], "rationales": [[0, 1], [1, 1]]}] * 3
ASKED = [{"question": "Where?", "context": "In Paris.", "answers": {"text": ["Paris"], "answer_start": [3]}}] * 3
QUESTION = {"id": "1", "question": "Where?", "answers": [{"text": "Paris", "answer_start": 3}], "is_impossible": False}
SQUAD = {"version": "2", "data": [{"title": "t", "paragraphs": [{"context": "In Paris.", "qas": [QUESTION]}]}] * 3}
EVIDENCE = [[{"docid": "one", "start_token": 0, "end_token": 2, "text": "a fine"}]]
LINES = [{"annotation_id": "one", "classification": "POS", "evidences": EVIDENCE, "query": "good?"}] * 3
FLAT = [{"docid": "one", "document": [["a", "fine", "film"], ["indeed"]]}, {"docid": "two", "document": "a bore"}]
CONLL = "# label = POSITIVE\na 0\nfine\t1\nfilm 1\n\n# label = NEGATIVE\ndull 1\n"
OUTLINED = [{"image": "a.png", "label": 1, "objects": [{"category": 1, "polygon": [0.1, 0.1, 0.9, 0.1, 0.5, 0.9]}]}] * 3
TRIMAPS = [{"image": {"bytes": plain(), "path": None}, "trimap": mask_file([[1, 2, 3]]), "label": 0}] * 3
COCO = {
    "images": [{"id": 1, "file_name": "a.png", "width": 6, "height": 4}, {"id": 2, "file_name": "b.png"}],
    "annotations": [
        {"image_id": 1, "category_id": 7, "segmentation": [[0, 0, 4, 0, 4, 3]], "iscrowd": 0},
        {"image_id": 1, "category_id": 7, "segmentation": {"counts": [3, 5, 16], "size": [4, 6]}, "iscrowd": 1},
    ],
    "categories": [{"id": 7, "name": "dog"}],
}
TREE = (
    "# text = We don't see.\n1\tWe\t_\t_\t_\t_\t4\tnsubj\t_\t_\n2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_\n"
    "2\tdo\t_\t_\t_\t_\t4\taux\t_\t_\n3\tn't\t_\t_\t_\t_\t4\tadvmod\t_\t_\n"
    "4\tsee\t_\t_\t_\t_\t0\troot\t_\tSpaceAfter=No\n5\t.\t_\t_\t_\t_\t4\tpunct\t_\t_\n\n"
)
WORDS = "# documents = 10\nword\tdoc_freq\nthe\t10\nfilm\t4\n"
DEEP = "[" * 3000 + "]" * 3000
ODD: tuple[Any, ...] = (
    *(None, True, False, -1, 0, 0.5, 1e308, float("nan"), float("inf"), 10**30, 10**400),
    *("", " ", "x", "0", "-7", "9" * 5000, "\ud800", "\x00", "\x1b[2J", "../../secret", "/etc/passwd", "x" * 5000),
    *([], {}, [[]], [None], ["x"], [0, 1], [{}], {"label": {}}, {"a": [1]}, [[0.5, "x"]]),
)
PIECES = tuple(
    text.encode("utf-8", "surrogatepass")
    for text in (
        *(
            '"',
            ",",
            "\t",
            "\n",
            "\r",
            "\r\n\r\n",
            "#",
            "{",
            "}",
            "[",
            "]",
            ":",
            "\\",
            "\ufeff",
            "\x00",
            "\ud800",
            "-",
            "0",
        ),
        *("null", "true", "NaN", "1e999", "9" * 5000, DEEP, "../", "x" * 300, '"data"', "'", "PAR1"),
    )
)


@dataclass(frozen=True)
class Case:
    """The files of one data set, how they are read, and whether they were changed."""

    name: str
    files: Files
    reading: Callable[[Path], None]
    changed: bool

    def read(self, folder: Path) -> None:
        """Write the files to an empty folder, and read them."""
        for name, content in self.files.items():
            path = folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(content)
        self.reading(folder)


def cases(seed: int) -> Iterator[Case]:
    """Format after format: first each as it is, then changed in one to three places, without end."""
    for name, (files, reading) in formats().items():
        yield Case(name, files, reading, changed=False)
    numbers = random.Random(seed)
    while True:
        for name, (files, reading) in formats().items():
            changed = files
            for _ in range(numbers.randint(1, 3)):
                changed = numbers.choice(_changes(name))(numbers, changed)
            yield Case(name, changed, reading, changed=True)


@cache
def formats() -> dict[str, tuple[Files, Callable[[Path], None]]]:
    """Valid files of every format that is read, and how."""
    eraser = {"val.jsonl": _lines(LINES), "docs/one": b"a fine film\nindeed", "docs/two": b"a bore"}
    return {
        "csv": ({"a.csv": b'text,label\n"a ""good"" film",1\na bore,0\n"two\nlines",1\n'}, _data("a.csv")),
        "tsv": ({"a.tsv": b"text\tlabel\na film\t1\na bore\t0\n"}, _data("a.tsv")),
        **{
            f"jsonl {n}": ({"a.jsonl": _lines(rows)}, _data("a.jsonl"))
            for n, rows in enumerate((ROWS, MARKED, VOTED, ASKED))
        },
        **{
            f"parquet {n}": ({"a.parquet": _parquet(rows)}, _data("a.parquet"))
            for n, rows in enumerate((ROWS, MARKED, ASKED))
        },
        "squad": ({"a.json": json.dumps(SQUAD).encode()}, _data("a.json")),
        "eraser": (eraser, _data("")),
        "eraser flat": ({"test.jsonl": _lines(LINES), "docs.jsonl": _lines(FLAT)}, _data("")),
        "conll": ({"a.conll": CONLL.encode()}, _data("a.conll")),
        "saved": (_saved(), _data("")),
        "coco": ({"a.json": json.dumps(COCO).encode(), "a.png": plain(), "b.png": plain()}, _data("a.json")),
        "images": ({f"{name}/a.png": plain() for name in ("NEGATIVE", "POSITIVE")}, _data("")),
        "imagenet": ({"val/n00000001/a.png": plain(), "labels.csv": b"wnid,words\nn00000001,NEG"}, _data("")),
        "jsonl images": ({"a.jsonl": _lines(OUTLINED), "a.png": plain()}, _data("a.jsonl")),
        "parquet images": ({"a.parquet": _parquet(TRIMAPS)}, _data("a.parquet")),
        "matlab": ({"a.mat": matlab_file()}, _data("a.mat")),
        "treebank": ({"a.conllu": TREE.encode() * 2}, _treebank),
        "words tsv": ({"a.tsv": WORDS.encode()}, _words("a.tsv")),
        "words csv.gz": ({"a.csv.gz": gzip.compress(b"word,idf\nthe,1\nfilm,3.5\n", mtime=0)}, _words("a.csv.gz")),
        "words json": ({"a.json": b'{"documents": 10, "doc_freq": {"the": 10, "film": 4}}'}, _words("a.json")),
        "words parquet": ({"a.parquet": _parquet([{"word": "the", "idf": 1.0}])}, _words("a.parquet")),
    }


def _data(name: str) -> Callable[[Path], None]:
    """Read a data set in every way there is."""

    def reading(folder: Path) -> None:
        data = open_dataset(folder / name, on_error="skip")
        labelled = open_dataset(folder / name, on_error="skip", labels=["NEGATIVE", "POSITIVE"])
        for opened in (data, labelled):
            examples = [example for example in opened if str(example)]
            assert [e.row for chunk in opened.chunks(2) for e in opened.rows(*chunk)] == [e.row for e in examples]
            assert len(examples) + len(opened.skipped) == opened.total()
            for example in examples:
                assert example.image is None or (example.image.open().size and example.content)
                assert example.mask is None or example.mask.open().size
        assert data.digest == labelled.digest

    return reading


def _treebank(folder: Path) -> None:
    treebank = Treebank(folder / "a.conllu")
    assert len(treebank) >= 0
    assert treebank.provenance
    for sentence in treebank:
        assert sentence.words


def _words(name: str) -> Callable[[Path], None]:
    def reading(folder: Path) -> None:
        assert Idf.read(folder / name)["film"] >= 0

    return reading


def _lines(rows: list[Any]) -> bytes:
    return "".join(json.dumps(row) + "\n" for row in rows).encode()


def _parquet(rows: list[Any]) -> bytes:
    import pyarrow as pa
    import pyarrow.parquet as pq

    file = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows), file, row_group_size=2)
    return file.getvalue()


def _saved() -> Files:
    import tempfile

    import datasets

    datasets.disable_progress_bars()
    with tempfile.TemporaryDirectory() as folder:
        datasets.Dataset.from_list(ROWS).save_to_disk(folder)
        return {path.name: path.read_bytes() for path in sorted(Path(folder).iterdir())}


def _changes(name: str) -> list[Change]:
    if "parquet" in name:
        return [_bytes, _table]
    if name == "saved":
        return [_bytes, _node]
    return (
        [_bytes, _node, _node]
        if name.startswith(("jsonl", "squad", "coco", "eraser", "words json"))
        else [_bytes, _cell]
    )


def _bytes(numbers: random.Random, files: Files) -> Files:
    """Cut a file off, take a part out, double it, put something in, or turn bits over."""
    name = numbers.choice(sorted(files))
    content = files[name]
    start = numbers.randint(0, len(content))
    stop = min(len(content), start + numbers.choice((0, 1, 1, 3, 20)))
    changed = numbers.choice(
        (
            content[:start],
            content[:start] + content[stop:],
            content[:stop] + content[start:],
            content[:start] + numbers.choice(PIECES) + content[stop:],
            content[:start] + bytes(byte ^ numbers.randint(1, 255) for byte in content[start:stop]) + content[stop:],
            content[:start] + numbers.randbytes(5) + content[stop:],
        )
    )
    return {**files, name: changed}


def _cell(numbers: random.Random, files: Files) -> Files:
    """Put an odd value in place of a word, number or field."""
    name = numbers.choice(sorted(files))
    marks = b"\n\t, "
    content = files[name]
    edges = [-1, *(i for i, byte in enumerate(content) if byte in marks), len(content)]
    place = numbers.randrange(len(edges) - 1)
    odd = str(numbers.choice(ODD)).encode("utf-8", "surrogatepass")
    return {**files, name: content[: edges[place] + 1] + odd + content[edges[place + 1] :]}


def _node(numbers: random.Random, files: Files) -> Files:
    """Put an odd value in place of a part of a JSON text, or take it out, or rename it."""
    name = numbers.choice([name for name in sorted(files) if name.endswith(("json", "jsonl"))])
    lines = files[name].splitlines() if name.endswith("jsonl") else [files[name]]
    if not lines:
        return files
    line = numbers.randrange(len(lines))
    try:
        tree = json.loads(lines[line])
    except (ValueError, RecursionError):
        return files
    lines[line] = json.dumps(_changed_tree(numbers, tree)).encode()
    return {**files, name: b"\n".join(lines)}


def _changed_tree(numbers: random.Random, tree: Any) -> Any:
    if not isinstance(tree, list | dict) or not tree or numbers.random() < 0.2:
        return copy.deepcopy(numbers.choice(ODD))
    key = numbers.choice(list(tree) if isinstance(tree, dict) else range(len(tree)))
    changed = copy.copy(tree)
    if numbers.random() < 0.1:
        del changed[key]
    else:
        changed[key] = _changed_tree(numbers, tree[key])
    return changed


def _table(numbers: random.Random, files: Files) -> Files:
    """Put a column of another type, or one of the same name twice, into a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    (name,) = files
    try:
        table = pq.read_table(io.BytesIO(files[name]))
        names = table.column_names or ["text"]
    except Exception:  # noqa: BLE001  (bytes were changed before)
        return files
    columns: list[Any] = [
        pa.array([b"\xff\xfe"] * len(table), pa.binary()),
        pa.array([None] * len(table), pa.string()),
        pa.array([2**62] * len(table), pa.int64()),
        pa.array([2**50] * len(table), pa.timestamp("ms")),
        pa.array([[0, 1]] * len(table)),
        pa.array([[{"a": 1}]] * len(table)),
        pa.array([{"text": ["x"], "answer_start": [-1]}] * len(table)),
        pa.array(["x"] * len(table)).dictionary_encode(),
    ]
    place = numbers.randrange(max(1, table.num_columns))
    column = numbers.choice(columns)
    kept = table if numbers.random() < 0.2 or not table.num_columns else table.remove_column(place)
    file = io.BytesIO()
    pq.write_table(kept.append_column(names[place], column), file)
    return {name: file.getvalue()}

"""Make the small table of word frequencies that comes along, src/whyformer_papers/words/frequencies.tsv.gz.

python tools/word_frequencies.py enwiki_idf.parquet --documents 26782

The file has the columns `word` and `doc_freq`: in how many of the documents each word stands. The commonest words are
kept with these counts and nothing else, in order of the alphabet.
"""

import argparse
import gzip
from pathlib import Path

import pyarrow.parquet

from whyformer_papers.words.idf import BUNDLED_WORDS

WORDS = 30_000


def main() -> None:
    """Read the counts, keep the commonest words, write them."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("counts", type=Path)
    parser.add_argument("--documents", type=int, required=True)
    parser.add_argument("--words", type=int, default=WORDS)
    parser.add_argument("--out", type=Path, default=BUNDLED_WORDS)
    given = parser.parse_args()
    columns = pyarrow.parquet.read_table(given.counts, columns=["word", "doc_freq"]).to_pydict()
    counts = dict(zip(columns["word"], columns["doc_freq"], strict=True))
    commonest = sorted(counts, key=lambda word: (-counts[word], word))[: given.words]
    lines = [f"# documents = {given.documents}", "word\tdoc_freq"]
    lines += [f"{word}\t{counts[word]}" for word in sorted(commonest)]
    packed = gzip.compress("\n".join([*lines, ""]).encode(), compresslevel=9, mtime=0)
    given.out.write_bytes(packed)
    print(f"{len(commonest):,} words that stand in {counts[commonest[-1]]:,} documents or more; {len(packed):,} bytes")


if __name__ == "__main__":
    main()

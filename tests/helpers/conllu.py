"""Sentences of a treebank, as CoNLL-U writes them."""


def word(number: int | str, form: str, head: int | str = "_", label: str = "_", misc: str = "_") -> str:
    return "\t".join([str(number), form, *["_"] * 4, str(head), label, "_", misc])


SPANISH = [  # dámelo = da + me + lo, del = de + el: the words are not how they are written; 4.1 is not written at all
    "# newdoc",
    "# sent_id = 1",
    "# text = ¡Dámelo del coche!",
    word(1, "¡", 2, "punct", "SpaceAfter=No"),
    word("2-4", "Dámelo"),
    word(2, "Da", 0, "root"),
    word(3, "me", 2, "obl:arg"),
    word(4, "lo", 2, "obj"),
    word("4.1", "ahora"),
    word("5-6", "del"),
    word(5, "de", 7, "case"),
    word(6, "el", 7, "det"),
    word(7, "coche", 2, "obl", "SpaceAfter=No"),
    word(8, "!", 2, "punct", "SpaceAfter=No"),
]
ENGLISH = [  # don't = do + n't, of which it is spelled; no `# text`
    "# a comment",
    word(1, "We", 4, "nsubj"),
    word("2-3", "don't", misc="Foo=Bar"),
    word(2, "do", 4, "aux"),
    word(3, "n't", 4, "advmod"),
    word(4, "see", 0, "root"),
    word(5, "it", 4, "obj", "Foo=Bar|SpaceAfter=No"),
    word(6, ".", 4, "punct"),
]

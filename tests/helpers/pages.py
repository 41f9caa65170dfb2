"""What stands on a page of HTML."""

from html.parser import HTMLParser

EMPTY = ("meta", "input", "img")  # elements that are not closed


class Page(HTMLParser):
    """The elements of a page; raises if they are not nested well."""

    def __init__(self, source: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[tuple[str, str]] = []  # tags with their classes
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.texts: list[str] = []  # of the elements of class "text"
        self.units: list[tuple[str, str]] = []  # of spans in these, with their classes
        self.data = ""
        self.feed(source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Open an element."""
        classes = dict(attrs).get("class") or ""
        self.tags.append(tag)
        self.attributes += attrs
        self.texts += [""] if "text" in classes.split() else []
        if tag not in EMPTY:
            self.open.append((tag, classes))

    def handle_endtag(self, tag: str) -> None:
        """Close an element."""
        assert self.open.pop()[0] == tag

    def handle_data(self, data: str) -> None:
        """Take in what stands in the innermost element."""
        if any(tag == "div" and "text" in classes.split() for tag, classes in self.open):
            self.texts[-1] += data
            self.units += [(data, self.open[-1][1])] if self.open[-1][0] == "span" else []
        if self.open and self.open[-1][0] != "style":
            self.data += data

    @property
    def cards(self) -> list[str]:
        """The classes of the elements that hold an example."""
        every = (value or "" for name, value in self.attributes if name == "class")
        return [classes for classes in every if "ex" in classes.split()]

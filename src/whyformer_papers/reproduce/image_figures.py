"""Figures of single images: several methods, and several classes of one image."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

from whyformer.datasets import Dataset, label_index
from whyformer.errors import BadInput, UnsupportedModel, WhyformerError
from whyformer.explain.explainer import Explainer
from whyformer.explain.explanation import Comparison, Explanation
from whyformer.images.reading import pairs_of, side_by_side
from whyformer.methods.method import method_specs
from whyformer.models.load import Subject
from whyformer.show.grid import Grid
from whyformer_papers.reproduce.recipe import LeftOutRow, RecipeColumn, RecipeRow, Reproduction
from whyformer_papers.reproduce.result import Part, ReadyColumn, Reproduced
from whyformer_papers.reproduce.text_figures import called

if TYPE_CHECKING:
    from matplotlib.figure import Figure

FIELDS = ("name", "column", "image", "target", "row", "unit", "score")
SHOWN = 4  # images
SEARCHED = 200  # examples among which pairs are drawn


@dataclass(frozen=True)
class AskedImage:
    """An image of a figure, and the classes that it is explained for; None for the predicted one."""

    image: Any
    targets: tuple[int | None, ...] = (None,)


@dataclass(frozen=True, kw_only=True)
class ImageFigure(Reproduction):
    """Images of the column's data, explained by each row: a line of the picture for each image."""

    searches_all: ClassVar[bool] = True

    def run_column(self, column: ReadyColumn) -> Part:
        """Explain the images by each row, under the paper's labels."""
        rows, data = self.rows_of(column.column), column.opened.data
        assert data is not None
        if not column.subject.takes_images:
            raise LeftOutRow(f"{column.opened.model} takes texts, and the figure is of images")
        try:
            asked = self.images(column.subject, data, column.settings.limit_of(column.column) or SHOWN)
            examples = tuple(shown for one in asked for shown in _compared(column.subject, one, rows))
        except (BadInput, UnsupportedModel) as error:
            raise LeftOutRow(str(error)) from error
        return column.part(self, [f"{len(asked)} images of {data.name}"], examples=examples)

    def images(self, subject: Subject, data: Dataset, count: int) -> list[AskedImage]:
        """The first images of the data, explained for what the model says."""
        return [AskedImage(example.input) for example in islice(data, count)]

    def grids(self, reproduced: Reproduced, part: Part) -> list[Grid]:
        """No table: the images themselves are shown."""
        return []

    def csv_lines(self, reproduced: Reproduced) -> Iterator[Sequence[object]]:
        """One line for each patch of each explanation."""
        yield FIELDS
        for part in reproduced.parts:
            for number, comparison in enumerate(part.examples):
                for explanation in comparison:
                    start = (self.name, part.column.label, number, explanation.target.name, explanation.method)
                    for unit, score in zip(explanation.units, explanation.scores, strict=True):
                        yield *start, unit.text, float(score)

    def column_drawing(self, part: Part) -> "Figure | None":
        """The images below each other, each by every row."""
        from whyformer.show.figures import image_grid

        return image_grid([list(comparison) for comparison in part.examples])

    def reads_data(self, column: RecipeColumn, texts: Sequence[Any], *, searched: bool) -> bool:
        """The images are those of the data."""
        return True


@dataclass(frozen=True, kw_only=True)
class TwoObjectFigure(ImageFigure):
    """Images with two objects, explained for the class of either: two images of the data, set side by side."""

    def images(self, subject: Subject, data: Dataset, count: int) -> list[AskedImage]:
        """Pairs of images with different labels."""
        examples = [one for one in islice(data, SEARCHED) if one.label is not None and one.image is not None]
        classes = [label_index(one.label, subject.labels) for one in examples if one.label is not None]
        pairs = pairs_of(classes, count)
        if not pairs:
            raise BadInput(f"{data.name} has no two images with different labels, which would be set side by side")
        asked = []
        for left, right in pairs:
            images = [one.image.open() for one in (examples[left], examples[right]) if one.image is not None]
            asked.append(AskedImage(side_by_side(*images), (classes[left], classes[right])))
        return asked


def _compared(subject: Subject, asked: AskedImage, rows: Sequence[RecipeRow]) -> Iterator[Comparison]:
    """The explanations of one image by each row, for each of its targets; and the rows that were refused."""
    explainer = Explainer(subject)
    for target in asked.targets:
        done: list[Explanation] = []
        refused: list[tuple[str, str]] = []
        for row in rows:
            spec = method_specs([row.method])[0]
            try:
                explained: Any = explainer.explain(asked.image, spec.of.name, target=target, **spec.options)
                done.append(called(row.label, explained))
            except WhyformerError as error:
                refused.append((f"{row.label}, {spec.label}", str(error)))
        if not done:
            raise BadInput(f"no row can explain an image: {'; '.join(reason for _, reason in refused)}")
        yield Comparison(tuple(done), tuple(refused))

"""Figures as notebooks show them."""

from matplotlib.figure import Figure

from whyformer.show.pictures import DPI, figure_bytes

ON_SCREEN = 96  # pixels of an inch


class Drawing(Figure):
    """A matplotlib figure that notebooks show as it is, also where nobody asked for `%matplotlib inline`."""

    def _repr_png_(self) -> tuple[bytes, dict[str, int]]:
        """The picture, and how large it is shown: sharper than the screen has to be."""
        width, height = (round(inches * ON_SCREEN) for inches in self.get_size_inches())
        return figure_bytes(self, "png", DPI), {"width": width, "height": height}

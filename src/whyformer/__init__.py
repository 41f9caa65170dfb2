"""Why did it say that? Explanations for the predictions of unmodified Hugging Face Transformers."""
# ruff: noqa: F403, F405 (type checkers look into the module behind the star)

import sys
import types

TYPE_CHECKING = False  # importing `typing` takes time
if TYPE_CHECKING:
    from whyformer.public import *
del TYPE_CHECKING

__all__ = [
    "Agreement",
    "AnimationWarning",
    "BadInput",
    "BadOption",
    "Comparison",
    "CompletenessWarning",
    "CostTable",
    "Dataset",
    "Explainer",
    "Explanation",
    "Explanations",
    "LabelWarning",
    "Measured",
    "MissingExtra",
    "NoAttention",
    "PaddingWarning",
    "PluginWarning",
    "RandomnessWarning",
    "Recommendation",
    "Scores",
    "ShortcutReport",
    "Table",
    "TooLarge",
    "Trace",
    "TruncationWarning",
    "Trust",
    "UncoveredOperation",
    "UnknownWord",
    "UnknownWordsWarning",
    "UnsupportedModel",
    "WhyformerError",
    "WhyformerWarning",
    "attribute",
    "image_grid",
    "list_methods",
    "list_metrics",
    "method",
    "metric",
    "open_dataset",
    "record",
]


class _Package(types.ModuleType):
    """A package that imports torch and its own modules when one of its names is first used.

    So the command line is there at once: it tells its version, and ends on Ctrl-C, while all else is still imported.
    """

    def __getattr__(self, name: str) -> object:
        if name not in __all__:
            raise AttributeError(f"module {self.__name__!r} has no attribute {name!r}")
        import whyformer.public

        vars(self).update({known: getattr(whyformer.public, known) for known in __all__})
        return vars(self)[name]

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *__all__})


sys.modules[__name__].__class__ = _Package

"""The command that shows what an explanation is: a sentence and a photograph, with the models that come along."""

from whyformer.cli.app import HtmlOption, app, check_files
from whyformer.cli.process import put, say
from whyformer.explain.explainer import Explainer
from whyformer.models.load import BUNDLED
from whyformer.storage.files import write

SENTENCE = "a slow and dull film that is saved by its gorgeous acting"
PHOTOGRAPH = BUNDLED / "pets" / "maine_coon.jpg"


@app.command()
def demo(*, html: HtmlOption = None) -> None:
    """Explain a sentence and a photograph with the bundled models."""
    check_files([html])
    explanations = []
    for model, example, command in (
        ("sentiment", SENTENCE, f'whyformer explain "{SENTENCE}" --trust'),
        ("pets", PHOTOGRAPH, f"whyformer explain {PHOTOGRAPH}"),
    ):
        put(f"$ {command}\n")
        explanation = Explainer.load(model).explain(example)
        if explanation.texts:
            explanation.trust()
        explanations.append(explanation)
        put(str(explanation) + "\n", coloured=True)
    if html:
        from whyformer.show.html import page

        say(f"wrote {write(html, page(explanations))}")

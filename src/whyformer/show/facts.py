"""Facts about something as a small card, for notebooks."""

from collections.abc import Mapping
from html import escape

from whyformer.show.html import STYLE


def facts_card(title: str, facts: Mapping[str, str]) -> str:
    """A title above named facts; those that are empty are left out."""
    rows = "".join(f"<tr><th>{escape(name)}</th><td>{escape(fact)}</td></tr>" for name, fact in facts.items() if fact)
    return f'<style>{STYLE}</style><section class="why"><h2>{escape(title)}</h2><table>{rows}</table></section>'

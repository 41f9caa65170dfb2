"""The format of a saved explanation or comparison, with its picture and its pixel scores as text."""

import base64
import binascii
import io
import zlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from whyformer.inputs.images import Picture, Pixels
from whyformer.results.checked import CHECKED
from whyformer.storage.schema import (
    Form,
    Format,
    Misfit,
    both,
    count,
    every,
    fields,
    flag,
    must,
    named,
    number,
    one_of,
    optional,
    plain,
    span,
    text,
    whole,
)

LARGEST_SIDE = 2**15  # pixels


def _exactly(length: int, form: Form) -> Form:
    """A list of so many such things."""

    def check(value: Any) -> None:
        every(form)(value)
        must(len(value) == length, f"has {len(value)} entries, not {length}")

    return check


def plain_picture(picture: Picture) -> dict[str, Any]:
    """A picture as plain data, its pixels as PNG in base64."""
    return {
        "png": _encoded(picture.pixels),
        "size": list(picture.size),
        "region": list(picture.region),
        "seen": None if picture.seen is None else _encoded(picture.seen),
        **({} if picture.name is None else {"name": picture.name}),
    }


def picture_of(data: Mapping[str, Any]) -> Picture:
    """What `plain_picture` gave, without the model's own numbers."""
    seen = None if data["seen"] is None else _decoded(data["seen"])
    left, top, right, bottom = data["region"]
    height, width = data["size"]
    return Picture(_decoded(data["png"]), (height, width), (left, top, right, bottom), seen, name=data.get("name"))


def plain_pixels(scores: NDArray[np.float64]) -> dict[str, Any]:
    """Scores of pixels [height, width] as plain data: compressed float32 in base64."""
    packed = zlib.compress(scores.astype("<f4").tobytes())
    return {"size": list(scores.shape), "float32": base64.b64encode(packed).decode()}


def pixels_of(data: Mapping[str, Any]) -> NDArray[np.float64]:
    """What `plain_pixels` gave."""
    return np.frombuffer(_unpacked(data), dtype="<f4").astype(np.float64).reshape(data["size"])


def _unpacked(data: Mapping[str, Any]) -> bytes:
    size = 4 * data["size"][0] * data["size"][1]
    engine = zlib.decompressobj()
    return engine.decompress(base64.b64decode(data["float32"], validate=True), size + 1)


def _encoded(pixels: Pixels) -> str:
    file = io.BytesIO()
    Image.fromarray(pixels).save(file, "PNG")
    return base64.b64encode(file.getvalue()).decode()


def _decoded(png: str) -> Pixels:
    with Image.open(io.BytesIO(base64.b64decode(png, validate=True)), formats=["PNG"]) as image:
        return np.array(image.convert("RGB"))


def _check_picture(data: Mapping[str, Any]) -> None:
    for name in ("png", "seen"):
        try:
            pixels = None if data[name] is None else _decoded(data[name])
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            must(False, f"is no PNG in base64 ({error})", name)
        if name == "seen" and pixels is not None:
            must(pixels.shape[:2] == tuple(data["size"]), f"is of another size than {data['size']}", name)
    left, top, right, bottom = data["region"]
    must(left < right and top < bottom, "is no region: left, top, right, bottom", "region")


def _check_pixels(data: Mapping[str, Any]) -> None:
    due = 4 * data["size"][0] * data["size"][1]
    try:
        there = len(_unpacked(data))
    except (binascii.Error, zlib.error, ValueError) as error:
        must(False, f"is no compressed list of numbers ({error})", "float32")
    must(there == due, f"is {there} bytes long for {due} bytes of numbers", "float32")


_SIZE = _exactly(2, whole(1, LARGEST_SIDE))
_REGION = _exactly(4, number(0, 1))
PICTURE = both(
    fields({"png": text, "size": _SIZE, "region": _REGION, "seen": optional(text)}, {"name": text}), _check_picture
)
PIXELS = both(fields({"size": _SIZE, "float32": text}), _check_pixels)


SCHEMA = "whyformer/explanation"
COMPARISON_SCHEMA = "whyformer/comparison"
SCHEMA_VERSION = 2

_ANSWER = fields({"tokens": span, "characters": optional(span)})
_PLACE = fields({"token": count, "part": optional(count), "characters": optional(span)})
_SAID_AT = {"span": optional(_ANSWER), "place": optional(_PLACE), "title": optional(text)}
_LABEL = fields({"index": optional(count), "name": text}, _SAID_AT)
_SHARE = number(0, 1.001)
_PREDICTED = fields(
    {
        "label": text,
        "index": optional(count),
        "probability": optional(_SHARE),
        "logits": every(number()),
        "probabilities": optional(every(_SHARE)),
        "labels": every(text),
    },
    {**_SAID_AT, "indices": optional(every(count))},
)
_UNIT = fields(
    {
        "text": text,
        "kind": one_of("token", "word", "patch"),
        "span": optional(span),
        "part": optional(count),
        "special": flag,
        "piece": optional(text),
        "score": number(),
    },
    {"box": optional(every(count))},
)
_TRUST = fields(
    {
        "aopc": number(),
        "random": every(number(), at_least=1),
        "ceiling": optional(number()),
        "target": text,
        "units": count,
        "kind": one_of("token", "word", "patch"),
        "evaluations": count,
    },
    {"output": one_of("class", "answer", "token")},
)
_SEEN = fields(
    {
        "hide": text,
        "hidden_in": every(count),
        "outputs": every(optional(number())),
        "probabilities": optional(every(optional(every(_SHARE)))),
        "target": optional(count),
    }
)
_VERSION_1 = fields(
    {
        "method": text,
        "options": named(plain),
        "signed": flag,
        "texts": every(text),
        "prediction": _PREDICTED,
        "target": _LABEL,
        "versus": optional(_LABEL),
        "units": every(_UNIT, at_least=1),
        "layers": optional(every(every(number()), at_least=1)),
        "diagnostics": named(plain),
        "provenance": both(plain, fields({}, {"packages": named(plain)})),
    },
    {
        "trust": _TRUST,
        "image": PICTURE,
        "pixels": PIXELS,
        "checked": optional(CHECKED),
        "explains": one_of("logit", "log_odds"),
        "predicts_at": count,
    },
)
_EXPLANATION = both(_VERSION_1, fields({"ranks": flag, "signs": optional(every(whole())), "seen": every(_SEEN)}))


def _fits_together(data: Mapping[str, Any]) -> None:
    """The parts of a saved explanation are as long as they have to be, and every span lies in its text."""
    texts, units = data["texts"], data["units"]
    for place, unit in enumerate(units):
        part, where = unit["part"], unit["span"]
        must(part is None or part < len(texts), f"is {part}, and there are {len(texts)} texts", f"units[{place}].part")
        must(where is None or part is not None, "is missing beside a span", f"units[{place}].part")
        if where is not None:
            must(where[1] <= len(texts[part]), f"is {where}, behind the end of its text", f"units[{place}].span")
        _check_box(unit.get("box"), data.get("image"), f"units[{place}].box")
    predicts_at = data.get("predicts_at", 0)
    must(predicts_at < max(1, len(units)), f"is {predicts_at}, and there are {len(units)} units", "predicts_at")
    for place, layer in enumerate(data["layers"] or ()):
        must(len(layer) == len(units), f"has {len(layer)} scores for {len(units)} units", f"layers[{place}]")
    for place, effect in enumerate((data.get("checked") or {"effects": ()})["effects"]):
        last = max(effect["units"])
        must(last < len(units), f"is {last}, and there are {len(units)} units", f"checked.effects[{place}].units")
    _check_outputs(data)
    _check_seen(data)


def _check_box(box: Sequence[int] | None, image: Mapping[str, Any] | None, field: str) -> None:
    """The box of a patch lies in the image."""
    if box is not None:
        height, width = (0, 0) if image is None else image["size"]
        inside = len(box) == 4 and box[0] < box[2] <= width and box[1] < box[3] <= height
        must(inside, f"is {list(box)} in an image of {width} × {height} pixels", field)


def _check_outputs(data: Mapping[str, Any]) -> None:
    """What the model said, and what is explained of it, belong together."""
    predicted, texts = data["prediction"], data["texts"]
    outputs = len(predicted["labels"])
    for name in ("logits", "probabilities", "indices"):
        numbers = predicted.get(name)
        told = numbers is None or len(numbers) == outputs
        must(told, f"has {len(numbers or ())} numbers for {outputs} labels", f"prediction.{name}")
    for name in ("prediction", "target", "versus"):
        label = data[name] or {}
        at, answer = label.get("index"), label.get("span")
        kept = predicted.get("indices") or range(outputs)
        must(at is None or at in kept, f"is {at}, and there are {outputs} labels", f"{name}.index")
        where = answer["characters"] if answer else None
        inside = where is None or (len(texts) == 2 and where[1] <= len(texts[1]))
        must(inside, f"is {where}, behind the end of the context", f"{name}.span.characters")
        _check_place(label.get("place"), texts, f"{name}.place")


def _check_place(place: Mapping[str, Any] | None, texts: Sequence[str], field: str) -> None:
    """Where an output is said lies in its text."""
    if place is not None and place["characters"] is not None:
        part, where = place["part"], place["characters"]
        must(part is not None and part < len(texts), f"is {part}, and there are {len(texts)} texts", f"{field}.part")
        must(where[1] <= len(texts[part]), f"is {where}, behind the end of its text", f"{field}.characters")


def _check_seen(data: Mapping[str, Any]) -> None:
    """There is a sign for each unit, and of what was seen a place for each step."""
    units, signs = data["units"], data["signs"]
    must(signs is None or len(signs) == len(units), f"has {len(signs or ())} signs for {len(units)} units", "signs")
    words = any(unit["kind"] == "word" for unit in units)
    for place, seen in enumerate(data["seen"]):
        steps, hidden_in, shares = len(seen["outputs"]), seen["hidden_in"], seen["probabilities"]
        told = all(step < steps for step in hidden_in) and (words or len(hidden_in) == len(units))
        must(told, f"has no step of {steps} for each of {len(units)} units", f"seen[{place}].hidden_in")
        told = shares is None or len(shares) == steps
        must(told, f"has {len(shares or ())} entries for {steps} steps", f"seen[{place}].probabilities")
        classes = {len(row) for row in shares or () if row is not None}
        target = seen["target"]
        told = len(classes) <= 1 and (target is None or not classes or target < max(classes))
        must(told, "do not have the explained class in each step", f"seen[{place}].probabilities")


def _check_per_unit(numbers: Any, units: int, field: str) -> None:
    """A number for each unit; of the start and of the end of an answer, two such lists."""
    for row in numbers if _is_several(numbers) else [numbers]:
        told = isinstance(row, (list, tuple)) and len(row) == units and all(isinstance(n, (int, float)) for n in row)
        must(told, f"has no number for each of the {units} units", field)


def _is_several(numbers: Any) -> bool:
    return isinstance(numbers, (list, tuple)) and bool(numbers) and isinstance(numbers[0], (list, tuple))


def _from_version_1(data: Mapping[str, Any]) -> dict[str, Any]:
    """In version 1, ranks, signs and what was seen stood among the diagnostics, under names of `stepwise`."""
    new: dict[str, Any] = {"ranks": False, "signs": None, "seen": []}
    told = dict(data["diagnostics"])
    if data["method"] == "stepwise":
        for name in told.keys() & {"sign", "step"}:
            _check_per_unit(told[name], len(data["units"]), f"diagnostics.{name}")
        signs = told.pop("sign", None)
        new["signs"] = [sum(pair) for pair in zip(*signs, strict=True)] if _is_several(signs) else signs
        new["ranks"] = bool(told.pop("ranks", False))
        told.pop("sign_of_tokens", None)
        if isinstance(told.get("outputs"), Mapping) and not _is_several(told.get("step")):
            new["seen"] = [_seen_in_version_1(data)]
            told = {name: fact for name, fact in told.items() if name not in ("outputs", "step", "step_of_tokens")}
    return {**data, "schema_version": 2, "diagnostics": told, **new}


def _seen_in_version_1(data: Mapping[str, Any]) -> dict[str, Any]:
    """Of one part: what was said of the start and of the end of an answer was added up, and stays where it was."""
    told, outputs = data["diagnostics"], data["diagnostics"]["outputs"]
    shares = outputs.get("probabilities")
    if isinstance(shares, list):
        shares = [None if isinstance(row, list) and None in row else row for row in shares]
    return {
        "hide": data["options"].get("hide", "delete"),
        "hidden_in": told.get("step_of_tokens", told.get("step")),
        "outputs": outputs.get("logit"),
        "probabilities": shares,
        "target": None if shares is None else data["target"]["index"],
    }


def _are_of_one_input(data: Mapping[str, Any]) -> None:
    """The explanations of a saved comparison are of the same input, which each model may cut in its own way."""
    inputs = [(saved["texts"], (saved.get("image") or {}).get("png")) for saved in data["explanations"]]
    for place, one in enumerate(inputs):
        must(one == inputs[0], "is of another input than the first", f"explanations[{place}]")


def _all_from_version_1(data: Mapping[str, Any]) -> dict[str, Any]:
    renewed = []
    for place, one in enumerate(data["explanations"]):
        try:
            renewed.append(EXPLANATION.renewed(one))
        except Misfit as misfit:
            raise misfit.below(place).below("explanations") from None
    return {**data, "schema_version": 2, "explanations": renewed}


EXPLANATION = Format(
    "saved explanation",
    SCHEMA,
    SCHEMA_VERSION,
    (_EXPLANATION, _fits_together),
    older={1: (_VERSION_1, _from_version_1)},
)
_REFUSED = {"refused": named(text)}
COMPARISON = Format(
    "saved comparison",
    COMPARISON_SCHEMA,
    SCHEMA_VERSION,
    (fields({"explanations": every(EXPLANATION.check, at_least=1), **_REFUSED}), _are_of_one_input),
    older={1: (fields({"explanations": every(fields({}), at_least=1), **_REFUSED}), _all_from_version_1)},
)

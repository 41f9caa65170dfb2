"""Tensors: whether a model can take what it is given, so that it is said before torch does."""

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from whyformer.errors import BadInput, listed, shown
from whyformer.models.cache import known
from whyformer.models.lend import parameters_of
from whyformer.models.load import input_embeddings, unwrapped, vocabulary_size

TABLES = {
    **dict.fromkeys(("position_embeddings", "wpe", "embed_positions"), "position_ids"),
    "token_type_embeddings": "token_type_ids",
}

FORMS = {  # what a tensor holds, by whether its numbers are fractions and how many dimensions it has
    (False, 2): "input_ids",
    (True, 3): "inputs_embeds",
    (True, 4): "pixel_values",
}
CONTENT = tuple(FORMS.values())  # one of them says how many examples there are

CHOSEN_HERE = ("logits_to_keep", "num_logits_to_keep")


class EmbeddingTable(NamedTuple):
    """How many rows a table of positions or token types has, and how many of them no token may have.

    `skipped` is the token that is given no position, if the model looks at tokens to tell.
    """

    rows: int
    reserved: int = 0
    skipped: int | None = None

    @classmethod
    def of(cls, module: nn.Embedding, name: str) -> "EmbeddingTable":
        """The table of a module: RoBERTa counts positions from the one behind its padding index, OPT from an offset."""
        offset = getattr(module, "offset", None)
        if name != "position_ids":
            return cls(module.num_embeddings)
        if isinstance(offset, int):
            return cls(module.num_embeddings, offset)
        skipped = module.padding_idx
        return cls(module.num_embeddings, 0 if skipped is None else skipped + 1, skipped)


def tensors_of(model: nn.Module, inputs: Any) -> dict[str, Tensor]:
    """The inputs, wherever they lie; what is not there (None) is left out.

    Of a module that calls its tokens, embeddings or pixels something else, they have the names of transformers here.
    """
    if not isinstance(model, nn.Module):
        raise BadInput(f"a model (torch.nn.Module) is needed; found {type(model).__name__}")
    inputs = _by_name(model, inputs)
    if not isinstance(inputs, Mapping):
        raise BadInput(
            "inputs are the tensors that the model's forward takes, by name, as tokenizer(…, return_tensors='pt') "
            f"gives them; found {type(inputs).__name__}"
        )
    tensors = {}
    for name, tensor in inputs.items():
        if tensor is None:
            continue
        if not isinstance(name, str):
            raise BadInput(f"inputs are tensors by their names in the model's forward; found {shown(name)} as a name")
        check_not_chosen_here(name)
        if not isinstance(tensor, Tensor):
            raise BadInput(f"{name} is {type(tensor).__name__}: give tensors (tokenizer(…, return_tensors='pt'))")
        given_first = name in CONTENT and (name == "pixel_values" or not of_transformers(model))
        if name != "special_tokens_mask" and not given_first and not accepts(model, name):
            raise BadInput(f"the forward of {type(model).__name__} takes no {shown(name)}: leave it out")
        tensors[name] = tensor
    return tensors


def check_not_chosen_here(name: object) -> None:
    """Raise for an argument of a model's forward that the explained positions decide."""
    if name in CHOSEN_HERE:
        raise BadInput(
            f"{name} is set by Whyformer, which asks the model for the positions that are explained: leave it out, and "
            "give another position as target=(token, position)"
        )


def near(tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors, with what there is for each token on the CPU: a GPU is waited for once for each, not each check."""
    return {name: t.cpu() if t.dim() == 2 or not t.is_floating_point() else t for name, t in tensors.items()}


def of_transformers(model: nn.Module) -> bool:
    """Whether a model is written as those of transformers, with their names; not one that has such a part."""
    return hasattr(unwrapped(model), "main_input_name")


def first_argument(model: nn.Module) -> inspect.Parameter | None:
    """What the model's forward takes first."""
    return next(iter(parameters_of(unwrapped(model)).values()), None)


def _by_name(model: nn.Module, inputs: Any) -> Any:
    """The inputs of a module that is not of transformers, what it takes first under a name of `CONTENT`."""
    if of_transformers(model):
        return inputs
    taken = list(parameters_of(unwrapped(model)))
    if isinstance(inputs, Tensor):
        inputs = (inputs,)
    if isinstance(inputs, tuple):
        if len(inputs) > len(taken):
            raise BadInput(f"the forward of {type(model).__name__} takes {len(taken)} inputs; found {len(inputs)}")
        inputs = dict(zip(taken, inputs, strict=False))
    if not isinstance(inputs, Mapping) or set(CONTENT) & inputs.keys() or not taken or taken[0] not in inputs:
        return inputs
    return {_content(name, t) if name == taken[0] else name: t for name, t in inputs.items()}


def _content(name: str, tensor: Any) -> str:
    """What a tensor holds by its form, by the name that transformers has for it."""
    if not isinstance(tensor, Tensor):
        raise BadInput(f"{name} is {type(tensor).__name__}: give tensors")
    content = FORMS.get((tensor.is_floating_point(), tensor.dim()))
    if content is None:
        raise BadInput(
            f"{name} is {str(tensor.dtype).removeprefix('torch.')} of shape {tuple(tensor.shape)}: tokens [batch, "
            "units], as whole numbers, embeddings [batch, units, width] or pixels [batch, channels, height, width] are "
            "explained; wrap a model of single features so that it takes them as [batch, features, 1]"
        )
    return content


def rows_of(tensors: Mapping[str, Tensor]) -> tuple[dict[str, Tensor], int]:
    """Inputs of a model that chooses among texts as rows, [batch · choices, units]; and how many choices there are."""
    dims = {"input_ids": 3, "inputs_embeds": 4}
    tensor = next((tensors[name] for name in dims if name in tensors), None)
    if any(name in tensors and tensors[name].dim() != due for name, due in dims.items()) or tensor is None:
        shape = "neither" if tensor is None else f"the shape {tuple(tensor.shape)}"
        raise BadInput(
            "this model chooses among texts: input_ids [batch, choices, units], or inputs_embeds with their width "
            f"behind, are needed; found {shape}"
        )
    if other := next((n for n, t in tensors.items() if t.shape[:2] != tensor.shape[:2]), None):
        raise BadInput(
            f"inputs need one number of examples and of choices: {other} has the shape {tuple(tensors[other].shape)}, "
            f"and there are tokens of shape {tuple(tensor.shape)}"
        )
    return {name: t.flatten(0, 1) for name, t in tensors.items()}, tensor.shape[1]


def check_one_text(ids: Tensor | None) -> None:
    """Raise for inputs of several texts."""
    if ids is not None and ids.dim() == 3:
        raise BadInput(
            "input_ids [batch, units] are needed, one text for each example; found input_ids of shape "
            f"{tuple(ids.shape)}"
        )


def batch_and_units(tensors: Mapping[str, Tensor]) -> torch.Size:
    """[batch, units] of the inputs."""
    names = [name for name in ("input_ids", "inputs_embeds") if name in tensors]
    if len(names) != 1:
        others = listed(list(tensors)) or "nothing"
        both = ", but not both of the first two" if names else ""
        raise BadInput(f"inputs need `input_ids`, `inputs_embeds` or `pixel_values`{both}; found {others}")
    tensor = tensors[names[0]]
    form = "[batch, units]" if names[0] == "input_ids" else "[batch, units, width]"
    if tensor.dim() != form.count(",") + 1 or 0 in tensor.shape:
        raise BadInput(f"{names[0]} {form} with at least one token are needed; found the shape {tuple(tensor.shape)}")
    return tensor.shape[:2]


def accepts(model: nn.Module, name: str) -> bool:
    """Whether the model's forward takes an argument of that name."""
    parameters = parameters_of(unwrapped(model))
    return name in parameters or any(p.kind == p.VAR_KEYWORD for p in parameters.values())


def check_ids(model: nn.Module, ids: Tensor | None) -> None:
    """Raise where an id has no row in the model's embeddings."""
    if ids is None:
        return
    if ids.is_floating_point() or ids.is_complex() or ids.dtype == torch.bool:
        raise BadInput(f"input_ids must be whole numbers; found {ids.dtype}")
    rows = vocabulary_size(model)
    low, high = torch.stack(ids.aminmax()).tolist() if rows is not None else (0, 0)
    if rows is not None and not 0 <= low <= high < rows:
        raise BadInput(f"input_ids must lie in 0 … {rows - 1}; found {low} … {high}")


def check_width(model: nn.Module, embeddings: Tensor | None) -> None:
    """Raise where ready embeddings are not as wide as the model's own."""
    if embeddings is None:
        return
    width = getattr(input_embeddings(model), "embedding_dim", None)
    if width is not None and embeddings.shape[-1] != width:
        raise BadInput(f"inputs_embeds must be {width} wide; found {embeddings.shape[-1]}")


def check_shapes(tensors: Mapping[str, Tensor], shape: torch.Size) -> None:
    """Raise where a tensor does not go with the units."""
    for name in ("special_tokens_mask", "token_type_ids", "position_ids"):
        tensor = tensors.get(name)
        if tensor is None or tensor.shape[:2] == shape:  # TAPAS has several types for each token
            continue
        raise BadInput(
            f"inputs need one batch size and one length: {name} has the shape {tuple(tensor.shape)}, and there are "
            f"tokens of shape {tuple(shape)}"
        )
    if "attention_mask" in tensors:
        check_mask(tensors["attention_mask"], shape)


def check_mask(mask: Tensor, shape: torch.Size) -> None:
    """Raise where a mask does not fit tokens [batch, units], is not a number, or hides all tokens of an example."""
    if not (mask.shape == shape if mask.dim() == 2 else mask.dim() in (3, 4) and mask.shape[-1] == shape[1]):
        raise BadInput(
            f"attention_mask has the shape {tuple(mask.shape)} for tokens of shape {tuple(shape)}: give one for each"
        )
    if mask.is_floating_point() and bool(mask.isnan().any()):
        raise BadInput("attention_mask holds NaN: give 1 for a token that is attended to, 0 for padding")
    if mask.dim() == 2 and not bool(mask.any(-1).all()):
        rows = mask.any(-1).logical_not().nonzero().flatten().tolist()
        raise BadInput(f"no token of example {listed(rows, 8)} is attended to: leave such examples out")


def check_tables(model: nn.Module, tensors: Mapping[str, Tensor], shape: torch.Size) -> None:
    """Raise where a position or token type has no row in the model's table."""
    of_model = tables(model)
    for name, (rows, *_) in of_model.items():
        ids = tensors.get(name)
        if ids is not None and not 0 <= int(ids.min()) <= int(ids.max()) < rows:
            raise BadInput(f"{name} must lie in 0 … {rows - 1}; found {int(ids.min())} … {int(ids.max())}")
    if "position_ids" in tensors or "position_ids" not in of_model:
        return
    rows, reserved, skipped = of_model["position_ids"]
    ids, mask = tensors.get("input_ids"), tensors.get("attention_mask")
    padding = 0
    if skipped is not None and ids is not None:
        padding = int(ids.eq(skipped).sum(1).min())
    elif reserved and mask is not None and mask.shape == shape:
        padding = int(mask.eq(0).sum(1).min())  # OPT counts what is attended to
    if shape[1] - padding > rows - reserved:
        raise BadInput(f"{shape[1] - padding} tokens, but the model has positions for {rows - reserved}: give fewer")


def tables(model: nn.Module) -> dict[str, EmbeddingTable]:
    """Return the smallest table of positions and the smallest table of token types."""

    def find() -> dict[str, EmbeddingTable]:
        smallest: dict[str, EmbeddingTable] = {}
        for path, module in model.named_modules():
            name = TABLES.get(path.rpartition(".")[2])
            if name is not None and isinstance(module, nn.Embedding):
                table = EmbeddingTable.of(module, name)
                smallest[name] = min(smallest.get(name, table), table, key=lambda table: table.rows - table.reserved)
        return smallest

    return known(model).once("tables of positions and token types", find)

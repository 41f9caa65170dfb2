"""The torch function mode under which a model is run and recorded.

It sees every function call. So the layers, and the token embeddings, are found by watching, without a list of
architectures.
"""

import itertools
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Self

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from whyformer.recorder.attention import Attention, SoftmaxLineage, attend, plain, plain_map
from whyformer.recorder.lrp.dispatch import (
    FUSED,
    GOVERNABLE,
    MULTI_HEAD,
    Gates,
    Governed,
    flows,
    is_hidden,
    is_in_place,
    multi_head_attention,
    steps_of,
    swapped,
)
from whyformer.recorder.lrp.forward_rules import NotWhileRunning, Running
from whyformer.recorder.lrp.sites import Site, make_site
from whyformer.recorder.needs import Needs


@dataclass
class RecordedCall:
    """One run of a numbered submodule: a member of a list or sequence of modules, such as `encoder.layer.3`."""

    path: str
    input: Tensor | None
    output: Tensor | None = None
    attentions: list[int] = field(default_factory=list)  # positions in the list of attention maps
    versions: list[tuple[Tensor, int]] = field(default_factory=list)  # of its input and output, as torch counts changes

    def keep(self, states: Tensor | None) -> Tensor | None:
        """The states, remembered with their version."""
        if states is not None:
            self.versions.append((states, states._version))
        return states

    @property
    def overwritten(self) -> bool:
        """Whether its input or output was changed in place since."""
        return any(states._version != version for states, version in self.versions)


def in_this_thread(hook: Callable[..., Any]) -> Callable[..., Any]:
    """The hook for runs of the thread that asks; another thread, which may share the module, passes it by.

    A hook that is just being set or removed may be called in another thread without its keyword arguments.
    """
    thread = threading.get_ident()
    return lambda *args: hook(*args) if threading.get_ident() == thread else None


class Calls(ExitStack):
    """Watches the numbered submodules while a model runs, through hooks that are gone afterwards.

    A *layer* is the outermost numbered call that holds exactly one attention map. This finds `encoder.layer.i`,
    `transformer.h.i`, `model.layers.i`, and a shared layer that is called many times.
    """

    def __init__(
        self, modules: Mapping[str, nn.Module], body: nn.Module | None, edits: dict[int, Callable[[Tensor], Tensor]]
    ):
        super().__init__()
        self.modules = modules  # by path
        self.body = body  # the model without its head, if there is such a module
        self.final: Tensor | None = None  # its output
        self.edits = edits  # number of the call -> what replaces its input
        self.made: list[RecordedCall] = []
        self._open: list[RecordedCall] = []

    def __enter__(self) -> Self:
        for path, module in self.modules.items():
            if path.rpartition(".")[2].isdigit():
                enter = in_this_thread(partial(self._enter, path))
                self.enter_context(module.register_forward_pre_hook(enter, with_kwargs=True))
                self.enter_context(module.register_forward_hook(in_this_thread(self._leave)))
        if self.body is not None:
            self.enter_context(self.body.register_forward_hook(in_this_thread(self._finish)))
        return self

    @property
    def path(self) -> str:
        """The path of the innermost numbered submodule that is running."""
        return self._open[-1].path if self._open else "outside all layers"

    def attention_seen(self, position: int) -> None:
        """Attention map number `position` was computed inside all the calls that are open now."""
        for call in self._open:
            call.attentions.append(position)

    def holds_alone(self, position: int) -> bool:
        """Whether some call holds this attention map and no other."""
        return any(call.attentions == [position] for call in self.made)

    def layers(self, attentions: int) -> list[int] | None:
        """For each attention map the number of its layer's call, or None if one has no layer of its own."""
        numbers = []
        for position in range(attentions):
            number = next((n for n, c in enumerate(self.made) if c.attentions == [position]), None)
            if number is None or self.made[number].input is None or self.made[number].output is None:
                return None
            numbers.append(number)
        return numbers

    def hidden(self, numbers: Sequence[int]) -> list[Tensor]:
        """The states between the layers: what enters the first, each next one, and what leaves the last.

        Where nothing that leaves a layer enters the next as it is (XLM numbers its attention alone), what leaves the
        last is the output of the body.
        """
        made = [self.made[number] for number in numbers]
        joined = [before.output is after.input for before, after in itertools.pairwise(made)]
        last = made[-1].output if any(joined) or not joined else self.final
        return [state for state in (*(call.input for call in made), last) if state is not None]

    def _finish(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        self.final = _hidden_states(_values(output))

    def _enter(
        self, path: str, module: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]
    ) -> tuple[tuple[Any, ...], dict[str, Any]] | None:
        states = _hidden_states([*args, *kwargs.values()])
        edit = self.edits.get(len(self.made))
        edited = None
        if edit is not None and states is not None:
            old, states = states, edit(states)
            args = tuple(states if a is old else a for a in args)
            edited = args, {k: states if v is old else v for k, v in kwargs.items()}
        call = RecordedCall(path, states)
        call.keep(states)
        self.made.append(call)
        self._open.append(call)
        return edited

    def _leave(self, module: nn.Module, args: tuple[Any, ...], output: Any) -> None:
        call = self._open.pop()
        call.output = call.keep(_hidden_states(_values(output)))


def _values(output: Any) -> Iterable[Any]:
    if isinstance(output, Tensor):
        return (output,)
    return output.values() if isinstance(output, Mapping) else output or ()


def _hidden_states(candidates: Iterable[Any]) -> Tensor | None:
    """The first that can be hidden states: [batch, units, width], in the graph."""
    return next((c for c in candidates if isinstance(c, Tensor) and c.dim() == 3 and c.requires_grad), None)


class TokenEmbeddings:
    """Watches the lookups of embeddings while a model runs.

    The first one of the given tokens becomes `leaf`, [batch, units, width]: also where the model lays it out with the
    units first, or with more padding. A later lookup of the same tokens, as a decoder's that starts one position later,
    gives the same leaf, so that a token's gradient is that of all its uses.
    """

    def __init__(self, weight: Tensor | None, ids: Tensor | None, edit: Callable[[Tensor], Tensor] | None):
        self.weight = weight
        self.ids = ids
        self.edit = edit
        self.leaf: Tensor | None = None

    def looked_up(self, weight: Tensor, ids: Tensor, result: Tensor) -> Tensor:
        """What a lookup gives to the model."""
        if self.weight is None and _same(ids, self.ids):
            self.weight = weight  # the model does not say which are its input embeddings
        if weight is not self.weight:
            return result
        return self._first(ids, result) if self.leaf is None else self._again(ids, result)

    def _first(self, ids: Tensor, result: Tensor) -> Tensor:
        if self.ids is not None and not _same(ids, self.ids):
            units = self.ids.shape[1]
            if _same(ids, self.ids.T):
                return self._made(result.transpose(0, 1)).transpose(0, 1).clone()
            if ids.dim() == 2 and ids.shape[1] > units and torch.equal(ids[:, :units], self.ids):
                return torch.cat((self._made(result[:, :units]), result[:, units:]), 1)
        return self._made(result).clone()  # a model may go on in place, which torch forbids on a leaf

    def _made(self, values: Tensor) -> Tensor:
        self.leaf = (self.edit(values) if self.edit else values).contiguous().requires_grad_()
        return self.leaf

    def _again(self, ids: Tensor, result: Tensor) -> Tensor:
        assert self.leaf is not None
        if _same(ids, self.ids):
            return self.leaf.clone()
        if self.ids is not None and ids.shape == self.ids.shape and torch.equal(ids[:, 1:], self.ids[:, :-1]):
            return torch.cat((result[:, :1], self.leaf[:, :-1]), 1)
        return result


def _same(ids: Tensor, others: Tensor | None) -> bool:
    """Whether two hold the same tokens; of the same memory it is known without a look, for which a GPU would wait."""
    if others is None or ids.shape != others.shape:
        return False
    in_one_place = ids.data_ptr() == others.data_ptr() and ids.stride() == others.stride() and ids.dtype == others.dtype
    return in_one_place or torch.equal(ids, others)


class Recorder(TorchFunctionMode):
    """Sees every torch function that the model calls.

    * Parameters are read as constants, so that the graph reaches from the outputs to the embeddings and no further,
      and no `requires_grad` flag of the model is touched.
    * The input embeddings become the leaf of the graph.
    * Fused attention is computed step by step if its maps are needed; attention in the model's own code is recognised.
    * Calls that a rule can govern become sites, or are made by the rules of a book that act while the model runs.
    """

    def __init__(self, tokens: TokenEmbeddings, batch: int, calls: Calls, needs: Needs, running: Running | None = None):
        super().__init__()
        self.needs = needs
        self.running = running
        self.ruled = needs.sites or running is not None
        self.batch = batch
        self.calls = calls
        self.sites: list[Site] = []
        self.tokens = tokens
        self.pixels: Tensor | None = None
        self.looked: Tensor | None = None  # what the first convolution made of the pixels
        self.absorbers: list[tuple[int, Tensor]] = []  # each with the number of calls before it
        self.attentions: list[Attention] = []
        self.lineage = SoftmaxLineage(batch)
        self.gates = Gates()
        self.products = 0  # calls that mix numbers, which no activation does
        self.random = False  # whether numbers are dropped at random, though the model is in eval mode

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        name = func.__name__
        if self.running is not None:
            self.running.signature.append(name)
            self.products += name in MIXING
        if name == "__get__":  # an attribute, such as a weight's `T`
            attribute = func(*args, **kwargs)
            return attribute.detach() if isinstance(attribute, Tensor) and _is_parameter(args[0]) else attribute
        if func is F.embedding:
            return self._embed(func, args, kwargs)
        if self.needs.sites and name in TAKING:
            args = self._with_absorbers(name, args)
        args = tuple(map(_constant, args))
        if kwargs:
            kwargs = {k: _constant(v) for k, v in kwargs.items()}
        if self.sites and is_in_place(name):
            changed = args[0] if args else next(iter(kwargs.values()))
            self.sites = [site.kept_from(changed) for site in self.sites]
        self.random = self.random or _draws(name, args, kwargs)
        result = self._instead(name, func, args, kwargs)
        if result is not NotImplemented:
            return result
        met = self.lineage.meet(*args[:2]) if name in SoftmaxLineage.MEETS_VALUES_IN and len(args) > 1 else None
        if met is not None:
            left, attention = met if self.running is None or not self.needs.maps else self._entered(*met)
            args = (left, *args[1:])
            self._see(attention if self.needs.tap is None else attention.without_maps())
        if self.ruled or name == FUSED:
            result = self._carried(name, func, args, kwargs, attends=met is not None)
        else:
            result = func(*args, **kwargs)
        self._follow(name, args, result)
        return result

    @property
    def governs_activations(self) -> bool:
        """Whether the rules that act while the model runs have one for activations."""
        return self.running is not None and self.running.book.rules.get("activation") is not None

    def _instead(self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The result of a call that is computed in another way; `NotImplemented` for all others."""
        if self.ruled and kwargs.get("inplace"):
            return self._in_place(func, args, kwargs)
        if name == FUSED and all(map(flows, _operands(args, kwargs))):
            return self._attend(args, kwargs) if self.needs.opened else self._fused(func, args, kwargs)
        if name == MULTI_HEAD:
            with self:  # its steps are seen one by one
                return multi_head_attention(*args, **kwargs)
        if name == BATCH_NORM:
            with self:
                return _settled_batch_norm(*args, **kwargs)
        return NotImplemented

    def _follow(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        """Remember what becomes of pixels, activations and softmaxes."""
        if self.looked is None and self.pixels is not None and name in LOOKING and isinstance(result, Tensor):
            self.looked = result if result.dim() == 4 and result.requires_grad else None
        if name in KEEPING and args and self.gates.knows(args[0]):
            self.gates.changed(args[0], result)
        self.lineage.saw(name, args, result)

    def _embed(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        named = dict(zip(("input", "weight"), args, strict=False)) | kwargs
        with torch.no_grad():
            result: Tensor = func(*args, **kwargs)
        return self.tokens.looked_up(named["weight"], named["input"], result)

    def _with_absorbers(self, name: str, args: tuple[Any, ...]) -> tuple[Any, ...]:
        """The arguments, with those parameters that take relevance of their own as leaves of the graph.

        They are what is joined to the units as further ones, and what is added to each unit, as positions are.
        """
        if not args:
            return args
        if name in ("cat", "concat"):
            flowing = [p.requires_grad and not _is_parameter(p) for p in args[0]]
            if any(flowing) and not all(flowing):
                parts = [p if flows else self._absorber(p) for p, flows in zip(args[0], flowing, strict=True)]
                return (parts, *args[1:])
            return args
        for one, other in (args, args[::-1]) if len(args) == 2 else ():
            fixed = _is_parameter(one) or (self.pixels is not None and isinstance(one, Tensor) and not flows(one))
            if fixed and flows(other) and not _is_parameter(other) and _is_for_units(one, other):
                return tuple(self._absorber(a.expand_as(other)) if a is one else a for a in args)
        return args

    def _absorber(self, constant: Tensor) -> Tensor:
        """A leaf in place of a constant, if the constant has something of its own for each example."""
        if constant.shape[0] % self.batch or not constant.is_floating_point():
            return constant.detach()
        leaf = constant.detach().clone().requires_grad_()
        self.absorbers.append((len(self.calls.made), leaf))
        return leaf

    def _in_place(self, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """An activation in place, as one that is not and a copy."""
        self.sites = [site.kept_from(args[0]) for site in self.sites]
        with self:
            changed = func(args[0].clone(), *args[1:], **{**kwargs, "inplace": False})
        copied: Tensor = args[0].copy_(changed)
        return copied

    def _carried(
        self, name: str, func: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, attends: bool
    ) -> Any:
        """Call a function as a site, or written out in steps that can be sites, or as it is."""
        governable = None if name in POOLS and self.pixels is None else GOVERNABLE.get(name)
        governed = governable(func, args, kwargs) if governable else None
        if governed is not None:
            return self._govern(governed, attends=attends)
        steps = steps_of(name)
        if steps is not None and any(map(flows, (*args, *kwargs.values()))):
            with self:  # the steps are seen one by one, as those of a model that writes them out
                return steps(*args, **kwargs)
        result = func(*args, **kwargs)
        if is_hidden(name, args, kwargs, result):
            self._refuse(name, result)
        return result

    def _refuse(self, name: str, result: Tensor) -> None:
        """Make a site of a kind that no book has a rule for."""
        if self.running is not None:
            raise NotWhileRunning(f"{name} changes numbers where the graph shows only that they are moved")
        node = (result if result._base is None else result._base).grad_fn
        if node is not None:
            below = tuple(following for following, _ in node.next_functions)
            self.sites.append(Site(name, (), None, below, node, self.calls.path, self.batch))

    def _govern(self, governed: Governed, *, attends: bool) -> Tensor:
        """Call a function as a site."""
        kind, call, operands, constants = governed
        if kind == "matmul" and (attends or any(map(self.lineage.knows, operands))):
            kind = "attend"
            if not attends and not self.lineage.knows(operands[0]):
                call, operands = swapped(call), operands[::-1]
        elif kind == "linear_map" and self.pixels is not None and operands[0].shape == self.pixels.shape:
            kind = "pixels"
        elif kind in ("product", "scaled") and any(map(self.lineage.weighs, operands)):
            kind = "gated"  # attention, or a pooling by attention, written as a product of single numbers
            if not self.lineage.weighs(operands[0]):
                call, operands = swapped(call), operands[::-1]
        elif kind == "product":
            kind, call, operands = self.gates.seen(call, operands)
        result = self._step(kind, call, operands, constants)
        if kind in ("activation", "scaling", "add_constant"):
            self.gates.changed(operands[0], result, activated=kind == "activation")
        return result

    def _attend(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """Fused attention, in steps."""
        enter = plain_map if self.running is None or self.needs.tap is not None else self.running.entered
        context, attention = attend(*args, **kwargs, step=self._step if self.ruled else plain, enter=enter)
        self._see(attention if self.needs.tap is None else attention.without_maps())
        return context

    def _fused(self, func: Callable[..., Tensor], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Tensor:
        """Fused attention, inside its kernel."""
        named = dict(zip(ATTENTION_PARAMETERS, args, strict=False)) | kwargs
        query, key, value, mask = (named.pop(name, None) for name in ATTENTION_PARAMETERS[:4])
        named["dropout_p"] = 0.0  # a recorded model is in eval mode
        context: Tensor
        if self.running is None:
            context = func(query, key, value, mask, **named)
        else:
            context = self.running.fused(partial(func, **named), query, key, value, mask, self.calls.path)
        self._see(Attention(None, None, (query.shape[-2], key.shape[-2])))
        return context

    def _entered(self, left: Tensor, attention: Attention) -> tuple[Tensor, Attention]:
        """A map in the model's own code as it meets its values, where a book's rules act and its gradient is wanted."""
        assert self.running is not None
        if left is not attention.probabilities:
            raise NotWhileRunning("an attention map is changed before it meets its values")
        entering = self.running.entered(left)
        return entering, replace(attention, probabilities=entering)

    def _step(
        self, kind: str, function: Callable[..., Tensor], operands: tuple[Tensor, ...], constants: tuple[Any, ...] = ()
    ) -> Tensor:
        if self.running is not None:
            return self.running.step(kind, function, operands, constants, self.calls.path)
        sparing = self.needs.in_turn
        result, site = make_site(kind, function, operands, self.calls.path, self.batch, constants, sparing=sparing)
        if site is not None:
            self.sites.append(site)
        return result

    def _see(self, attention: Attention) -> None:
        map_, last = attention.probabilities, self.attentions[-1] if self.attentions else None
        if map_ is not None and not map_.requires_grad:
            return
        if map_ is not None and last is not None and last.probabilities is map_:  # one map that weighs twice
            assert last.values is not None
            assert attention.values is not None
            self.attentions[-1] = replace(attention, values=torch.cat((last.values, attention.values), -1))
            return
        self.calls.attention_seen(len(self.attentions))
        self.attentions.append(attention)


def _operands(args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Any]:
    """Query, key and value of fused attention."""
    named = dict(zip(ATTENTION_PARAMETERS, args, strict=False)) | kwargs
    return [named[name] for name in ATTENTION_PARAMETERS[:3]]


def _settled_batch_norm(
    states: Tensor,
    mean: Tensor | None,
    variance: Tensor | None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    training: bool = False,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Any:
    """A batch norm whose statistics are settled, as what it is: a factor and a shift for each channel.

    The gradient of torch's own (2.13, on CPUs) is wrong for one example whose gradient arrives transposed.
    """
    if training or mean is None or variance is None:
        return NotImplemented
    factor = (variance + eps).rsqrt() * (1 if weight is None else weight)
    shift = (0 if bias is None else bias) - mean * factor
    shape = (1, -1, *(1 for _ in states.shape[2:]))
    return states * factor.to(states).view(shape) + shift.to(states).view(shape)


def _draws(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
    """Whether a call drops numbers at random."""
    if name == FUSED:
        return bool(kwargs.get("dropout_p", args[4] if len(args) > 4 else 0))
    if name not in DROPOUT:
        return False
    named = dict(zip(("input", "p", "training"), args, strict=False)) | kwargs
    return bool(named.get("p", 0.5)) and bool(named.get("training", named.get("train", True)))


def _is_parameter(value: Any) -> bool:
    return isinstance(value, nn.Parameter)


def _is_for_units(parameter: Tensor, states: Tensor) -> bool:
    """Whether a parameter has a vector of its own for each of the units."""
    return parameter.dim() >= 2 and states.dim() == 3 and 1 < parameter.shape[-2] == states.shape[-2]


ATTENTION_PARAMETERS = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal")
KEEPING = SoftmaxLineage.CASTS | SoftmaxLineage.SHAPES | SoftmaxLineage.MOVES  # of each number its value
BATCH_NORM = "batch_norm"
MIXING = frozenset({"linear", "addmm", "einsum", "matmul", "__matmul__", "bmm", "mm", "softmax", "conv1d", "conv2d"})
POOLS = frozenset({"avg_pool1d", "avg_pool2d"})  # of texts they join units, of which methods know nothing
LOOKING = frozenset({"conv2d"})  # functions that cut an image into what units see
DROPOUT = frozenset({"dropout", "dropout1d", "dropout2d", "dropout3d", "alpha_dropout", "feature_alpha_dropout"})
TAKING = frozenset({"cat", "concat", "add", "__add__", "__radd__"})  # functions in which a parameter takes relevance


def _constant(argument: Any) -> Any:
    """The argument with parameters, also inside a list or tuple, detached."""
    kind = type(argument)
    if kind is Tensor or kind is int or argument is None:  # most are, and the next question is a slow one
        return argument
    if isinstance(argument, nn.Parameter):
        return argument.detach()
    if kind in (list, tuple) and any(isinstance(a, nn.Parameter) for a in argument):
        return kind(_constant(a) for a in argument)
    return argument

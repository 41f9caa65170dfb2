"""Each method once more: slowly and literally, with loops, from the plain model's own outputs."""

from functools import cache

import networkx
import pytest
import torch
from torch import Tensor

import whyformer
from tests.helpers import families

FAMILIES = ("bert", "gpt2", "modernbert_mean")
TARGET = 2


class Plain:
    """One text through the stock model: attention, hidden states and gradients as transformers and torch give them."""

    def __init__(self, family: str) -> None:
        self.family = family
        model = families.build(family, torch.float64, "eager")
        self.inputs = families.alone(families.batch(), 0)
        self.embeddings = model.get_input_embeddings()(self.inputs["input_ids"]).detach().requires_grad_()
        mask = self.inputs["attention_mask"]
        states: list[Tensor] = []
        layers = next(m for m in model.modules() if isinstance(m, torch.nn.ModuleList) and len(m) == 2)
        first = lambda value: value if isinstance(value, Tensor) else value[0]  # noqa: E731
        handles = [
            layers[0].register_forward_pre_hook(
                lambda m, a, k: states.append(a[0] if a else k["hidden_states"]), with_kwargs=True
            ),
            *(layer.register_forward_hook(lambda m, a, o: states.append(first(o))) for layer in layers),
        ]
        output = model(inputs_embeds=self.embeddings, attention_mask=mask, output_attentions=True)
        for handle in handles:
            handle.remove()
        y = output.logits[0, TARGET]
        self.logits = output.logits[0].detach()
        self.loss = torch.nn.functional.cross_entropy(output.logits, torch.tensor([TARGET]))
        tensors = [*output.attentions, *states, self.embeddings]
        gradients = torch.autograd.grad(y, tensors, retain_graph=True)
        losses = torch.autograd.grad(self.loss, [states[0], self.embeddings])
        self.N, self.L, self.H = mask.shape[1], len(output.attentions), output.attentions[0].shape[1]
        self.A = [a[0].detach() for a in output.attentions]
        self.G = [g[0] for g in gradients[: self.L]]
        self.h = [s[0].detach() for s in states]
        self.dh = [g[0] for g in gradients[self.L : -1]]
        self.e, self.de = self.embeddings[0].detach(), gradients[-1][0]
        self.loss_dh, self.loss_de = losses[0][0], losses[1][0]
        self.readers = {"bert": [0], "gpt2": [self.N - 1], "modernbert_mean": list(range(self.N))}[family]

    def row(self, matrix: Tensor, key: int) -> float:
        """Entry `key` of the reader's row."""
        return sum(float(matrix[r, key]) for r in self.readers) / len(self.readers)

    def mean_heads(self, maps: Tensor) -> Tensor:
        result = torch.zeros(self.N, self.N, dtype=torch.float64)
        for h in range(self.H):
            for q in range(self.N):
                for k in range(self.N):
                    result[q, k] += maps[h, q, k] / self.H
        return result

    def cat(self, layer: int) -> list[float]:
        width = self.h[0].shape[1]
        return [sum(float(self.h[layer][i, d] * self.dh[layer][i, d]) for d in range(width)) for i in range(self.N)]

    def joined(self, normalised: bool = True) -> list[Tensor]:
        result = []
        for layer in range(self.L):
            matrix = self.mean_heads(self.A[layer])
            for q in range(self.N):
                matrix[q, q] += 1
                if normalised:
                    matrix[q] /= sum(float(x) for x in matrix[q])
            result.append(matrix)
        return result


@cache
def plain(family: str) -> Plain:
    return Plain(family)


@pytest.fixture(params=FAMILIES)
def p(request: pytest.FixtureRequest) -> Plain:
    return plain(request.param)


def check(p: Plain, expected: list[float], name: str, allowed: float = 1e-10, **options: object) -> None:
    """Compare the scores of a method with the expected ones, relative to the peak."""
    model = families.build(p.family, torch.float64, "eager")
    scores = whyformer.attribute(model, p.inputs, name, target=TARGET, **options)[0]
    wanted = torch.tensor(expected, dtype=torch.float64)
    assert (scores - wanted).abs().max() <= allowed * wanted.abs().max()


def test_raw_attention(p: Plain) -> None:
    maps = [p.mean_heads(a) for a in p.A]
    check(p, [p.row(maps[-1], k) for k in range(p.N)], "raw_attention")
    check(p, [p.row(maps[0], k) for k in range(p.N)], "raw_attention", layer=0)
    mean = [sum(p.row(m, k) for m in maps) / p.L for k in range(p.N)]
    check(p, mean, "raw_attention", layer="mean")
    check(p, mean, "raw_attention", layer=list(range(p.L)))
    received = [sum(float(maps[-1][q, k]) for q in range(p.N)) / p.N for k in range(p.N)]
    check(p, received, "raw_attention", query="mean")


@pytest.mark.parametrize("normalised", [True, False])
def test_rollout(p: Plain, normalised: bool) -> None:
    matrices = p.joined(normalised)
    product = torch.eye(p.N, dtype=torch.float64)
    for matrix in matrices:
        product = torch.tensor(
            [[sum(float(matrix[q, m] * product[m, k]) for m in range(p.N)) for k in range(p.N)] for q in range(p.N)],
            dtype=torch.float64,
        )
    check(p, [p.row(product, k) for k in range(p.N)], "rollout", row_normalised=normalised)
    for first_layer in (p.L - 1, -1):
        last = [p.row(matrices[-1], k) for k in range(p.N)]
        check(p, last, "rollout", first_layer=first_layer, row_normalised=normalised)
    received = [sum(float(product[q, k]) for q in range(p.N)) / p.N for k in range(p.N)]
    check(p, received, "rollout", row_normalised=normalised, query="mean")


def test_attention_flow(p: Plain) -> None:
    graph = networkx.DiGraph()
    for layer, matrix in enumerate(p.joined()):
        for q in range(p.N):
            for k in range(p.N):
                graph.add_edge((layer + 1, q), (layer, k), capacity=float(matrix[q, k]))
    for r in p.readers:
        graph.add_edge("source", (p.L, r), capacity=1 / len(p.readers))
    flows = [networkx.maximum_flow_value(graph, "source", (0, k)) for k in range(p.N)]
    # `attention_flow` rounds capacities to whole numbers of a small unit.
    check(p, [f / sum(flows) for f in flows], "attention_flow", allowed=1e-5)


def test_grads(p: Plain) -> None:
    visible = p.G[-1].clone()
    for h in range(p.H):
        for q in range(p.N):
            for k in range(p.N):  # under a window or a causal mask
                if float(p.A[-1][h, q, k]) == 0 and any(float(p.A[-1][h, other, k]) for other in range(p.N)):
                    visible[h, q, k] = 0
    rows = p.mean_heads(visible)
    check(p, [p.row(rows, k) for k in range(p.N)], "grads")
    check(p, [max(0.0, p.row(rows, k)) for k in range(p.N)], "grads", positive=True)
    check(p, [sum(float(rows[q, k]) for q in range(p.N)) / p.N for k in range(p.N)], "grads", query="mean")
    weighted = p.mean_heads(p.G[-1] * p.A[-1])
    check(p, [p.row(weighted, k) for k in range(p.N)], "grads", times_attention=True)


def test_att_grads(p: Plain) -> None:
    scores = [0.0] * p.N
    for layer in range(p.L):
        for h in range(p.H):
            for q in range(p.N):
                for k in range(p.N):
                    scores[k] += float(p.A[layer][h, q, k]) * max(0.0, float(p.G[layer][h, q, k])) / (p.L * p.H)
    check(p, scores, "att_grads")


def test_grad_cam(p: Plain) -> None:
    seen = [k for k in range(p.N) if p.readers != [k]]
    weights = [sum(p.row(p.G[-1][h], k) for k in seen) / len(seen) for h in range(p.H)]
    feature = {k: max(0.0, sum(weights[h] * p.row(p.A[-1][h], k) for h in range(p.H)) / p.H) for k in seen}
    low, high = min(feature.values()), max(feature.values())
    check(p, [(feature[k] - low) / (high - low) if k in seen else 0.0 for k in range(p.N)], "grad_cam")


def test_grad_cam_over_the_map(p: Plain) -> None:
    cells = [(q, k) for q in range(p.N) for k in range(p.N)]
    weights = [sum(float(p.G[-1][h, q, k]) for q, k in cells) / len(cells) for h in range(p.H)]
    feature = torch.zeros(p.N, p.N, dtype=torch.float64)
    for q, k in cells:
        feature[q, k] = max(0.0, sum(weights[h] * float(p.A[-1][h, q, k]) for h in range(p.H)) / p.H)
    feature = (feature - feature.min()) / (feature.max() - feature.min())
    check(p, [p.row(feature, k) for k in range(p.N)], "grad_cam", over="map")


def check_above(p: Plain, expected: list[float], name: str, **options: object) -> None:
    """Above the first of two layers, products cancel in a model whose layers begin with a norm: refused."""
    if p.family != "gpt2":
        check(p, expected, name, **options)
        return
    with pytest.raises(whyformer.UnsupportedModel, match="cancel"):
        check(p, expected, name, **options)


def test_cam(p: Plain) -> None:
    check_above(p, p.cat(p.L - 1), "cam")
    check(p, p.cat(0), "cam", layer=0)


def test_cat(p: Plain) -> None:
    check_above(p, [sum(p.cat(layer)[i] for layer in range(1, p.L + 1)) for i in range(p.N)], "cat")
    check(p, [sum(p.cat(layer)[i] for layer in range(p.L)) for i in range(p.N)], "cat", states="inputs")


@pytest.mark.parametrize(("states", "shift"), [("outputs", 1), ("inputs", 0)])
def test_attcat(p: Plain, states: str, shift: int) -> None:
    scores, by_reader = [0.0] * p.N, [0.0] * p.N
    for layer in range(p.L):
        heads, cat = p.mean_heads(p.A[layer]), p.cat(layer + shift)
        for i in range(p.N):
            scores[i] += cat[i] * sum(float(heads[q, i]) for q in range(p.N)) / p.N
            by_reader[i] += cat[i] * p.row(heads, i)
    matched = check_above if states == "outputs" else check
    matched(p, scores, "attcat", states=states)
    matched(p, by_reader, "attcat", states=states, attention_query="reader")


def test_attcat_combined_by_products(p: Plain) -> None:
    heads = [p.mean_heads(a) for a in p.A]
    cats = [p.cat(layer) for layer in range(p.L)]  # states="inputs": the last output's share can be 0
    joint = torch.eye(p.N, dtype=torch.float64)
    elementwise = [1.0] * p.N
    for layer in range(p.L):
        block = [[float(heads[layer][q, i]) * cats[layer][i] for i in range(p.N)] for q in range(p.N)]
        joint = torch.tensor(block, dtype=torch.float64) @ joint
        for i in range(p.N):
            elementwise[i] *= cats[layer][i] * sum(float(heads[layer][q, i]) for q in range(p.N)) / p.N
    check(p, joint.mean(0).tolist(), "attcat", states="inputs", combine="rollout")
    check_above(p, elementwise, "attcat", states="inputs", combine="product")


def length(vector: Tensor) -> float:
    return sum(float(x) ** 2 for x in vector) ** 0.5


def test_saliency(p: Plain) -> None:
    check(p, [length(p.dh[0][i]) for i in range(p.N)], "saliency")
    check(p, [length(p.loss_dh[i]) for i in range(p.N)], "saliency", of="loss")


def test_saliency_as_in_allennlp(p: Plain) -> None:
    shares = [abs(sum(float(a * b) for a, b in zip(p.e[i], p.loss_de[i], strict=True))) for i in range(p.N)]
    if p.family == "modernbert_mean":  # normalises its token embeddings at once: refused
        with pytest.raises(whyformer.UnsupportedModel):
            check(p, shares, "saliency", protocol="allennlp")
        return
    check(p, [s / sum(shares) for s in shares], "saliency", protocol="allennlp")


def test_smooth_grad_as_in_allennlp() -> None:
    """In loops: the loss gradient at noisy token embeddings, averaged, summed over width, not times the embedding."""
    model, inputs = families.build("llama", torch.float64, "eager"), families.alone(families.batch(), 0)
    layer, seen = model.get_input_embeddings(), []
    clean = layer(inputs["input_ids"]).detach()
    handle = model.model.layers[0].register_forward_pre_hook(lambda m, a: seen.append(a[0].detach()))
    try:
        options = {"samples": 3, "noise": 0.05, "protocol": "allennlp"}
        scores = whyformer.attribute(model, inputs, "smooth_grad", target=TARGET, **options)[0]
    finally:
        handle.remove()
    noisy = seen[1:]
    assert len(noisy) == 3
    assert all(not torch.equal(one, clean) for one in noisy)
    count, width = clean.shape[1:]
    mean = [[0.0] * width for _ in range(count)]
    for one in noisy:
        leaf = one.clone().requires_grad_()
        logits = model(inputs_embeds=leaf, attention_mask=inputs["attention_mask"]).logits
        loss = -torch.log_softmax(logits[0], -1)[TARGET]
        gradient = torch.autograd.grad(loss, leaf)[0][0]
        for i in range(count):
            for d in range(width):
                mean[i][d] += float(gradient[i, d]) / 3
    sums = [abs(sum(row)) for row in mean]
    expected = torch.tensor([one / sum(sums) for one in sums], dtype=torch.float64)
    assert (scores - expected).abs().max() <= 1e-5 * expected.max()  # Llama's norms are in float32


@pytest.mark.parametrize("family", ["bert", "roberta", "gpt2", "modernbert_mean"])
def test_sums_of_gradients_that_layer_norms_cancel_are_refused(family: str) -> None:
    model, inputs = families.build(family, torch.float64, "eager"), families.alone(families.batch(), 0)
    leaf = model.get_input_embeddings()(inputs["input_ids"]).detach().requires_grad_()
    logits = model(inputs_embeds=leaf, attention_mask=inputs["attention_mask"]).logits
    gradient = torch.autograd.grad(-torch.log_softmax(logits[0], -1)[TARGET], leaf)[0][0]
    assert gradient.abs().sum(-1).max() > 0
    assert gradient.sum(-1).abs().max() < 1e-6 * gradient.abs().sum(-1).max()
    with pytest.raises(whyformer.UnsupportedModel, match=r"cancel to rounding.*LayerNorms.*leave the protocol out"):
        whyformer.attribute(model, inputs, "smooth_grad", target=TARGET, samples=2, protocol="allennlp")


def test_input_x_gradient(p: Plain) -> None:
    at_output = [sum(float(a * b) for a, b in zip(p.h[0][i], p.dh[0][i], strict=True)) for i in range(p.N)]
    check(p, at_output, "input_x_gradient", at="embedding_output")
    if p.family != "modernbert_mean":
        scores = [sum(float(a * b) for a, b in zip(p.e[i], p.de[i], strict=True)) for i in range(p.N)]
        check(p, scores, "input_x_gradient")


def test_smooth_grad_without_noise_is_saliency(p: Plain) -> None:
    check(p, [length(p.dh[0][i]) for i in range(p.N)], "smooth_grad", noise=0.0, samples=2)


def test_smooth_grad_is_the_mean_over_noisy_runs() -> None:
    """The noise has the stated deviation, is different in each sample, and the gradients are averaged."""
    model, inputs = families.build("bert"), families.alone(families.batch(), 0)
    clean = whyformer.record(model, inputs).hidden[0].detach()
    seen: list[Tensor] = []
    handle = model.bert.encoder.layer[0].register_forward_hook(lambda m, a, o: seen.append(a[0].detach()))
    try:
        scores = whyformer.attribute(model, inputs, "smooth_grad", target=TARGET, samples=40, noise=0.05)[0]
    finally:
        handle.remove()
    noise = torch.stack([s - clean for s in seen[1:]])
    assert len(noise) == 40
    deviation = 0.05 * float(clean.max() - clean.min())
    assert abs(float(noise.std()) / deviation - 1) < 0.05
    assert abs(float(noise.mean())) < 0.05 * deviation
    total = torch.zeros_like(clean)
    for sample in seen[1:]:
        leaf = sample.clone().requires_grad_()
        pre = model.bert.encoder.layer[0].register_forward_pre_hook(lambda m, a, leaf=leaf: (leaf, *a[1:]))
        y = model(**inputs).logits[0, TARGET]
        pre.remove()
        total += torch.autograd.grad(y, leaf)[0]
    expected = (total / 40)[0].norm(dim=-1)
    torch.testing.assert_close(scores, expected, rtol=1e-9, atol=0)


def test_versus_explains_the_difference_of_two_outputs() -> None:
    model, inputs = families.build("bert"), families.batch()
    first, second = (whyformer.attribute(model, inputs, "cat", target=c) for c in (0, 2))
    between = whyformer.attribute(model, inputs, "cat", target=0, versus=2)
    torch.testing.assert_close(between, first - second, rtol=1e-9, atol=1e-12)

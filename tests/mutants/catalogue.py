"""The mutants: module, tests that should see them, and for each the function, the fragment and what stands there then.

A mutant may name other tests than its group. One that nobody could see is `same`, with the reason.
"""

from tests.mutants.mutant import Mutant

Change = tuple[str, str, str] | tuple[str, str, str, str]

MUTANTS: list[Mutant] = []


def of(module: str, tests: str, *changes: Change) -> None:
    """Mutants of one module; a fourth entry of a change names its own tests."""
    for function, old, new, *own in changes:
        MUTANTS.append(Mutant(f"whyformer.{module}", function, old, new, tuple((own[0] if own else tests).split())))


def same(module: str, function: str, old: str, new: str, tests: str, reason: str) -> None:
    """A mutant that changes nothing which a user could see."""
    MUTANTS.append(Mutant(f"whyformer.{module}", function, old, new, tuple(tests.split()), reason))


SIGNS = "metrics/test_signs.py"
STREAMS = "evaluation/test_streams.py"
LOG_ODDS = "contract/test_log_odds.py"
PREFIXES = "contract/test_prefixes.py"
RUNNING = "contract/test_running.py"
AT_MAPS = f"{RUNNING}::test_gradients_at_maps_and_states_are_those_of_the_sites"
AT_BIASES = f"{RUNNING}::test_what_arrives_at_biases_is_that_of_the_sites"
SEVERAL_BOOKS = f"{RUNNING}::test_gradients_of_several_books_are_told_apart"
FREED = f"{RUNNING}::test_the_graph_is_freed_and_recorded_again_if_it_is_asked_for"
DERIVED = "reference/test_derivations.py"
RULES = "reference/test_rules.py"
BALANCED = "reference/test_balanced.py"
LAYERED = "reference/test_layered.py"
PIXELS = "reference/test_pixels.py"
MASKED = "reference/test_mask_lrp.py"
DECODED = "reference/test_decoded.py"
STEPWISE = "reference/test_stepwise.py"
CAPTUM = "reference/test_captum_baselines.py"
GOLDEN = "golden/test_goldens.py"
METRICS = "metrics/test_metrics.py"
HIDING = "metrics/test_hiding.py"
RESULTS = "evaluation/test_results.py"
JOURNAL = "evaluation/test_journal.py"
BATCH_LIMITS = "evaluation/test_limits_of_batches.py"
AHEAD = "evaluation/test_running_ahead.py"
TRUST = "evaluation/test_trust.py"
WORDS = "properties/test_words.py"
TOKENIZERS = "inputs/test_tokenizers.py"
AT_TOKENS = "inputs/test_token_outputs.py"
CHOICE = "contract/test_multiple_choice.py"
SCORES = "contract/test_scores_as_outputs.py"
RECORDED = "contract/test_recorded.py"
SQUARE = "contract/test_square_batches.py"
EDGES = "reference/test_method_edges.py"
IN_TILES = "reference/test_alti_in_parts.py"
METRIC_EDGES = "metrics/test_metric_edges.py"
KEYS = "evaluation/test_keys.py"
ODD_INPUTS = "inputs/test_odd_inputs.py"
WINDOWS = "inputs/test_windows.py"
KEPT = "evaluation/test_kept_scores.py"
DOCUMENTS = "evaluation/test_merged_documents.py"
EXAMPLES = "show/test_index_page.py"
MANY = "show/test_explanations.py"
IN_FOLDERS = "cli/test_many_texts.py"
PROGRESS = "contract/test_progress.py"
ESTIMATE = "evaluation/test_estimate.py"
COST = "cli/test_cost.py"
MEMORY = "contract/test_memory_estimate.py"
SHOWN = "show/test_show.py"
SHOWN_IMAGES = "show/test_images.py"
OF_IMAGES = "cli/test_images.py"
RECIPES = "evaluation/test_reproduce.py"
OF_HEADS = "evaluation/test_reproduce_heads.py"
ALL = "evaluation/test_reproduce_all.py"
PROTOCOLS = "evaluation/test_protocols.py"
FREQUENCIES = "metrics/test_frequencies.py"
COUNTED_HEADS = "heads/test_head_statistics.py"
IN_TURN = "contract/test_in_turn.py"
LOW = "contract/test_recomputing.py"

# From layer to layer

of(
    "methods.rollout",
    f"{DERIVED}::test_rollout",
    ("with_residual", "m + torch.eye", "m - torch.eye"),
    ("with_residual", "j.sum(-1, keepdim=True)", "j.sum(-2, keepdim=True)"),
    ("with_residual", "if row_normalised else joined", "if not row_normalised else joined"),
    ("roll_out", "reversed(maps)", "maps"),
    ("roll_out", "row @ matrix", "row @ matrix.mT"),
    ("maximum_flows", "units * layer + keys", "units * layer + queries", f"{DERIVED}::test_attention_flow"),
    ("maximum_flows", "units * layers + np.arange(units)", "np.arange(units)", f"{DERIVED}::test_attention_flow"),
    ("maximum_flows", "_whole(matrix).ravel()", "_whole(matrix.mT).ravel()", f"{DERIVED}::test_attention_flow"),
)
same(
    *("methods.rollout", "maximum_flows", " / FLOW_SCALE", "", f"{DERIVED}::test_attention_flow"),
    "attention_flow divides by the sum of the flows",
)

# Predictions

of(
    "prediction",
    f"{DERIVED}::test_attcat",
    ("Prediction.read", '"bq,b...qk->b...k"', '"bk,b...qk->b...q"', f"{DERIVED}::test_raw_attention"),
    ("Prediction.over_queries", "self.real / self.real.sum(-1, keepdim=True)", "self.real"),
    ("Prediction.over_queries", "rows.mean(-2)", "rows.mean(-1)", f"{GOLDEN}::test_class_specific_methods"),
    ("Prediction._gradients_at", "if key not in self._gradients", "if not self._gradients", SEVERAL_BOOKS),
    ("Gradients.hidden", "(self.book)[1]", "(self.book)[1][1:]"),
    ("Gradients.attention", "maps=True)[0]", "maps=True)[0][::-1]", f"{DERIVED}::test_grads"),
    (
        "Prediction._pass",
        "below = 0 if whole",
        "below = 1 if whole",
        f"{GOLDEN}::test_class_specific_methods",
    ),
    (
        "Prediction.generators",
        "row if self.batch.masked is None else row[~padding]",
        "row",
        "contract/test_methods.py::test_every_method_keeps_the_contract[smooth_grad-bert]",
    ),
    (
        "Prediction.loss",
        "logits, self.target",
        "logits, self.predicted",
        f"{DERIVED}::test_saliency_as_in_allennlp {DERIVED}::test_saliency",
    ),
)
same(
    *("tasks.classes", "Classes.loss", "-nn.functional.logsigmoid", "nn.functional.logsigmoid"),
    "contract/test_methods.py::test_options_keep_the_contract",
    "only the length of the loss's gradient is used, or its size",
)

# Methods of attention and hidden states

of(
    "methods.attcat",
    f"{DERIVED}::test_cat",
    ("cat", "scores = products.sum(-1)", "scores = products.abs().sum(-1)"),
    (
        "activation_times_gradient",
        'products[1:] if states == "outputs" else products[:-1]',
        'products[:-1] if states == "outputs" else products[1:]',
    ),
    (
        "cam",
        "at_layer(prediction.hidden, layer)",
        "at_layer(prediction.hidden, layer - 1)",
        f"{DERIVED}::test_cam",
    ),
    ("cam", "layer: int = -2", "layer: int = -1", f"{DERIVED}::test_cam"),
    ("attcat", "a.mean(1) for a", "a.amax(1) for a", f"{DERIVED}::test_attcat"),
    ("attcat", "c * r for c, r", "c + r for c, r", f"{DERIVED}::test_attcat"),
    ("attcat", 'attention_query: Queries = "mean"', 'attention_query: Queries = "reader"', f"{DERIVED}::test_attcat"),
    ("attcat", "joint = matrix @ joint", "joint = joint @ matrix", f"{DERIVED}::test_attcat_combined_by_products"),
    ("attcat", "m * c[:, None]", "m * c[:, :, None]", f"{DERIVED}::test_attcat_combined_by_products"),
    ("attcat", "scores.prod(0)", "scores.sum(0)", f"{DERIVED}::test_attcat_combined_by_products"),
)
of(
    "methods.attention",
    f"{DERIVED}::test_raw_attention",
    ("raw_attention", "over_queries(a.mean(1), query)", "over_queries(a.amax(1), query)"),
    ("raw_attention", "list[int] = -1", "list[int] = 0"),
    ("raw_attention", "over_queries(a.mean(1), query)", 'over_queries(a.mean(1), "reader")'),
    ("rollout", 'if query == "reader" else', "if True else", f"{DERIVED}::test_rollout"),
    ("from_layer", "-len(layers) <= first_layer", "0 <= first_layer", f"{DERIVED}::test_rollout"),
    ("from_layer", "layers[first_layer:]", "layers[: first_layer + 1]", f"{GOLDEN}::test_class_agnostic_methods"),
    ("attention_flow", "to_units / to_units.sum()", "to_units", f"{DERIVED}::test_attention_flow"),
    (
        "attention_flow",
        "layer[example][real][:, real]",
        "layer[example][real][:, real].mT",
        f"{DERIVED}::test_attention_flow",
    ),
)
of(
    "methods.decomposition",
    "reference/test_decomposition.py::test_alti",
    ("_contributions", ".clamp(min=0)", ""),
    ("_contributions", "path.output.abs().sum(-1, keepdim=True) - distances", "distances"),
    ("_contributions", "torch.where(sums > 0, sums, 1)", "1"),
    ("_contributions", "offset - path.output", "-offset - path.output", f"{GOLDEN}::test_contributions_of_alti"),
    ("_own_distances", "path.own + gathered", "gathered"),
    ("_own_distances", "* path.per_unit[:, None]", ""),
    ("_distances", "* path.per_unit[:, None, row][example]", ""),
    ("_distances", "rows = min(units, vectors)", "rows = units", IN_TILES),
    ("_distances", "columns, projected_columns = vectors // rows", "columns, projected_columns = vectors", IN_TILES),
    ("_distances", "max(1, vectors // heads)", "max(1, vectors)", IN_TILES),
    ("_distances", "key = column // units, column % units", "key = column // units, column % rows", IN_TILES),
    ("_vectors_in_a_tile", "max(1, tile // (like.shape[-1] * like.element_size()))", "max(1, tile)", IN_TILES),
)
of(
    "recorder.lrp.value_paths",
    "reference/test_decomposition.py::test_alti",
    ("_with_norm", "states - states.mean(-1, keepdim=True)", "states"),
    ("_with_norm", "weight - weight.mean(0)", "weight"),
    ("_with_norm", "states * scale", "states", f"{GOLDEN}::test_contributions_of_alti"),
    ("_with_norm", "weight * scale[:, None, None]", "weight", f"{GOLDEN}::test_contributions_of_alti"),
    ("_with_norm", "states * inverse", "states"),
    (
        "_without_norm",
        "weight * per_channel[:, None, None]",
        "weight",
        "reference/test_decomposition.py::test_alti_with_a_norm_before_the_sum",
    ),
    (
        "_path",
        "if not _same(residual, states) and not parallel",
        "if False",
        "contract/test_hard_cases.py::test_alti_refuses_a_residual_that_is_not_the_layers_input",
    ),
)

# Methods of gradients

of(
    "methods.gradient",
    f"{DERIVED}::test_grad_cam",
    ("grads", ".attention[-1] * _seen", ".attention[0] * _seen", f"{DERIVED}::test_grads"),
    ("legrad", ".clamp(min=0)", "", f"{BALANCED}::test_legrad"),
    ("legrad", "/ len(received)", "", f"{BALANCED}::test_legrad"),
    ("legrad", "* _seen(attention.detach())", "", f"{BALANCED}::test_legrad_reads_as_the_head_does"),
    ("saliency", "square().sum(1, keepdim=True).sqrt()", "abs()", f"{PIXELS}::test_gradients_of_pixels"),
    ("grads", "maps.mean(1)", "maps.sum(1)", f"{DERIVED}::test_grads"),
    (
        "grads",
        "scores.clamp(min=0) if positive",
        "scores.clamp(max=0) if positive",
        f"{GOLDEN}::test_class_specific_methods",
    ),
    (
        "_seen",
        "(attention != 0) |",
        "(attention == attention) |",
        "contract/test_tasks.py::test_what_comes_later_does_not_matter",
    ),
    ("att_grads", "for m in maps]).mean(0)", "for m in maps]).sum(0)", f"{DERIVED}::test_att_grads"),
    ("grad_cam", "prediction.read(attention)).mean(1).clamp(min=0)", "prediction.read(attention)).mean(1)"),
    ("grad_cam", "* (prediction.reader < 1) ", ""),
    (
        "grad_cam",
        "gradients.mean((-1, -2), keepdim=True)",
        "gradients.mean(-1, keepdim=True)",
        f"{DERIVED}::test_grad_cam_over_the_map",
    ),
    ("_stretched", "(values - low) / ranges", "values / ranges"),
    (
        "saliency",
        "_lengths(prediction.hidden_gradients[0])",
        "_lengths(prediction.hidden_gradients[-1])",
        f"{DERIVED}::test_saliency",
    ),
    ("_lengths", ".square().sum(-1).sqrt()", ".square().sum(-1)", f"{DERIVED}::test_saliency"),
    ("smooth_grad", "total / samples", "total", f"{DERIVED}::test_smooth_grad_is_the_mean_over_noisy_runs"),
    (
        "_noisy",
        "(present.max() - present.min())",
        "present.max()",
        f"{DERIVED}::test_smooth_grad_is_the_mean_over_noisy_runs",
    ),
    ("_shares", ".abs() * prediction.real", " * prediction.real", f"{DERIVED}::test_saliency_as_in_allennlp"),
    ("_over_width", "gradients.sum(-1)\n", "gradients.abs().sum(-1)\n", f"{DERIVED}::test_smooth_grad_as_in_allennlp"),
    (
        "_over_width",
        "largest < CANCELLED",
        "0 * largest > CANCELLED",
        f"{DERIVED}::test_sums_of_gradients_that_layer_norms_cancel_are_refused",
    ),
    (
        "smooth_grad",
        "_over_width(prediction, mean)",
        "_times_embeddings(prediction, mean)",
        f"{DERIVED}::test_smooth_grad_as_in_allennlp",
    ),
    (
        "_shares",
        "scores / scores.sum(-1, keepdim=True)",
        "scores / scores.sum()",
        "contract/test_methods.py::test_options_keep_the_contract",
    ),
    (
        "input_x_gradient",
        "prediction.hidden[0] *",
        "prediction.hidden[-1] *",
        f"{DERIVED}::test_input_x_gradient",
    ),
)
same(
    *("methods.gradient", "grad_cam", " / seen.sum(-1, keepdim=True).clamp(min=1)", "", f"{DERIVED}::test_grad_cam"),
    "the same factor for all units of a text, which the stretching to [0, 1] undoes",
)
same(
    *("methods.gradient", "att_grads", "prediction.real, m)", "torch.ones_like(prediction.real), m)"),
    f"{DERIVED}::test_att_grads contract/test_methods.py::test_every_method_keeps_the_contract[att_grads-bert]",
    "queries of padding have no gradient",
)
same(
    *("methods.gradient", "_loss_gradient", "prediction.loss(trace.logits)", "-prediction.loss(trace.logits)"),
    f"{DERIVED}::test_saliency {DERIVED}::test_saliency_as_in_allennlp",
    "only the length of the loss's gradient is used, or its size",
)

# Methods of relevance

of(
    "methods.relevance",
    f"{GOLDEN}::test_class_specific_methods",
    ("partial_lrp", "last.clamp(min=0)", "last"),
    ("partial_lrp", "prediction.last_relevances(book)", "prediction.relevances(book, whole=False)"),
    (
        "conservation",
        "1.0 if prediction.versus is None else 0.0",
        "1.0",
        "contract/test_conservation_reports.py",
    ),
    ("of_value", "sent - arrived", "arrived - sent", "contract/test_conservation_reports.py"),
    ("_with_gamma", "gamma, gamma_pixels)", "gamma, None)", PIXELS),
    ("_with_gamma", "not gamma and not gamma_pixels", "not gamma", PIXELS),
    (
        "transformer_attribution",
        "prediction.weighted_relevances(book, weight)",
        'prediction.weighted_relevances("z_plus", weight)',
        "golden/test_images.py::test_ablations_by_book",
    ),
)
of("methods.places", PIXELS, ("place_of", 'else "pixels"', 'else "embedding_output"'))
of(
    "methods.layered",
    LAYERED,
    ("layer_lrp", "0 < depth <= 1", "0 <= depth <= 1"),
    ("layer_lrp", "0 < depth <= 1", "0 < depth"),
    ("layer_lrp", "len(trace.hidden) - 1", "len(trace.hidden)"),
    ("layer_lrp", "gradient_book(book)", 'gradient_book("conservative")'),
    ("layer_lrp", "*prediction.asked)", "prediction.asked[0])"),
    ("layer_lrp", " / len(lower)", ""),
    ("layer_lrp", "by_layer.sum((0, -1))", "by_layer[0].sum(-1)"),
    ("lower_layers", "max(1, ", "max(0, "),
    ("lower_layers", " + 0.5", ""),
)
of(
    "methods.full_grad",
    f"{BALANCED}::test_full_grad {BALANCED}::test_a_bias_of_no_unit_is_refused",
    ("full_grad", "if biases:", "if False:"),
    ("_at_units", "return terms.T", "return terms.reshape(batch, units)"),
    ("_at_units", "* prediction.reader.to(terms)", ""),
)
of(
    "recorder.lrp.watch",
    AT_MAPS,
    ("Watch._noted", "if position == 0 and", "if position == 1 and"),
    ("Watch._noted", "(gradient * bias).sum(-1)", "gradient.sum(-1)", AT_BIASES),
    ("Watch.at_map", "total += moved", "total = moved / 2"),
)
of(
    "recorder.tail",
    f"{BALANCED}::test_legrad {BALANCED}::test_legrad_follows_what_comes_after_the_head",
    ("Tail.of", "if not _alike(again, trace.logits, near):", "if False:"),
    ("_Notes._leave", "self._open.pop() == self.last", "self._open.pop() == 0"),
)
of(
    "recorder.lrp.head_gate",
    f"{MASKED}::test_odd_factors_are_reported",
    (
        "HeadGate._factors",
        "sums.sign() * total",
        "total",
        f"{MASKED}::test_kinds_of_opposite_sign_do_not_conserve_and_are_reported",
    ),
    ("HeadGate.__call__", "arrived * (1 - shares)", "arrived * shares"),
    (
        "HeadGate.__call__",
        "by_head * shares[:, :, None, None]",
        "by_head * weights[0][None, :, None, None]",
        f"{MASKED}::test_scores",
    ),
    ("HeadGate.report", "e.factors < 0", "e.factors <= 0"),
    ("HeadGate.report", "e.factors.abs() > LARGE", "e.factors.abs() < LARGE"),
)
of(
    "methods.mask_lrp",
    f"{MASKED}::test_odd_factors_are_reported",
    (
        "_weighted",
        "kinds.cumsum(0) == 1",
        "kinds.cumsum(0) >= 1",
        f"{MASKED}::test_heads_of_both_kinds_count_once_unless_they_are_summed",
    ),
    ("mask_lrp", "rescaled=not authors", "rescaled=True", "golden/test_mask_lrp_goldens.py::test_scores"),
    ("mask_lrp", "(g * r).clamp(min=0)", "(g * r)", f"{MASKED}::test_scores"),
    (
        "_of_one_kind",
        '("syntactic", "positional")',
        '("positional", "syntactic")',
        f"{MASKED}::test_one_kind_of_heads_alone",
    ),
)
of(
    "methods.decoded",
    f"{DECODED}::test_every_layer",
    (
        "_largest",
        "shares.topk(top, 1)",
        "shares.topk(min(top, shares.shape[2]), 2)",
        f"{DECODED}::test_the_matrix_holds_what_counts",
    ),
    ("_layer_score", "return weights.clamp(min=0)", "return weights", f"{DECODED}::test_every_score"),
    (
        "_layer_score",
        "attention_gradients[layer - 1].clamp(min=0)",
        "attention_gradients[layer - 1]",
        f"{DECODED}::test_every_score",
    ),
    (
        "_layer_score",
        "prediction.read(prediction.attention[layer - 1].mean(1))",
        "prediction.read(prediction.attention[layer - 2].mean(1))",
        f"{DECODED}::test_every_score",
    ),
    ("Rows.at_positions", ".masked_fill(self.of_position < 0, 0)", ""),
    ("_read", "(logits - everywhere[:, None]).exp()", "logits.exp()"),
    ("Rows.of", "real if special is None else real & ~special", "real"),
)
same(
    *(
        "methods.decoded",
        "_counted",
        "        return prediction.real\n",
        "        return torch.ones_like(prediction.real)\n",
    ),
    f"{DECODED}::test_every_layer {DECODED}::test_every_score",
    "the weight of a position is 0 in padding: nothing depends on it, and nothing attends to it",
)
of(
    "methods.stepwise",
    f"{STEPWISE}::test_the_order_by_hand {STEPWISE}::test_orders_are_strict_and_between_0_and_1",
    (
        "_Walk.__init__",
        "(2 * step * len(text.units) + steps) // (2 * steps)",
        "step * len(text.units) // steps",
        f"{STEPWISE}::test_any_number_of_steps",
    ),
    ("_Walk.order", "(count - rank) / count", "(count - rank - 1) / count"),
    ("_Walk.take", "-felt[unit]", "felt[unit]"),
    (
        "_Walk.drops",
        "outputs[before] - outputs[after]",
        "outputs[after] - outputs[before]",
        f"{STEPWISE}::test_drops_add_up_to_what_is_lost",
    ),
    (
        "_Walk.drops",
        "lost * score / total if total else",
        "lost / size if total else",
        f"{STEPWISE}::test_it_is_what_loops_find",
    ),
    ("_Walk.drops", "abs(score) for score", "score for score", f"{STEPWISE}::test_it_is_what_loops_find"),
    (
        "_walk",
        "walk.text.places_left(walk.places, hide)",
        "walk.text.places_left([], hide)",
        f"{STEPWISE}::test_it_is_what_loops_find",
    ),
)
of(
    "methods.paths",
    f"{CAPTUM}::test_integrated_gradients_from_zero_agree_with_captum",
    ("_Path.scores", "vectors.detach().sum(-1)", "vectors.detach().abs().sum(-1)"),
    ("_Path.of", "torch.where(example.free[:, None]", "torch.where(~example.free[:, None]"),
    (
        "_Path.scores",
        "self.at_ends[0], self.at_ends[1:].double().mean()",
        "self.at_ends[1:].double().mean(), self.at_ends[0]",
        f"{CAPTUM}::test_integrated_gradients_add_up_the_better_the_more_steps",
    ),
    ("_allennlp_integrated", '"riemann_left"', '"riemann_right"', f"{CAPTUM}::test_the_protocol_of_allennlp_in_loops"),
    ("_allennlp_integrated", "of_loss=True", "of_loss=False", f"{CAPTUM}::test_the_protocol_of_allennlp_in_loops"),
)

# Rules of relevance

of(
    "recorder.lrp.rules",
    f"{RULES}::test_rule",
    ("divide", "denominator == 0, 0", "denominator == 0, 1", f"{RULES}::test_division"),
    ("divide", "denominator + STABILISER", "denominator", f"{RULES}::test_division"),
    ("scaled", "if position else torch.zeros_like(sent)", "if not position else torch.zeros_like(sent)"),
    ("linear_positive", "constant - bias", "constant + bias"),
    ("linear_positive", ".add_(site.value[rows])", ".sub_(site.value[rows])"),
    ("linear_positive", "by_size.addcmul_(x, sent)", "by_size"),
    ("linear_two_sided", "(x.clamp(max=0), weight.clamp(max=0))", "(x.clamp(max=0), weight.clamp(min=0))"),
    ("linear_excitatory", "x.clamp(min=0), weight.clamp(min=0)", "x.clamp(min=0), weight"),
    ("map_positive", "(product(x, matrix) + sizes) / 2", "product(x, matrix) + sizes"),
    ("map_positive", "masked_fill_(~none, 0)", "masked_fill_(none, 0)"),
    ("map_positive", "by_size + x * sent / 2", "by_size + x * sent"),
    ("map_two_sided", "(x.clamp(max=0), matrix.clamp(max=0))", "(x.clamp(max=0), matrix.clamp(min=0))"),
    ("map_excitatory", "x.clamp(min=0), matrix.clamp(min=0)", "x, matrix.clamp(min=0)"),
    ("pixels", "x * sent - lows - highs", "x * sent - lows"),
    ("pixels", "product(low, positive)", "product(high, positive)"),
    ("matmul_halved", ".div_(2)", ""),
    ("product_halved", "(relevance / 2)", "relevance"),
    ("sum_by_size", "x.abs() * sent", "x * sent"),
    ("add", "site.operands[position] * shares", "site.operands[1 - position] * shares"),
    ("add_normalised", "sizes = sums.abs()", "sizes = sums"),
    ("add_normalised", " * site.per_example(relevance), sums", ", sums"),
    (
        "epsilon",
        "site.value + SMALL_EPSILON",
        "site.value + EPSILON",
        f"{RULES}::test_rule {RULES}::test_a_whole_model_by_hand",
    ),
    ("matmul_epsilon", "2 * site.value", "site.value"),
    ("softmax_taylor", "relevance - site.value *", "relevance + site.value *"),
    (
        "softmax_taylor",
        "dim[0] if dim else -1",
        "-1",
        "contract/test_hard_cases.py::test_softmax_over_another_dimension",
    ),
    ("norm_epsilon", "site.operands[0] * finish", "finish"),
    ("halved", "sent / 2", "sent"),
    ("first_held", "sent if position else", "sent if not position else"),
    ("ratio", "gradient * site.value /", "gradient /"),
    ("norm_held", "weighted - weighted.mean(dimensions, keepdim=True)", "weighted"),
    ("norm_held", "correction=0", "correction=1"),
    ("norm_held", "gradient if weight is None else gradient * weight", "gradient"),
)
same(
    *("recorder.lrp.rules", "_rows_with", "* 2 < present.numel()", "* 2 >= present.numel()"),
    f"{RULES}::test_rule contract/test_relevance.py::test_conservation_is_reported",
    "which rows are multiplied decides how long it takes: the others hold zeros",
)
same(
    *("recorder.run", "_with_last", "last=True", "last=False", f"{GOLDEN}::test_relevances"),
    "rows that the head does not read hold no relevance, so leaving them out saves time only",
)
of(
    "recorder.lrp.books",
    "contract/test_relevance.py::test_the_world_is_closed",
    ("check_closed", "if site is None and not moves(node):", "if False:"),
    (
        "check_closed",
        "if site is not None and site.kind not in book.rules:",
        "if False:",
        "contract/test_relevance.py::test_the_world_is_closed contract/test_hard_cases.py",
    ),
    (
        "_below",
        "site.sources[1:] if site.kind in held else site.sources",
        "site.sources",
        "properties/test_relevance_properties.py::test_conservative_relevance_of_a_model_without_biases_adds_up_to_the_logit",
    ),
    (
        "",
        '"attend": rules.first_held',
        '"attend": rules.halved',
        "properties/test_relevance_properties.py::test_conservative_relevance_of_a_model_without_biases_adds_up_to_the_logit golden/test_language_models.py::test_methods",
    ),
    (
        "",
        '"activation": rules.ratio',
        '"activation": None',
        f"{RULES}::test_a_whole_model_by_hand {GOLDEN}::test_attn_lrp_without_stabilisers_is_near_the_authors_explicit_form",
    ),
)
of(
    "recorder.lrp.dispatch",
    "contract/test_hard_cases.py",
)

# Recording

of(
    "recorder.attention",
    "properties/test_attention.py::test_attend_is_scaled_dot_product_attention",
    ("attend", "query.shape[-1] ** -0.5", "query.shape[-1] ** 0.5"),
    ("attend", ".tril()", ".triu()"),
    (
        "_shared",
        "heads[:, :, None].expand(batch, count, times, units, width)",
        "heads[:, None].expand(batch, times, count, units, width)",
    ),
    (
        "_masked_softmax",
        "else probabilities.masked_fill(blind, 0)",
        "else probabilities",
        "properties/test_attention.py::test_a_query_that_may_look_nowhere_gets_zeros_and_passes_no_gradient",
    ),
    (
        "SoftmaxLineage.meet",
        "left.dim() != right.dim() or not right.requires_grad",
        "not right.requires_grad",
        f"{RECORDED}::test_a_softmax_that_meets_another_matrix_than_values_is_no_attention",
    ),
    (
        "SoftmaxLineage.meet",
        "left.dim() != right.dim() or not right.requires_grad",
        "left.dim() != right.dim()",
        f"{RECORDED}::test_a_softmax_that_meets_another_matrix_than_values_is_no_attention",
    ),
)
same(
    *("recorder.attention", "_masked_softmax", "blocked & ~blind", "blocked", "properties/test_attention.py"),
    "where all is masked, zeros take the place of NaN, in the result and in the gradient",
)
of(
    "recorder.trace",
    "contract/test_architectures.py::test_the_reader_is_what_the_head_reads",
    ("Trace._positions_read", "read / read.sum(-1, keepdim=True)", "read"),
    ("Trace._positions_read", "last.ne(0).any(-1)", "last.ne(0).all(-1)", "contract/test_readers_and_answers.py"),
    (
        "Trace.relevance",
        "start * self.logits.detach() if scale else start",
        "start",
        "contract/test_hard_cases.py::test_the_two_forms_of_attn_lrp_differ_by_their_stabilisers",
    ),
    (
        "Trace.relevance",
        "relevances = tuple(t.detach() * g for",
        "relevances = tuple(g for",
        f"{GOLDEN}::test_attn_lrp_without_stabilisers_is_near_the_authors_explicit_form",
    ),
)
of(
    "tasks.answers",
    "contract/test_tasks.py::test_the_predicted_answer_is_the_best_span",
    ("_spans", "(length < 0)", "(length < -1)"),
    (
        "_spans",
        "length >= ANSWER_LENGTH",
        "length > 2 * ANSWER_LENGTH",
        "contract/test_readers_and_answers.py",
    ),
    (
        "Answers.best",
        "masked_fill(~outputs.attended[:, None], blocked)",
        "masked_fill(outputs.attended[:, None] & False, blocked)",
    ),
    (
        "Answers.parts",
        "chosen[:, n] + n * units",
        "chosen[:, n]",
        "golden/test_answers.py::test_start_and_end_are_added_up golden/test_answers.py::test_attcat",
    ),
    (
        "position_in",
        "if not bool(outputs.attended[row, position]):",
        "if False:",
        "contract/test_readers_and_answers.py",
    ),
)
of(
    "tasks.answers",
    "inputs/test_questions.py::test_what_is_wrong_with_an_answer",
    ("answer_in", "and start <= end", ""),
)
of(
    "tasks.task",
    f"{DERIVED}::test_versus_explains_the_difference_of_two_outputs",
    ("Task.output", "(-1, part)", "(1, part)"),
    (
        "Task.starts",
        "torch.full_like(flat[:, :1], -1)",
        "torch.full_like(flat[:, :1], 1)",
        "contract/test_odd_uses.py::test_a_class_against_itself_has_no_relevance",
    ),
)
of(
    "tasks.task",
    LOG_ODDS,
    ("explained_as", "== ALL_OTHERS", "!= ALL_OTHERS"),
    ("Outputs.explained", 'explains == "log_odds" and misfit', "misfit and not explains"),
    ("Outputs.explained", 'explains == "log_odds" and versus is not None', "versus is None and False"),
    ("Outputs.explained", "explains or self.default_quantity(quantity)", "self.default_quantity(quantity)"),
    ("Outputs.explained", "versus is not None or (explains", "(explains"),
    ("Outputs.default_quantity", "and not self.of_images", ""),
    ("Outputs.default_quantity", "quantity if fits", '"log_odds" if fits'),
    ("log_odds_start", "-others_than", "others_than"),
)
of(
    "tasks.classes",
    LOG_ODDS,
    ("Classes.log_odds_by_default", "and classes > 2", ""),
    ("Classes.log_odds_by_default", "self.log_odds_misfit(classes) is None and", ""),
    ("Classes.log_odds", "if self.multi_label else", "if False else", SIGNS),
    ("Classes.log_odds_misfit", "classes < 2", "classes < 3"),
    ("Classes.log_odds_misfit", "self.multi_label", "False"),
)
of(
    "metrics.signs",
    SIGNS,
    ("sign_agreement", "[[], *(group", "[*(group"),
    ("_strongest", "-abs(one[1])", "-one[1]"),
    ("_strongest", "[:top]", ""),
    ("_record", "odds[0] - odds[1:]", "odds[1:] - odds[0]"),
    ("_record", "abs(effect) > threshold", "effect > threshold"),
    ("_record", "sign * effect > 0", "sign * effect >= 0"),
    ("share_of_right_signs", 'record["counted"] for', "1 for"),
)
of(
    "metrics.class_scores",
    f"{LOG_ODDS}::test_other_classes_are_explained_in_the_same_way",
    ("ClassScores.__call__", "of_classes", "towards"),
)
of(
    "evaluation.plan",
    LOG_ODDS,
    ("Plan._made_facts", '("protocol", "explains", "versus")', '("protocol",)'),
    ("Plan.pairs", "method.signed or", "True or", SIGNS),
)
of(
    "tasks.answers",
    f"{AT_TOKENS}::test_an_answer_has_a_runner_up",
    ("Answers.runner_up_in", "chosen[1] + 1] = -torch.inf", "chosen[1] + 1] = torch.inf"),
)
of(
    "tasks.classes",
    f"{AT_TOKENS}::test_runners_up_of_ready_tensors",
    ("Classes.runners_up", "-torch.inf", "torch.inf"),
)
of(
    "tasks.token_labels",
    f"{AT_TOKENS}::test_all_words_with_a_label_are_explained",
    ("TokenLabels.places", "!= NO_LABEL", "== NO_LABEL"),
    (
        "_first_token",
        "occurrences[occurrence - 1]",
        "occurrences[0]",
        f"{AT_TOKENS}::test_a_word_is_given_as_written_with_its_occurrence_or_by_its_index",
    ),
)
of(
    "tasks.masked_word",
    f"{AT_TOKENS}::test_one_of_several_masks_is_chosen",
    ("MaskedWord.places", "counted(asked.position, len(masks)", "counted(0, len(masks)"),
)
of(
    "tasks.vocabulary",
    f"{AT_TOKENS}::test_a_target_beside_ten_is_kept_with_them",
    ("Vocabulary.kept", "if index not in likeliest", "if False"),
    (
        "_token_called",
        '(f" {text}", text) if apart',
        '(text, f" {text}") if apart',
        f"{AT_TOKENS}::test_a_token_is_given_by_its_text",
    ),
)
of(
    "tasks.score",
    f"{SCORES}::test_which_models_give_scores",
    ("Score.fits", "and not is_multi_label(model)", ""),
    ("Score.called", "if self.labels == UNNAMED", "if False", f"{SCORES}::test_the_value_is_shown"),
)
of(
    "tasks.choice",
    f"{CHOICE}::test_several_targets_and_the_runner_up",
    ("Choice.questions", "-torch.inf", "torch.inf"),
    ("Choice.predicted", "int(logits.argmax())", "chosen"),
    ("_paired", "not same and count", "same and count", f"{CHOICE}::test_what_is_refused"),
)
of(
    "explain.rows",
    f"{CHOICE}::test_a_difference_is_explained_by_both_rows",
    ("shown_units", "(-1 if scores.signed else 1)", "1"),
    ("shown_units", "(-1 if scores.signed else 1)", "-1", f"{CHOICE}::test_layers_and_unsigned_scores_of_a_difference"),
    ("_both", "replace(unit, part=2)", "replace(unit, part=1)"),
    ("_keys", "place < choice or unit.part == 0", "True"),
    (
        "of_chosen_rows",
        "logits.argmax(-1)",
        "logits.argmin(-1)",
        f"{CHOICE}::test_tensors_are_explained_by_the_row_of_the_choice",
    ),
)
of(
    "explain.questions",
    f"{CHOICE}::test_neither_other_texts_nor_other_choices_matter",
    ("ExplainedRun.narrowed", "row=places[question.row]", "row=0"),
)
of(
    "explain.questions",
    f"{AT_TOKENS}::test_several_targets_of_one_text_give_a_list",
    ("_of_turn", "turn if turn < len(pairs) else 0", "0"),
)
of(
    "tasks.tokens",
    f"{AT_TOKENS}::test_the_runner_up_is_the_most_probable_other",
    ("Tokens.runners_up", "-torch.inf", "torch.inf"),
)
of(
    "tasks.tokens",
    "contract/test_tasks.py::test_the_label_of_a_token_is_read_there",
    (
        "Tokens.parts",
        "chosen[:, 1] * logits.shape[-1] + chosen[:, 0]",
        "chosen[:, 0] * logits.shape[-1] + chosen[:, 1]",
    ),
)
of(
    "tasks.labels",
    "contract/test_tasks.py::test_a_bad_target_is_refused",
    (
        "class_index",
        "0 <= target < classes",
        "0 <= target <= classes",
    ),
)
of(
    "models.borrow",
    "contract/test_architectures.py::test_a_text_that_ends_in_what_would_be_the_padding_token",
    ("_with_padding_id", "config.pad_token_id = None", "pass"),
    (
        "_with_padding_id",
        "attended = attended[:, -ids.shape[1] :]",
        "pass",
        f"{PREFIXES}::test_plain_caches_are_reused[gpt2]",
    ),
    (
        "_with_padding_id",
        "(len(ids) == 1 and bool(attended.all()))",
        "len(ids) == 1",
        "contract/test_odd_uses.py::test_one_padded_text_without_a_padding_token",
    ),
    (
        "evaluating",
        "module.training = True",
        "module.training = False",
        "contract/test_methods.py::test_a_model_in_training_mode_is_explained_as_in_eval_mode",
    ),
    (
        "evaluating",
        "module.training = False",
        "pass",
        "contract/test_methods.py::test_a_model_in_training_mode_is_explained_as_in_eval_mode",
    ),
    (
        "borrowed",
        "model = unwrapped(model)",
        "pass",
        "contract/test_architectures.py::test_a_compiled_model_is_explained_as_the_model_it_was_made_from",
    ),
)
of(
    "models.borrow",
    "contract/test_threads.py::test_models_that_share_modules_or_a_configuration_share_their_lock",
    ("lock_of", "owners.append(config)", "pass"),
    ("lock_of", "list(model.modules())", "[model]"),
)
of(
    "recorder.lrp.books",
    "reference/test_books.py",
    (
        "Book.ruling",
        "rule.choose(site) if isinstance(rule, BySite) else rule",
        "None if isinstance(rule, BySite) else rule",
    ),
    ("Book.before", "if kind not in self.rules:", "if False:"),
)
same(
    *("models.borrow", "borrowed", 'arguments.setdefault("use_cache", False)', "pass"),
    "contract/test_architectures.py::test_frozen_and_trainable_models_are_explained_alike",
    "a cache that nothing reads costs memory only",
)
of(
    "recorder.mode",
    "contract/test_hard_cases.py",
)
of(
    "recorder.lrp.sites",
    "contract/test_relevance.py::test_relevance_depends_neither_on_the_batch_nor_on_padding",
    ("Site.per_example", ".sum(1).repeat_interleave(times)", ".sum(1).repeat(times)", SQUARE),
    (
        "Site.per_example",
        "relevances.sum([d for d in range(relevances.dim()) if d != kept], keepdim=True)",
        "relevances.sum().expand(1)",
    ),
    ("Site.per_example", "kept = 1 if", "kept = 0 if", SQUARE),
    (
        "Site.kept_from",
        "value.clone() if shares else value",
        "value",
        "contract/test_relevance.py::test_additions_in_place_change_nothing contract/test_odd_uses.py::test_activations_in_place_change_nothing",
    ),
)

# Hiding units, and what the model says then

of(
    "inputs.input",
    f"{HIDING}::test_what_is_hidden",
    ("TensorInput._left", "kept = self._arrays, ~gone", "kept = self._arrays, gone"),
    ("TensorInput._tokens", "np.flatnonzero(~self.special).tolist()", "range(len(self))", f"{METRICS}::test_aopc"),
    ("TensorInput._filled", "if attended else iter(np.where(gone, 0, mask))", ""),
    ("TensorInput.deleted", "self._alone() if tensors is None else ", "", HIDING),
    (
        "_padded",
        "np.arange(length) < lengths[:, None]",
        "np.arange(length) >= length - lengths[:, None]",
        f"{HIDING}::test_probabilities_are_those_of_the_model_alone",
    ),
)
of(
    "inputs.hiding",
    f"{HIDING}::test_what_is_hidden",
    ("Fill._tokens", "(self.token, self.otherwise)", "(self.otherwise, self.token)"),
    ("Fill.apply", "self._filler(whole), self.attended)", "self._filler(whole))"),
)
of(
    "perturb.hides",
    f"{HIDING}::test_counts_are_rounded_half_up",
    ("count_of", "math.floor(exact + 0.5)", "math.floor(exact)"),
    ("count_of", "round(share * units, 9)", "share * units"),
)
of(
    "perturb.runner",
    f"{HIDING}::test_counts_and_duplicates",
    (
        "Runner.logits",
        "            if key not in self._known:\n                self._waiting",
        "            if True:\n                self._waiting",
        "metrics/test_known_rows.py",
    ),
    (
        "Runner._run",
        "- sum(map(len, batch.inputs))",
        "",
        f"{HIDING}::test_batches_keep_to_the_budget_and_to_little_padding {HIDING}::test_counts_and_duplicates",
    ),
    ("Runner.forget", "self._known.clear()", "pass", "metrics/test_known_rows.py"),
)
of(
    "perturb.batches",
    "metrics/test_batches.py",
    ("_fitting", "budget // longest", "2 * budget // longest"),
    ("_ends", "padding + calls * call + costs[end]", "padding + call + costs[end]"),
    ("_ends", "padding + calls * call + costs[end]", "padding + calls * call"),
    ("_ends", "if padding > call * (end - first - 1)", "if padding > call"),
    ("dense_batches", "reverse=True", "reverse=False"),
    ("dense_batches", "math.ceil(len(together) / calls)", "_fitting(longest_first[first], budget, most)"),
    ("in_turns", "if number % 2", "if False"),
    ("in_turns", "if number % 2", "if not number % 2"),
    ("in_turns", "len(batch) * len(batch[0])", "len(batch)"),
)
of(
    "metrics.faithfulness",
    f"{HIDING}::test_what_one_metric_asks_is_not_taken_for_what_another_does",
    ("_probabilities", "(deletion.hide, ", "("),
    ("_probabilities", "deletion.target, deletion.units", "deletion.units"),
    ("_probabilities", "deletion.units, ", ""),
    ("_probabilities", "deletion.combine, ", ""),
    ("_probabilities", "at, way)", "way)"),
    ("_probabilities", "at, way)", "at)"),
    ("_falls", "(protocol, special_tokens)", "protocol"),
)
of(
    "metrics.case",
    f"{HIDING}::test_what_a_metric_asks_is_made_once",
    ("Case.settled", "settled._planned.update(self._planned)", "pass"),
    ("Case.planned", "if key not in self._planned:", "if True:"),
)
of(
    "perturb.prefixes",
    f"{PREFIXES}::test_whatever_is_hidden_wherever_it_stands",
    ("Prefixes._last_start", " & (ids != padding)", ""),
    ("shared", "same &= ~differs.reshape(len(same), -1).any(1)", "pass"),
    (
        "Prefixes._last_start",
        "last if self.kept is None else min(last, self.kept)",
        "last",
        f"{PREFIXES}::test_language_models_speak_at_the_position_that_is_kept",
    ),
    (
        "Prefixes._is_right",
        "close(behind.logits, whole.logits, PRECISE)",
        "True",
        f"{PREFIXES}::test_other_logits_behind_a_prefix_are_run_whole",
    ),
    (
        "plain_layers",
        "type(layer) is not DynamicLayer or ",
        "",
        f"{PREFIXES}::test_states_of_a_window_are_not_plain",
    ),
    (
        "Prefixes.checked",
        "REFUSED < known * FURTHER < length",
        "False",
        f"{PREFIXES}::test_a_model_is_checked_once_and_again_on_longer_inputs",
    ),
    ("_cut", "> spare", "> spare + 100", f"{PREFIXES}::test_plain_caches_are_reused"),
    (
        "Prefixes._plan",
        "plan.cost(call)",
        "plan.cost(0)",
        f"{PREFIXES}::test_short_inputs_are_run_whole",
    ),
    ("section", "one.gone[first:last]", "one.gone[: last - first]", f"{PREFIXES}::test_plain_caches_are_reused"),
)
of(
    "perturb.runner",
    PREFIXES,
    (
        "Runner._call",
        "[kept - batch.start]",
        "[kept]",
        f"{PREFIXES}::test_language_models_speak_at_the_position_that_is_kept",
    ),
    (
        "Runner._outputs",
        "batch.prefix.drop()",
        "raise",
        f"{PREFIXES}::test_where_a_prefix_takes_the_memory_inputs_are_run_whole",
    ),
)
of(
    "perturb.search",
    f"{METRICS}::test_the_best_of_all_orders_scores_best",
    (
        "best_orders",
        "key=lambda path: path.total)",
        "key=lambda path: -path.total)",
        f"{METRICS}::test_the_ceiling_is_above_other_orders evaluation/test_measuring.py::test_the_ceiling_is_the_greedy_order_scored",
    ),
    (
        "best_orders",
        "p.total + sign * float(",
        "sign * float(",
        "metrics/test_known_rows.py",
    ),
    (
        "best_orders",
        "longest > LONGEST_SEARCH",
        "longest > 10 * LONGEST_SEARCH",
        f"{METRICS}::test_long_texts_are_not_searched",
    ),
)
of(
    "perturb.remains",
    STEPWISE,
    (
        "_moved",
        "{int(position): place for",
        "{int(position): int(position) for",
        f"{STEPWISE}::test_the_start_of_an_answer_moves_with_what_is_deleted",
    ),
    (
        "_needed",
        "p > max(said_at)",
        "p < max(said_at)",
        f"{STEPWISE}::test_what_stands_behind_a_next_token_is_not_hidden",
    ),
    ("Hideable.places_left", "if place not in away", "if place in away", f"{STEPWISE}::test_any_number_of_steps"),
)

# Metrics

of(
    "metrics.faithfulness",
    f"{METRICS}::test_aopc",
    ("aopc", "falls.whole[:, None] - falls.after", "falls.after - falls.whole[:, None]"),
    ("aopc", 'absolute or protocol == "attcat"', "absolute", "golden/test_metrics_goldens.py::test_attcat"),
    (
        "log_odds",
        "falls.after.clamp_min(least).log() - falls",
        "falls.after.clamp_min(least).log() + falls",
        f"{METRICS}::test_log_odds",
    ),
    (
        "sufficiency",
        "revealing=True",
        "revealing=False",
        f"{METRICS}::test_comprehensiveness_and_sufficiency_as_eraser_defines_them",
    ),
    ("_eraser", "up=True", "up=False", f"{METRICS}::test_comprehensiveness_and_sufficiency_as_eraser_defines_them"),
    ("_authors_steps", '"stable")[:-1]', '"stable")', "golden/test_metrics_goldens.py::test_hidden_tokens"),
    (
        "_authors_steps",
        "if special_tokens or place in rankable",
        "",
        "golden/test_metrics_goldens.py::test_hidden_tokens",
    ),
    (
        "_authors_steps",
        "special_tokens or place in",
        "place in",
        f"{PROTOCOLS}::test_special_tokens_of_pairs_are_hidden_by_a_slip",
    ),
    (
        "_authors_steps",
        "([0.0], scores[1:])",
        "(scores[:1], scores[1:])",
        f"{PROTOCOLS}::test_special_tokens_of_pairs_are_hidden_by_a_slip",
    ),
    (
        "_falls",
        'special_tokens and protocol != "attcat"',
        "False",
        f"{PROTOCOLS}::test_special_tokens_of_pairs_are_hidden_by_a_slip",
    ),
    ("_kept", "lengths >= shortest", "lengths > shortest", "metrics/test_left_out.py"),
    ("_kept", "falls.whole >= min_probability", "falls.whole <= min_probability", "metrics/test_left_out.py"),
    ("Deletion.steps", "_counts(tuple(at), units, up)", "_counts(tuple(at), units - 1, up)"),
    ("Deletion.steps", "(turns >= count) & ", "(turns < count) & ", f"{METRICS}::test_games"),
    ("Deletion.steps", " & (turns < units)", "", f"{METRICS}::test_games"),
    (
        "_Asked.of",
        "if gone[0].any()",
        "if False",
        f"{METRICS}::test_comprehensiveness_and_sufficiency_as_eraser_defines_them",
    ),
    ("Falls.measured", "curve.nanmean(1)", "curve.nansum(1)"),
    (
        "area_weights",
        " / (at[-1] - at[0]) if normalised",
        " if normalised",
        f"{METRICS}::test_an_area_is_divided_by_its_range",
    ),
    (
        "area_weights",
        "torch.cat((zero, gaps))",
        "torch.cat((gaps, zero))",
        f"{METRICS}::test_an_area_is_divided_by_its_range {METRICS}::test_games",
    ),
)
of(
    "metrics.confidence",
    f"{METRICS}::test_games",
    ("kendall_tau", ".mean(0)", ".sum(0)", f"{METRICS}::test_kendall_tau"),
    ("_others", "range(1, classes)", "range(classes)", f"{METRICS}::test_kendall_tau"),
    ("kendall_tau", "chosen == against", "chosen != against", "metrics/test_left_out.py"),
    ("_tau", "scores[rankable] for scores", "scores for scores", f"{METRICS}::test_kendall_tau"),
    ("hiding_game", "revealing=False", "revealing=True"),
    ("_game", "p.argmax(-1) == r", "p.argmin(-1) == r"),
)
same(
    *("metrics.confidence", "_tau", "np.argsort(-scores", "np.argsort(scores"),
    "golden/test_metrics_goldens.py::test_kendall",
    "it turns both lists round, which leaves their correlation as it is",
)
of(
    "metrics.overlap",
    f"{METRICS}::test_token_overlap",
    ("Counting.record", "score * idf[letters]", "score"),
    ("Counting.record", "score * idf[letters]", "score * idf[word]", "metrics/test_left_out.py"),
    ("_words", "unit.text.lower()", "unit.text", "metrics/test_left_out.py"),
    ("_tokens", "(unit.piece, unit", "(unit.text, unit", "metrics/test_left_out.py"),
    ("_tokens", "unit.text.strip(), ", "unit.text, ", "metrics/test_left_out.py"),
    ("_means", " / len(scores)", "", "metrics/test_left_out.py"),
    ("top_words", "(-totals[word], word)", "(totals[word], word)"),
    ("shared_share", "(len(pairs) * k)", "len(pairs)"),
    ("WordSums.add", "sums[word] += score", "sums[word] = score"),
)
of(
    "metrics.plausibility",
    f"{METRICS}::test_precision_at_k_counts_the_answer_among_the_top",
    ("precision_at_k", "annotation.answer[1] + 1", "annotation.answer[1]"),
    ("precision_at_k", "-float(scores[place])", "float(scores[place])"),
    ("mean_or_ratio", "counts / lengths", "counts", "golden/test_metrics_goldens.py::test_precision_at_20"),
    ("_f1", "len(chosen) + len(evidence)", "2 * len(evidence)", f"{METRICS}::test_token_f1_as_eraser_defines_it"),
    (
        "token_f1",
        "1 - len(inside) / len(rationale.evidence)",
        "len(inside) / len(rationale.evidence)",
        f"{METRICS}::test_token_f1_as_eraser_defines_it",
    ),
    (
        "token_f1",
        'inside if window == "inside" else rationale.evidence',
        "inside",
        f"{METRICS}::test_evidence_that_the_model_never_saw_is_missed",
    ),
    (
        "token_f1",
        "key=lambda word: -words[word]",
        "key=lambda word: words[word]",
        f"{METRICS}::test_token_f1_as_eraser_defines_it",
    ),
    ("_words", "span[0] >= end", "span[0] > end", "metrics/test_left_out.py"),
    (
        "_words",
        'max(highest.get(number, -float("inf")), float(scores[place]))',
        "float(scores[place])",
        f"{METRICS}::test_token_f1_as_eraser_defines_it",
    ),
)
of(
    "metrics.case",
    f"{METRICS}::test_aopc",
    ("Case._order", "np.argsort(-scores", "np.argsort(scores"),
    ("Case.turns", "np.full(len(one), len(groups))", "np.full(len(one), 0)"),
    ("Case.turns", ".repeat(sizes)", "", f"{METRICS}::test_words_are_hidden_together"),
    ("Case.right", "int(p) if a.gold is None else a.gold", "int(p)", f"{METRICS}::test_games"),
    (
        "Case.ordered",
        "(len(order) - rank) / share",
        "len(order) - rank",
        "evaluation/test_pitfalls.py::test_the_ceiling_is_the_order_that_was_searched evaluation/test_pitfalls.py::test_chance_orders_words_by_chance",
    ),
    ("Case.ordered", "len(order) - rank", "rank", f"{METRICS}::test_the_ceiling_is_above_other_orders"),
    (
        "answer_tokens",
        "span[0] < end and start < span[1]",
        "span[0] <= end and start < span[1]",
        "evaluation/test_measuring.py::test_answers_to_questions_are_looked_for_among_the_highest_tokens",
    ),
)

# Results

of(
    "results.table",
    f"{RESULTS}::test_intervals_are_those_of_a_loop",
    ("_percentiles", "[0.025, 0.975]", "[0.05, 0.95]"),
    ("resampled_means", "for column in columns]) / count", "for column in columns]) / (count + 1)"),
    ("_draws", "min(block, resamples - start)", "block", f"{RESULTS}::test_resampling_in_blocks_changes_nothing"),
    (
        "TableData.compare",
        "mean, apart = one - other,",
        "mean, apart = other - one,",
        f"{RESULTS}::test_differences_are_paired_over_common_rows",
    ),
    ("TableData.compare", "ones - others", "ones", f"{RESULTS}::test_differences_are_paired_over_common_rows"),
    (
        "TableData.share",
        "share = (mean - chance)",
        "share = mean",
        f"{RESULTS}::test_shares_are_over_rows_that_have_all_three",
    ),
    ("TableData.share", "(means - chances)", "means", f"{RESULTS}::test_shares_are_over_rows_that_have_all_three"),
    (
        "TableData.best",
        "cell.n >= ENOUGH_ROWS * most",
        "cell.n >= 0",
        "evaluation/test_pitfalls.py::test_a_method_that_refuses_most_texts_is_not_the_best",
    ),
    (
        "TableData.tied",
        "d.high < 0 if sign > 0 else d.low > 0",
        "d.low > 0 if sign > 0 else d.high < 0",
        f"{RESULTS}::test_equal_methods_tie_and_clear_ones_do_not",
    ),
)
of(
    "results.aggregate",
    f"{RESULTS}::test_curves_are_exact_means_without_what_is_left_out",
    (
        "_Numbers.add",
        "outcome is None or outcome != outcome",
        "outcome is None",
        f"{RESULTS}::test_a_cell_counts_what_it_has_and_what_it_has_not",
    ),
    ("_Numbers._settle", "+= len(known)", "+= len(values)"),
    ("_Numbers._settle", "[*self.sums[point], *known]", "known"),
    ("_Numbers._settle", "value * value", "value", f"{RESULTS}::test_points_of_curves_have_intervals_and_are_saved"),
    ("_Numbers._point", "(count - 1)", "count", f"{RESULTS}::test_points_of_curves_have_intervals_and_are_saved"),
    (
        "_Numbers.series",
        "np.diff(rows[order]) == 0",
        "np.diff(rows[order]) < 0",
        f"{RESULTS}::test_nothing_is_counted_twice",
    ),
    (
        "Aggregate.tabulated",
        "(name in REFERENCES, self._methods[name], name)",
        "(self._methods[name], name)",
        f"{RESULTS}::test_latex_sets_references_apart {RESULTS}::test_labels_stand_in_order_of_first_appearance",
    ),
    (
        "Aggregate.add",
        "gold == predicted",
        "gold != predicted",
        f"{RESULTS}::test_the_footer_tells_what_was_left_out_and_why",
    ),
)
of(
    "results.table",
    f"{RESULTS}::test_intervals_of_curves_stay_within_what_is_possible",
    ("_around", "min(bounds[1], point.mean + half)", "point.mean + half"),
    ("_around", "not point.error > SAME * abs(point.mean)", "point.error < 0"),
)
of(
    "show.colours",
    f"{SHOWN}::test_methods_are_drawn_on_their_own_scales_and_on_one_if_asked",
    ("common_peak", 'if scale == "shared" else None', 'if scale == "row" else None'),
    ("common_peak", "max(map(largest", "min(map(largest"),
    ("scaled", "_peak(scores) if peak is None else peak", "_peak(scores)"),
    ("_visible", "not unit.special", "True", f"{SHOWN}::test_special_tokens_do_not_set_the_scale"),
)
of(
    "papers.class_texts",
    f"{RECIPES}::test_a_text_of_each_class_stands_in",
    ("EachClass._classified_right", "> self.longest", "> 10 * self.longest"),
    ("EachClass._classified_right", ".predicted[0]) == gold", ".predicted[0]) >= 0"),
    ("EachClass.texts", "< count:", "<= count:", f"{RECIPES}::test_a_limit_counts_the_texts_of_each_class"),
    (
        "EachClass._classified_right",
        "asked == MOST",
        "asked < 0",
        f"{RECIPES}::test_the_model_is_not_asked_without_end",
    ),
)
of(
    "papers.text_figures",
    f"{RECIPES}::test_differences_are_between_shares",
    ("DifferenceFigure.shown", "scores=share, signed=True", "signed=True"),
    ("DifferenceFigure.shown", "share - shares(explanation)", "shares(explanation) - share"),
    ("LayerFigure.remark", "layers[1:][-1:]", "layers[1:2]", f"{RECIPES}::test_layers_of_a_figure"),
)
of(
    "papers.plots",
    f"{RECIPES}::test_csv_has_the_points_of_curves",
    ("_joined", "low=scale * first.low", "low=first.low"),
    ("_joined", "stdev(means)", "None"),
    ("draw_over_rows", "(n - s, n + s)", "(n, n + s)", f"{RECIPES}::test_a_curve_over_rows_has_a_shadow_of_its_runs"),
)
of(
    "evaluation.journal",
    f"{JOURNAL}::test_what_is_written_comes_back_exactly",
    ("_sealed", "int(parts[2]) > len(lines)", "int(parts[2]) >= len(lines)"),
    (
        "Journal._cut",
        "os.fstat(descriptor).st_size > self._end",
        "os.fstat(descriptor).st_size < self._end",
        f"{JOURNAL}::test_a_tail_torn_at_any_byte_is_cut_off",
    ),
    (
        "Journal.append",
        " or keys & self._keys.packed",
        "",
        f"{JOURNAL}::test_a_record_that_is_there_already_is_refused",
    ),
    ("Journal.__init__", " or keys & self._keys.packed", "", f"{JOURNAL}::test_a_file_with_a_record_twice_is_refused"),
    (
        "_difference",
        "if within or name != ABOUT else None",
        "if True else None",
        BATCH_LIMITS,
    ),
    ("_put", "done += count", "done = len(data)", f"{JOURNAL}::test_a_short_write_goes_on"),
    (
        "_put",
        "    os.fsync(descriptor)",
        "    pass",
        f"{JOURNAL}::test_a_chunk_is_one_write_and_counts_once_it_is_on_the_disk",
    ),
    (
        "_committed",
        "if position > stop:",
        "if False:",
        f"{JOURNAL}::test_a_reader_beside_a_writer_sees_what_was_committed_when_it_came",
    ),
    (
        "_committed",
        "if broken or (sealed is not None and sealed < len(lines)):",
        "if broken:",
        f"{JOURNAL}::test_damage_before_the_last_chunk_is_an_error_with_its_line",
    ),
    (
        "Journal._write",
        "self._keys.packed -= keys",
        "pass",
        f"{JOURNAL}::test_ctrl_c_at_any_line_leaves_all_or_nothing",
    ),
    ("_locked", "lock.acquire(timeout=0)", "pass", f"{JOURNAL}::test_a_second_run_is_refused_at_once"),
)
same(
    *("evaluation.journal", "_sealed", "parts is None or int(parts[2]) > len(lines)", "parts is None"),
    f"{JOURNAL}::test_a_tail_torn_at_any_byte_is_cut_off {JOURNAL}::test_a_missing_line_is_damage",
    "fewer lines than were committed have another checksum",
)
of(
    "evaluation.examples",
    "evaluation/test_pitfalls.py::test_a_smaller_window_is_not_taken_for_the_same",
    ("item_of", "[tensors, [unit.special for unit in encoded.units]]", "[]"),
    ("_batches", "limits.traced_tokens", "10**9", BATCH_LIMITS),
    ("_batches", "limits.texts", "10**9", BATCH_LIMITS),
    ("_batches", "limits.traced_call", "0", BATCH_LIMITS),
    ("_batches", "-len(batch) * ", "len(batch) * ", BATCH_LIMITS),
)
of(
    "models.limits",
    BATCH_LIMITS,
    ("Limits.scaled", "max(getattr(CPU, n), int(", "max(0, int("),
    ("limits_of", "_memory(device) >= LARGE", "_memory(device) > LARGE"),
    ("limits_of", "limits if weights <= SMALL else ", ""),
)
of(
    "evaluation.plan",
    BATCH_LIMITS,
    ("Plan.rows_at_once", "self.settings.ceiling or ", ""),
    ("Plan.rows_at_once", ' or any(method.of.passes == "many" for method in self.methods)', ""),
    ("Plan.rows_at_once", "FEWEST_CHUNKS.get(engine, 1)", "2"),
)

of(
    "evaluation.evaluate",
    f"{AHEAD}::test_what_draws_is_imported_while_a_gpu_is_busy",
    ("_results", "[] if out is None else ", ""),
    ("_quietly", "suppress(Exception)", "suppress(KeyError)"),
)
of(
    "evaluation.chunk",
    f"{AHEAD}::test_short_memory_for_two_graphs_loses_nothing",
    ("ChunkRun._forget", "not rows.issuperset", "rows.issuperset"),
    ("ChunkRun._plan_last_batch", "self.to_explain_again.append(last.items)", "pass"),
    ("ChunkRun._plan_last_batch", "self._forget(last.items)", "pass"),
    (
        "ChunkRun.ask",
        "            self._plan_last_batch()\n",
        "",
        f"{AHEAD}::test_metrics_are_asked_about_one_batch_while_a_gpu_explains_the_next",
    ),
    (
        "ChunkRun.explain",
        "self._plan_last_batch()  # the graph of the batch before takes memory",
        "pass",
        f"{AHEAD}::test_the_batch_before_gives_its_memory_first",
    ),
    (
        "ChunkRun.may_plan_later",
        ' or metric.facts["options"].get("target") == "gold"',
        "",
        f"{AHEAD}::test_metrics_that_run_the_model_are_asked_at_once",
    ),
    (
        "ChunkRun.may_plan_later",
        "self.plan.settings.ceiling or ",
        "",
        f"{AHEAD}::test_metrics_that_run_the_model_are_asked_at_once",
    ),
    (
        "ChunkRun.may_plan_later",
        '"classes" in metric.of.needs or ',
        "",
        f"{AHEAD}::test_metrics_that_run_the_model_are_asked_at_once",
    ),
    (
        "ChunkRun._ask_about",
        "if self.last_batch is None:",
        "if True:",
        f"{AHEAD}::test_a_gpu_that_waits_is_given_what_was_asked_first",
    ),
)
of(
    "perturb.flights",
    f"{AHEAD}::test_a_gpu_has_much_to_do_while_something_is_on_its_way",
    ("Flights.has_much", "max(1, self._much)", "0"),
    ("Flights.has_much", "max(1, self._much)", "1", f"{AHEAD}::test_some_tokens_are_not_much"),
    ("Flights._left", " if not flight.is_over", ""),
)
of(
    "evaluation.chunk",
    f"{AHEAD}::test_a_gpu_that_waits_is_given_what_was_asked_first",
    ("ChunkRun.explain", "if not self.batches_to_load and self.meanwhile():", "if self.meanwhile():"),
    ("ChunkRun.__init__", "2 if self.may_plan_later else 1", "1"),
)
of(
    "perturb.flights",
    STREAMS,
    ("Flights._in_line", "        _wait_for_turns(current, self.device)\n", ""),
    ("Flights._in_line", "stream.wait_stream(current)", "pass"),
    ("Flights.launch", "self._in_line()", "nullcontext()"),
    ("Flights.begin", "if behind_all_turns:", "if False:"),
    ("Flights.begin", "if behind_all_turns:", "if True:"),
)
of(
    "perturb.runner",
    f"{STREAMS}::test_all_turns_are_waited_for_where_the_model_is_not_what_it_was",
    ("Runner._launching", "if self._state is not None and not self._state.holds():", "if False:"),
    ("Runner._launching", "behind_all_turns=self._state is None", "behind_all_turns=True"),
)
of(
    "landing",
    AHEAD,
    ("Landing.is_over", "event.query()", "True"),
    ("Landing.wait", "event.synchronize()", "pass"),
    ("Landing.tensors", "        self.wait()\n", ""),
)
of(
    "evaluation.chunk",
    f"{AHEAD}::test_scores_and_their_checks_come_to_the_cpu_before_they_are_wanted",
    ("ChunkRun._metric_calls", "landing=landing", "landing=None", f"{AHEAD}::test_planning_reads_what_landed"),
)
of(
    "evaluation.asked",
    f"{AHEAD}::test_scores_and_their_checks_come_to_the_cpu_before_they_are_wanted",
    ("Asked.of", "        checks.land()\n", ""),
    ("Asked.of", "        runs.whole.land()\n", ""),
    ("Asked.scores", "self.checks.make()", "pass", AHEAD),
    (
        "Asked.of",
        "scores_by(method, runs.explained_by(method))",
        "scores_by(method, runs.whole)",
        f"{PROTOCOLS}::test_the_class_that_is_explained_is_that_of_the_whole_text",
    ),
)
of(
    "metrics.case",
    f"{AHEAD}::test_scores_and_their_checks_come_to_the_cpu_before_they_are_wanted",
    ("Case.without_padding", "self.landing is None or scores is not self.scores", "self.landing is None"),
    ("Case.ordered", "landing=None, ", ""),
)
of(
    "metrics.case",
    "metrics/test_metric_edges.py::test_places_may_come_as_an_array",
    ("Case.without", " or steps.dtype != bool", ""),
)
of(
    "checks",
    "contract/test_checks.py",
    ("Checks.add", "        self._landing = None\n", ""),
)
of(
    "evaluation.chunk",
    f"{AHEAD}::test_a_gpu_that_waits_is_given_questions_as_they_come",
    ("ChunkRun._ask_about", "not self.batches_to_load and ", ""),
    ("ChunkRun._ask_about", "max(0, self.batches_to_load - 1)", "self.batches_to_load"),
    ("measured_chunks", "            is_first = False\n", ""),
    (
        "measured_chunks",
        "errands=left",
        "errands=deque(errands)",
        f"{AHEAD}::test_errands_are_done_once_while_a_gpu_has_much_to_do",
    ),
)
of(
    "evaluation.chunk",
    f"{AHEAD}::test_methods_that_wait_for_a_gpu_are_asked_last",
    (
        "ChunkRun._missing_methods",
        'sorted(wanted, key=lambda spec: spec.of.passes == "many" or spec.of.family == "perturbation")',
        "wanted",
    ),
)

of(
    "evaluation.chunk",
    "evaluation/test_merged_documents.py::test_a_document_is_explained_by_fewer_windows_at_once_where_memory_is_short",
    ("ChunkRun.explain_document", "self._forget([item])", "pass"),
)

# Trust

of(
    "results.trust",
    f"{TRUST}::test_percentile_and_share_by_hand",
    ("TrustData.percentile", "below - above", "above - below"),
    ("TrustData.share", "self.ceiling - self.chance < NOTHING", "self.ceiling - self.chance < 0"),
    ("TrustData.share", "(self.aopc - self.chance)", "self.aopc"),
    ("TrustData._counts", "other < self.aopc", "other <= self.aopc"),
    (
        "TrustData._against_chance",
        "below > above, below == above",
        "below >= above, False",
        f"{TRUST}::test_the_sentence",
    ),
    ("TrustData._of_the_attainable", "if share >= 1:", "if share > 1:", f"{TRUST}::test_the_sentence"),
)
of(
    "results.trust",
    f"{TRUST}::test_a_text_is_too_short_if_the_best_order_is_likely_among_the_random_ones",
    ("TrustData.too_short", "** len(self.random)", "* len(self.random)"),
    ("TrustData.too_short", "< 0.5", "< 0.9"),
    ("TrustData.too_short", "self.units, MANY", "self.units, 2"),
)
of(
    "explain.trust_in_place",
    "evaluation/test_trust_in_place.py::test_answers_by_hand",
    ("_Falls.__init__", "not answer.intersection(group)", "True"),
    ("_Falls.ranked", "argsort(-np", "argsort(np"),
    ("_Falls.of", "self.whole - self.known[places]", "self.known[places]"),
    (
        "_Falls.__init__",
        "tokens[1] + 1",
        "tokens[0] + 1",
        "evaluation/test_trust_in_place.py::test_all_of_an_answer_stays",
    ),
    ("trust_in_place", "> close", "> 1", "evaluation/test_trust_in_place.py::test_refusals"),
)
of(
    "results.explanation",
    "show/test_words_of_explanations.py",
    ("ExplanationData.__getitem__", "max(scores) if self.ranks else float(np.sum(scores))", "float(np.sum(scores))"),
    ("ExplanationData.__eq__", "self._identity != other._identity or ", ""),
    ("ExplanationData.__eq__", "_nested(self.options, list) != _nested(other.options, list)", "self.options is None"),
    ("_coarser", "else torch.float32", "else torch.float64"),
    (
        "ComparisonData.by_agreement",
        "self[n].method in BASELINES, ",
        "",
        "show/test_comparisons.py::test_those_that_agree_come_first_and_baselines_last",
    ),
)
of(
    "results.agreement",
    "show/test_words_of_explanations.py",
    ("agreement_of", "one.signed and other.signed", "one.signed"),
    ("agreement_of", "tops[0] | tops[1]", "tops[0] & tops[1]"),
    ("_alike", "return words", "return one, other"),
    (
        "mean_agreements",
        " and explanations[m].method not in BASELINES",
        "",
        "show/test_comparisons.py::test_mean_agreement_by_hand",
    ),
)
of(
    "show.comparing",
    "show/test_comparisons.py::test_headlines_that_differ_are_told_apart",
    ("under_headlines", "*origin, ", ""),
    ("under_headlines", "headline(e.prediction), ", ""),
)
of(
    "testing",
    "contract/test_word_assertions.py",
    ("assert_leans_on", "one.amount < limit", "one.amount > 1"),
    ("assert_ignores", "one.amount > limit", "one.amount > 99"),
    ("assert_ignores", "max(much", "min(much"),
    ("_effect", "flat([words[number][1]", "flat([words[number][1][:1]"),
)
of(
    "explain.trust",
    f"{TRUST}::test_own_scores_ties_and_special_tokens",
    ("_ranked", "argsort(-row", "argsort(row"),
    ("_case", "> SAME_MODEL", "> 1", f"{TRUST}::test_another_model_is_refused"),
    (
        "_take_over",
        "0 < step <= after",
        "0 < step < after",
        "evaluation/test_stepwise_trust.py::test_numbers_are_those_of_a_run_without_reuse evaluation/test_stepwise_trust.py::test_what_was_seen_is_not_run_again",
    ),
    (
        "_take_over",
        "<= SAME_RUN",
        "<= 1",
        "evaluation/test_stepwise_trust.py::test_what_another_run_saw_is_not_taken_over",
    ),
    (
        "_take_over",
        'one.hide == "delete"',
        'one.hide != "delete"',
        "evaluation/test_stepwise_trust.py::test_what_was_seen_is_not_run_again",
    ),
)

# Units and inputs

of(
    "inputs.units",
    WORDS,
    (
        "_groups",
        "words[number][1] <= span[0]",
        "words[number][1] < span[0]",
        f"{WORDS} {TOKENIZERS}::test_every_tokenizer_gives_the_same_words",
    ),
    (
        "_groups",
        "words[ahead][0] < span[1]",
        "words[ahead][0] <= span[1]",
        f"{WORDS} {TOKENIZERS}::test_every_tokenizer_gives_the_same_words",
    ),
    ("_groups", "[*members, *waiting, position]", "[*members, position]"),
    (
        "_continues",
        "position + 1 < len(text) and _is_letter(text[position + 1])",
        "True",
        "inputs/test_small_pieces.py",
    ),
    ("trim", "span[0] + len(piece) - len(piece.lstrip())", "span[0]"),
    ("search_spans", "origins[start - 1] + 1", "origins[start - 1]"),
    ("search_spans", "start = place + len(wanted)", "start = place"),
    ("_is_mark", '[0] == "M"', '[0] == "Z"', f"{TOKENIZERS}::test_a_combining_mark_belongs_to_its_letter"),
    ("join_words", "not u.special and u.part == part", "not u.special"),
)
of(
    "inputs.encoding",
    TOKENIZERS,
    ("Batch.padding", "return padding & ~special", "return padding", "inputs/test_small_pieces.py"),
    (
        "encode",
        "max(0, count - window)",
        "max(0, count - window - 1)",
        f"{TOKENIZERS}::test_what_does_not_fit_is_dropped_and_counted",
    ),
    (
        "window_of",
        "return min(",
        "return max(",
        f"{TOKENIZERS}::test_the_tokenizer_may_be_stricter_than_the_model {TOKENIZERS}::test_the_window_is_what_the_position_table_holds",
    ),
    (
        "collate",
        "[1] * len(e.units) + [0]",
        "[1] * len(e.units) + [1]",
        f"{TOKENIZERS}::test_a_batch_gives_the_scores_of_each_text_alone",
    ),
    (
        "TextInput.characters",
        "end + 1",
        "end",
        "inputs/test_questions.py::test_text_of_an_answer inputs/test_questions.py::test_the_best_answer_in_the_context_is_explained_or_none",
    ),
    ("_gap", "default=0)", "default=1)", "inputs/test_small_pieces.py"),
)

# What an adversarial check found that no test noticed, each with the test that was written for it

of(
    "recorder.lrp.layout",
    f"{RECORDED}::test_a_head_of_two_opposite_logits_has_a_reader",
    ("any_of", "torch.linspace(1, 2,", "torch.linspace(1, 1,"),
)
of(
    "recorder.lrp.books",
    f"{RECORDED}::test_a_product_that_was_not_seen_is_refused",
    ("", "ROUTING = _SHAPES | _VIEWS", 'ROUTING = frozenset({"Mul"}) | _SHAPES | _VIEWS'),
)
of(
    "recorder.mode",
    "contract/test_elementwise_attention.py",
    (
        "Recorder._govern",
        'elif kind in ("product", "scaled") and any(map(self.lineage.weighs, operands)):',
        "elif False:",
    ),
)
of(
    "recorder.trace",
    SQUARE,
    (
        "Trace.sites_for",
        "self._placed_sites if book.adds_per_example else self.sites",
        "self.sites",
    ),
)
of("recorder.run", SQUARE, ("_check_layout", "if any(elsewhere):", "if False:"))
of(
    "inputs.encoding",
    "inputs/test_small_pieces.py::test_padding_is_taken_out_of_rows_for_each_token_however_wide_they_are",
    ("_cut", '"mask" in name and units', 'name != "inputs_embeds" and units'),
)
of(
    "inputs.input",
    f"{RECORDED}::test_positions_are_counted_anew_after_a_deletion",
    (
        "TensorInput._left",
        'tensors["position_ids"] = arrays["position_ids"][: end - start]',
        "pass",
    ),
)
of(
    "evaluation.examples",
    f"{METRIC_EDGES}::test_the_key_of_an_example_holds_the_window_and_what_is_special",
    ("item_of", "_marked(example), seen]", "_marked(example)]"),
)
of(
    "registry.specs",
    f"{KEYS}::test_numbers_of_changed_code_are_not_taken_from_the_journal",
    ("Spec.facts", '"code": code}', '"code": None}'),
)
of(
    "registry.options",
    f"{KEYS}::test_a_file_that_happens_to_have_the_name_of_a_value_changes_no_key",
    ("Option.is_path", "and not any(fits(value, kind) for kind in words)", ""),
)
of(
    "methods.by_captum",
    f"{EDGES}::test_importing_a_library_leaves_the_random_state",
    ("captum_attr", 'else drawing(0, torch.device("cpu"))', "else nullcontext()"),
)
of(
    "methods.places",
    f"{EDGES}::test_products_made_of_a_norms_constant_are_refused",
    ("", '{"token_embeddings": 1e-3, "embedding_output": 2e-5,', '{"token_embeddings": 0.0, "embedding_output": 0.0,'),
)
of(
    "evaluation.chunk",
    "evaluation/test_measuring.py",
    ("ChunkRun._calls", "if len(items) == 1:", "if len(items) >= 1:"),
)
of(
    "inputs.encoding",
    f"{ODD_INPUTS}::test_threads_may_share_a_tokenizer",
    ("_tokenised", "with _TOKENIZING:", "if True:"),
)
of(
    "cli.interrupts",
    "cli/test_terminal.py::test_an_exception_that_leads_back_to_itself_is_no_ctrl_c",
    ("interrupted", "return True", "return False"),
)
of(
    "inputs.tensors",
    "contract/test_library_misuse.py contract/test_refusals.py",
    ("check_mask", "bool(mask.isnan().any())", "False"),
    ("check_mask", "mask.dim() == 2 and not bool(mask.any(-1).all())", "False"),
    ("check_tables", "shape[1] - padding > rows - reserved", "shape[1] - padding > rows"),
)
of(
    "storage.files",
    "contract/test_files.py",
    ("inside", "not path.resolve().is_relative_to(folder.resolve())", "False"),
    ("replacing", "draft.unlink(missing_ok=True)", "pass"),
)
of("escapes", "cli/test_terminal.py::test_what_steers_a_terminal_is_written_out", ("", "\\x7f-\\x9f", "\\x7f"))
of(
    "prediction",
    f"{RECORDED}::test_relevance_for_maps_is_not_taken_for_that_of_the_embeddings",
    ("Prediction.relevances", "if relevances is None or (whole and not relevances.whole):", "if relevances is None:"),
)
of(
    "prediction",
    f"{RECORDED}::test_what_positions_below_the_first_layers_output_take_is_not_counted_above_it",
    ("Prediction._pass", "if call > above]", "if call > -1]"),
)
of("methods.gradient", f"{EDGES}::test_grad_cam_leaves_out_what_a_window_hides", ("grad_cam", ".ne(0)  #", ".ge(0)  #"))
of(
    "recorder.lrp.head_gate",
    f"{EDGES}::test_relevance_lost_in_the_first_block_is_not_taken_off_what_is_expected",
    ("HeadGate.lost_above", "e.layer > layer", "e.layer >= layer"),
)
of(
    "methods.decoded",
    f"{EDGES}::test_the_middle_of_three_layers_is_the_first",
    ("_number", "(count - 1) // 2", "count // 2"),
)
of(
    "recorder.lrp.books",
    f"{RECORDED}::test_a_sum_moves_numbers_if_it_does_not_scale_them",
    ("moves", "inputs == 1 and bool(node._saved_alpha == 1)", "inputs == 1"),
)
of(
    "recorder.lrp.dispatch",
    f"{RECORDED}::test_rms_norm_without_epsilon_has_that_of_its_dtype",
    ("_norm", "torch.finfo(x.dtype).eps if eps is None else eps", "1e-5 if eps is None else eps"),
)
of(
    "models.borrow",
    f"{RECORDED}::test_the_stand_in_for_padding_is_a_token_that_no_text_holds",
    ("_with_padding_id", "used = set(ids[attended].tolist())", "used: set[int] = set()"),
)
of(
    "recorder.mode",
    f"{RECORDED}::test_one_map_that_weighs_twice_keeps_both_values",
    ("Recorder._see", "torch.cat((last.values, attention.values), -1)", "attention.values"),
)
of(
    "perturb.search",
    f"{RECORDED}::test_the_search_goes_on_with_the_better_of_two_paths_to_one_set",
    ("_grown", "same is None or same.total > path.total", "same is None"),
)
of(
    "perturb.remains",
    f"{RECORDED}::test_special_tokens_stay_special_behind_deleted_ones",
    ("_batch_of", "] = row.special", "] = False"),
)
of(
    "metrics.faithfulness",
    f"{METRIC_EDGES}::test_log_odds_of_a_model_that_is_sure",
    ("log_odds", "torch.finfo(torch.float64).tiny", "1e-3"),
)
of(
    "metrics.plausibility",
    f"{METRIC_EDGES}::test_words_that_touch_have_the_scores_of_their_own_tokens",
    ("_words", "tokens[first][1][1] <= start", "tokens[first][1][1] < start"),
)
of(
    "metrics.case",
    f"{METRIC_EDGES}::test_the_order_of_words_is_that_of_their_highest_token_where_scores_are_ranks",
    ("Case._unit_scores", 'combine == "sum" and not self.ranks', 'combine == "sum"'),
)
of(
    "inputs.encoding",
    f"{RECORDED}::test_a_masked_position_that_the_head_reads_is_no_padding",
    ("Batch.padding", "self.masked & (reader == 0)", "self.masked"),
)
of(
    "inputs.encoding",
    f"{ODD_INPUTS}::test_the_parts_of_a_slow_tokenizers_cut_pair",
    ("_parts", "min(part + 1, 1), False", "0, False"),
)
of(
    "recorder.mode",
    "contract/test_readers_and_answers.py contract/test_hard_cases.py",
    ("Recorder._govern", "if not attends and not self.lineage.knows(operands[0]):", "if False:"),
)
of(
    "inputs.input",
    f"{RECORDED}::test_positions_are_counted_anew_after_a_deletion",
    ("TensorInput._left", 'if "position_ids" in tensors:', "if False:"),
)
of(
    "results.table",
    "evaluation/test_small_samples.py::test_one_row_has_no_percentiles",
    ("_percentiles", "if n > 1", "if n > 0"),
)

# Long texts

of(
    "inputs.windows",
    f"{WINDOWS}::test_windows_of_a_context_are_those_of_the_tokenizer",
    ("Windows.parts", "room - overlap)", "room)"),
    ("Windows.parts", "len(long) - overlap)", "len(long))"),
    ("Windows.parts", "start : start + room]", "start : start + room - 1]"),
    ("Windows._room", "min(OVERLAP, room // 2)", "min(OVERLAP, room // 3)"),
    ("Windows._long", "max(texts, key=len)", "texts[0]", f"{WINDOWS}::test_of_a_pair_the_longer_text_is_cut"),
    (
        "Windows._long",
        "texts[1] if answers else",
        "",
        f"{WINDOWS}::test_of_a_question_the_context_is_cut_though_it_is_shorter",
    ),
)
of(
    "tasks.answers",
    f"{WINDOWS}::test_an_answer_in_one_window_is_enough",
    ("best_window", "min(nothing) <= best else nothing.index(min(nothing))", "max(nothing) <= best else 0"),
    ("best_window", "spans.index(best) if", "spans.index(min(spans)) if"),
    ("best_window", "where[0] if where else 0", "0", f"{WINDOWS}::test_a_target_is_explained_where_it_first_stands"),
)
of(
    "methods.documents",
    f"{WINDOWS}::test_each_token_of_a_document_is_the_mean_over_its_windows",
    ("_Merged.scores", "self.sums / self.counts", "self.sums"),
    ("Document.outputs", ".mean(0, keepdim=True)", ".sum(0, keepdim=True)"),
    ("Document.scores", "[chosen] * len(windows), against", "None, against"),
)
of(
    "explain.windows",
    f"{WINDOWS}::test_each_token_of_a_document_is_the_mean_over_its_windows",
    (
        "in_windows",
        "[[one] for one in of_text]",
        "[of_text]",
        f"{WINDOWS}::test_a_target_is_explained_where_it_first_stands",
    ),
)
of(
    "evaluation.examples",
    f"{WINDOWS}::test_answers_outside_the_window_are_missed",
    ("Item.in_window", "answer_tokens(window, self.answer)", "self.annotation.answer"),
    ("Item.in_window", "whole[1] - whole[0] + 1", "None"),
)

# Kept scores, the page of texts, and documents in windows

of(
    "results.kept",
    f"{KEPT}::test_what_comes_back_is_what_compare_shows",
    ("score_facts", "scores.total[row, :units]", "scores.total[0, :units]"),
    ("score_facts", "if scores.ranks:", "if not scores.ranks:"),
    ("KeptRow.right", "== self.facts.get", "!= self.facts.get"),
    ("score_facts", "not np.isfinite(packed).all()", "False", f"{KEPT}::test_what_a_method_refuses_is_told"),
    ("_unit_facts", "[*unit.span] if not unit.part", "[*unit.span] if True", f"{KEPT}::test_pairs_come_back"),
    ("gold_answer", "NO_ANSWER if unanswered else None", "None", f"{KEPT}::test_answers_come_back"),
    ("_decoded", "% np.dtype(NUMBERS).itemsize == 0", ">= 0", f"{KEPT}::test_scores_that_are_damaged"),
)
of(
    "evaluation.plan",
    f"{KEPT}::test_scores_that_are_missing_are_computed_and_nothing_is_measured",
    (
        "Plan.pairs",
        "if self.settings.keep_scores:",
        "if True:",
        f"{KEPT}::test_the_table_and_the_keys_are_those_without",
    ),
    (
        "Plan._check_windows",
        "if metric.of.hides",
        "if False",
        f"{DOCUMENTS}::test_what_hides_is_refused_by_name_before_anything_is_run",
    ),
)
of(
    "results.aggregate",
    f"{KEPT}::test_the_scores_of_changed_code_are_refused",
    ("Aggregate.rows", "numbers | {pair: frozenset(rows) for pair, rows in self._kept.items()}", "numbers"),
    ("Aggregate.add", "if record.metric != KEPT]", "]", f"{KEPT}::test_the_table_and_the_keys_are_those_without"),
)
of(
    "explain.kept",
    f"{KEPT}::test_which_examples",
    ("_chosen_rows", "sorted(verdicts)[:which]", "sorted(verdicts)[-which:]"),
    ("_chosen_rows", "if right is False", "if not right is False"),
    ("kept_examples", "sorted(rows)", "sorted(rows, reverse=True)"),
)
of(
    "show.index",
    f"{EXAMPLES}::test_strengths_are_classes_of_the_style_sheet",
    ("levels_of", "np.sign(strength) * levels", "levels"),
    ("levels_of", "np.maximum(1, ", "np.maximum(0, ", f"{EXAMPLES}::test_every_strength_that_is_not_faint_is_seen"),
    ("Index._marks", "ANSWER * piece.answer", "0", f"{EXAMPLES}::test_answers_and_unknown_words_are_marked"),
    (
        "Index._marks",
        '.encode("utf-16-le", "surrogatepass")) // 2',
        ")",
        f"{EXAMPLES}::test_characters_of_two_halves_are_counted_as_scripts_do",
    ),
    (
        "Index.page",
        "sorted(self._rows, key=lambda numbered: numbered[0])",
        "self._rows",
        f"{EXAMPLES}::test_wrong_right_and_unknown_are_told_in_order_of_their_rows",
    ),
    ("_dumped", '.replace("<", "\\\\u003c")', "", f"{EXAMPLES}::test_nothing_in_a_text_is_taken_for_the_page"),
)
of(
    "results.explanations",
    f"{MANY}::test_what_is_wrong_is_told_apart",
    (
        "verdict",
        "label is not None and label in predicted.labels",
        "label is not None",
        f"{MANY}::test_a_label_that_the_model_does_not_have_is_shown_as_it_is",
    ),
    ("ExplanationsData.wrong", "one.right is False", "not one.right is False"),
    ("collected", 'line.get("row", len(rows))', "len(rows)", f"{IN_FOLDERS}::test_bad_rows_are_named_by_their_numbers"),
)
of(
    "explain.tables",
    f"{MANY}::test_bad_rows_are_named_or_skipped",
    ("without_bad", "enumerate(texts, first)", "enumerate(texts)"),
    ("without_bad", "str(error.__cause__ or error)", "str(error)"),
    ("TableOfTexts.of", ".for_texts()", "", f"{MANY}::test_a_label_that_the_model_does_not_have_is_shown_as_it_is"),
)
of(
    "explain.folders",
    f"{IN_FOLDERS}::test_an_interrupted_run_goes_on",
    ("FolderOfExplanations.fill", "if one.row not in done", "if True"),
    (
        "FolderOfExplanations.run",
        '"data": self.data.digest',
        '"data": None',
        f"{IN_FOLDERS}::test_other_data_in_the_folder_is_refused",
    ),
    ("FolderOfExplanations.run", '"asked": asked, ', "", f"{IN_FOLDERS}::test_another_run_in_the_folder_is_refused"),
)
of(
    "progress",
    f"{PROGRESS}::test_where_nobody_watches_there_is_a_line_now_and_then",
    ("Lines.__call__", "later < OFTEN", "later < 0"),
    ("Lines.__call__", "passed >= 2 * self._last[0] or ", ""),
    (
        "Lines.__call__",
        "passed / since * (1 - share)",
        "passed / since",
        f"{PROGRESS}::test_a_line_says_how_many_and_how_fast",
    ),
)
of(
    "evaluation.estimate",
    f"{ESTIMATE}::test_a_search_asks_about_one_unit_less_at_each_step",
    ("searched_inputs", "ways * beam", "beam"),
)
of(
    "evaluation.examples",
    f"{DOCUMENTS}::test_correlation_of_classes",
    ("item_of", '== "answer" or windows.merge', '== "answer"'),
)
of(
    "metrics.class_scores",
    f"{DOCUMENTS}::test_correlation_of_classes",
    ("DocumentScores.of", "[(index, None)]", "[(0, None)]"),
)
of(
    "evaluation.chunk",
    f"{DOCUMENTS}::test_what_is_said_is_said_of_the_whole_and_kept",
    ("ChunkRun._kept_row", 'facts["windows"] = len(item.windows)', "pass"),
)

# As the authors' code runs, and all papers at once

of(
    "evaluation.protocols",
    f"{PROTOCOLS}::test_what_is_taken_out_of_attention",
    ("as_explained", 'protocol == "attcat"', 'protocol != "attcat"'),
    ("as_explained", "batch.masked | hidden.to(batch.masked.device)", "batch.masked"),
    ("as_explained", "attended.masked_fill(hidden.to(attended.device), 0)", "attended"),
    (
        "without_segments",
        "0 * text.tensors[SEGMENTS]",
        "text.tensors[SEGMENTS]",
        f"{PROTOCOLS}::test_the_model_is_run_without_segments",
    ),
    (
        "protocol_named",
        'task != "classes"',
        "False",
        f"{PROTOCOLS}::test_protocols_that_are_not_known_or_not_for_the_model",
    ),
)
of(
    "evaluation.chunk",
    f"{PROTOCOLS}::test_the_class_that_is_explained_is_that_of_the_whole_text",
    ("ChunkRun._runs", ".towards(whole.target.tolist())", ""),
    ("ChunkRun._runs", "as_explained(whole.batch, protocol)", "whole.batch"),
    ("ChunkRun._calls", "self._metric_calls(spec, runs.whole,", "self._metric_calls(spec, runs.explained,"),
    (
        "ChunkRun._calls",
        "ClassScores(spec, runs.explained_by(spec), others[spec.quantity])",
        "ClassScores(spec, runs.whole, others[spec.quantity])",
        f"{PROTOCOLS}::test_scores_are_of_that_run_and_metrics_of_the_whole_text",
    ),
    (
        "ChunkRun._improbable",
        '("gold", gold)',
        '("gold", predicted)',
        f"{PROTOCOLS}::test_the_gold_class_has_to_be_probable",
    ),
    (
        "ChunkRun._improbable",
        "None if protocol is None else item.annotation.gold",
        "item.annotation.gold",
        f"{PROTOCOLS}::test_the_gold_class_has_to_be_probable",
    ),
)
of(
    "evaluation.plan",
    f"{PROTOCOLS}::test_the_model_is_run_without_segments",
    ("Plan._items", "if self.settings.protocol is not None:", "if False:"),
    (
        "Plan._made_facts",
        '("protocol", "explains", "versus")',
        '("explains", "versus")',
        f"{PROTOCOLS}::test_each_protocol_has_its_own_journal",
    ),
)
of(
    "evaluation.evaluate",
    f"{PROTOCOLS}::test_protocols_that_are_not_known_or_not_for_the_model",
    ("evaluate", "protocol is not None and long.merge", "False"),
)
of(
    "papers.masks",
    f"{OF_HEADS}::test_heads_are_counted_in_a_treebank",
    ("_searched_mask", '"search": vars(settings.search)', '"search": None'),
    ("_described", "search == AUTHORS_SEARCH", "True"),
    ("check_parse", "or settings.treebank is not None", ""),
    (
        "_searched_mask",
        'mask.provenance.get("of") != facts',
        "False",
        f"{OF_HEADS}::test_the_mask_of_the_texts_is_found_once",
    ),
    ("_searched_mask", 'if mask.provenance["interrupted"]', "if False", f"{OF_HEADS}::test_an_interruption_is_no_mask"),
    (
        "_Corpus.of",
        "apart=pipeline is not None",
        "apart=True",
        f"{OF_HEADS}::test_pairs_and_questions_are_read_as_pairs",
    ),
    (
        "_Corpus.counted",
        "special_tokens=search.special_tokens",
        "special_tokens=False",
        f"{OF_HEADS}::test_placeholders_are_filled",
    ),
    (
        "_Corpus.counted",
        "self.sentences, **vars(search)",
        "self.sentences",
        f"{OF_HEADS}::test_parsed_texts_give_both_kinds",
    ),
    ("column_mask", "if recipe.shows_masks", "if False", f"{OF_HEADS}::test_models_in_which_no_heads_can_be_counted"),
)
same(
    *("papers.masks", "ColumnTexts.__iter__", "if text.strip()", ""),
    f"{OF_HEADS}::test_pairs_are_parsed_one_text_at_a_time",
    "a data set refuses rows with an empty text, or leaves them out",
)
of(
    "papers.placeholders",
    f"{RECIPES}::test_pairs_have_metrics_of_their_own",
    ("_measures", "measure.pairs or measure.metric", "measure.metric"),
    ("_measures", "not column.of_pairs", "column.of_pairs"),
    ("_with_mask", "and not is_parsed(mask.mask)", "", f"{OF_HEADS}::test_a_row_is_theirs_only_with_syntactic_heads"),
    ("_lack", "and not is_parsed(mask)", "", f"{OF_HEADS}::test_masks_that_lack_a_kind"),
)
of(
    "papers.sources",
    f"{ALL}::test_limits_by_column",
    ("given_limits", "int(number) < 1", "int(number) < 0"),
    ("Settings.limit_of", "self.limit.get(column.folder, self.limit.get(None))", "self.limit.get(None)"),
    ("Settings.limit_of", "self.limit.get(column.folder, self.limit.get(None))", "self.limit.get(column.folder)"),
    ("Settings.rows", " and self.treebank is None", "", f"{OF_HEADS}::test_heads_are_counted_in_a_treebank"),
)
of(
    "papers.tables",
    f"{ALL}::test_recipes_of_the_same_data_share_a_journal",
    ("_measured", 'folder / f"protocol-{protocol}"', "folder"),
    ("_as_measured", "journal.run.get(name) != asked", "False", f"{ALL}::test_what_was_measured_elsewhere"),
    ("TableRecipe.run_column", " if settings.measured else []", "", f"{RECIPES}::test_departures_are_stated"),
    (
        "_point_grid",
        "-(-len(points) // MOST_POINTS)",
        "1",
        f"{RECIPES}::test_a_line_has_room_for_some_points_of_a_curve",
    ),
)
of(
    "papers.result",
    f"{RECIPES}::test_a_table_is_what_evaluate_measures",
    ("entries_of", "measure.beside or measure.label", "measure.label"),
)
of(
    "papers.everything",
    f"{ALL}::test_each_recipe_gets_the_options_that_it_takes",
    ("_columns", "if not asked:", "if False:"),
    (
        "_options",
        "for column, value in taken[name].items() if column in (None, *columns)",
        "for column, value in taken[name].items()",
    ),
    ("_options", "if recipe.searches_all:", "if False:"),
    ("_options", "column is None or column in columns", "column in columns"),
    ("_options", "() if recipe.masked else OF_MASKS", "()"),
    ("run_all", "one_line(str(error))", "str(error)"),
    ("_columns", "if not printed_texts or recipe", "if recipe"),
    ("_columns", "not printed_texts or ", "True or ", f"{ALL}::test_texts_that_the_papers_do_not_print"),
    ("_check_names", "if name not in known", "if False", f"{ALL}::test_columns_that_no_recipe_has"),
)
of(
    "papers.page",
    f"{ALL}::test_nothing_in_a_reason_is_taken_for_the_page",
    ("as_html", "escape(reason)", "reason"),
    ("as_markdown", "unmarked(reason)", "reason"),
    ("_table", "escape(title)", "title"),
    ("_table", "escape(c.text)}</b>", "c.text}</b>"),
    ("as_markdown", 'f"#{line}" if', "line if", f"{ALL}::test_one_page_of_what_can_be_run"),
)
of(
    "papers.recipe",
    f"{ALL}::test_recipes_of_the_same_data_share_a_journal",
    ("Column.journal", "{self.data} {self.folder}", "{self.label}"),
    (
        "Column.of_pairs",
        '.get("text"), tuple)',
        '.get("text"), str)',
        f"{RECIPES}::test_pairs_have_metrics_of_their_own",
    ),
)
of(
    "attention_heads.statistics",
    f"{COUNTED_HEADS}::test_limits_and_options",
    (
        "HeadSearch.__post_init__",
        "self.direction not in DIRECTION_CHOICES",
        "False",
        f"{OF_HEADS}::test_treebanks_that_are_not_needed",
    ),
    ("HeadSearch.__post_init__", "self.pieces not in get_args(Pieces)", "False"),
    ("", '"first", special_tokens=True)', '"first")', f"{OF_HEADS}::test_parsed_texts_give_both_kinds"),
)
of(
    "attention_heads.strongest",
    f"{COUNTED_HEADS}::test_as_many_texts_as_heads_or_units",
    ("attention_maps", "if not isinstance(error.__cause__, _NothingKept):", "if True:"),
)
of(
    "methods.gradient",
    f"{DERIVED}::test_sums_of_gradients_that_layer_norms_cancel_are_refused",
    ("_over_width", 'bool((largest < CANCELLED["token_embeddings"] * size).any())', "False"),
)
of(
    "metrics.idf",
    f"{FREQUENCIES}::test_smoothed_weights_keep_such_words",
    (
        "rarity",
        "math.log(documents / count)",
        "math.log((1 + documents) / (1 + count))",
        f"{FREQUENCIES}::test_a_word_that_stands_everywhere_weighs_nothing",
    ),
    ("rarity", "/ (1 + count)) + 1 if", "/ (1 + count)) if"),
    ("Idf.of", "rarity(count, documents, smooth=smooth)", "rarity(count, documents)"),
    ("Idf.read", "smooth and documents is not None", "smooth"),
)
of(
    "metrics.overlap",
    "metrics/test_left_out.py",
    ("_tokens", "if unit.special:", "if False:"),
    ("Counting.provenance", "{} if self == Counting() else ", "", "cli/test_cli_tokens.py"),
)
of(
    "metrics.plausibility",
    f"{METRICS}::test_evidence_that_the_model_never_saw_is_missed",
    ("token_f1", "or not rationale.evidence", ""),
    (
        "precision_at_k",
        "annotation.answer_length or len(answer)",
        "len(answer)",
        f"{WINDOWS}::test_answers_outside_the_window_are_missed",
    ),
)
of(
    "papers.class_texts",
    f"{RECIPES}::test_a_text_of_each_class_stands_in",
    ("EachClass.texts", "if all(len(texts)", "if any(len(texts)"),
    (
        "EachClass.texts",
        "if not chosen:",
        "if False:",
        f"{RECIPES}::test_a_class_without_a_text_is_named_and_none_at_all_is_left_out",
    ),
)

# Images
IMAGES = "metrics/test_image_metrics.py"
IMAGE_DATA = "evaluation/test_image_data.py"
of(
    "metrics.perturbation",
    IMAGES,
    ("_ranks", "descending=not lowest_first", "descending=lowest_first"),
    ("_lowest", "turns < _floor", "turns <= _floor"),
    ("_perturbed", "area_weights(at, normalised)", "area_weights(at)"),
    ("_perturbed", "case.right", "case.chosen(deletion.target).tolist()"),
    ("deletion_accuracy", "patches[n:]", "patches[:n]"),
    ("deletion_accuracy", "1 - right if", "right if"),
    ("_followed", "revealing=revealing", "revealing=False"),
)
of(
    "metrics.segmentation",
    IMAGES,
    ("pixel_accuracy", "(mask == 1))[labelled]", "(mask == 1))"),
    ("mean_iou", "(~foreground, ~marked), ", ""),
    ("mean_average_precision", "np.concatenate((1 - scaled, scaled))", "np.concatenate((scaled, scaled))"),
    ("pointing_game", "tolerance**2", "tolerance"),
    ("pointing_game", "-np.inf", "np.inf"),
    ("share_of_right_pixels", "/ labelled if", "/ len(records) if"),
)
of(
    "metrics.case",
    IMAGES,
    ("Case._scored", "if PIXELS in made.diagnostics", "if False"),
    ("Case.best", "order[::-1]", "order"),
    ("Case.without_pixels", '"mean" if hide == "delete" else hide', '"mean"'),
)
of(
    "inputs.images",
    IMAGES,
    ("_covered", "torch.arange(7, -1, -1", "torch.arange(0, 8, 1"),
    ("upsampled", 'mode="bilinear", align_corners=False', 'mode="nearest"'),
    ("upsampled", "(bottom - top, right - left)", "size", "inputs/test_images.py"),
    ("Patches.cells", "min(CELLS, count)", "min(4, count)"),
    (
        "ImageInput.place_name",
        "WHOLE if self.picture is None else self.picture.region",
        "WHOLE",
        "contract/test_checked.py",
    ),
    ("ImageInput.kind", "int((~self.gone).sum())", "0"),
)
of("perturb.search", IMAGES, ("best_orders", "-1 if keeping else 1", "1"), ("best_orders", "if forgetting", "if False"))
of("perturb.dropping", IMAGES, ("_Dropping._enter", "number != self.first", "number != self.first + 1"))
of("methods.centre", IMAGES, ("centre", "2 * width**2", "width**2"), ("centre", "/ across - 0.5", "/ across - 0.4"))
of(
    "evaluation.examples",
    IMAGE_DATA,
    ("seen_mask", "left * width, top * height", "0, 0"),
    ("_image_item", "[example.content, gold,", "[gold,"),
    ("Item.__getstate__", '"encoded": None, ', ""),
    ("batches", "tuple(item.encoded.pixels.shape)", "()"),
)
of("evaluation.references", IMAGE_DATA, ("Way.of", '"cell", "max"', '"token", "max"'))

PICTURES = "inputs/test_pictures.py"
DATA_OF_IMAGES = "datasets/test_images.py"
of(
    "inputs.pictures",
    PICTURES,
    ("_upright", "image if turn is None else image.transpose(turn)", "image"),
    ("", "6: Image.Transpose.ROTATE_270", "6: Image.Transpose.ROTATE_90"),
    ("open_picture", "picture.info = {}", "pass"),
    ("_rgb", "image.has_transparency_data", "image.mode == 'RGBA'"),
    ("_rgb", '"white"', '"black"'),
    ("_rgb", "else image.copy()", "else image"),
    ("_of_16_bits", "(numbers * 255 + DEEPEST // 2) // DEEPEST", "np.minimum(numbers, 255)"),
    ("_channels_last", "last in CHANNELS and first == 3", "False"),
    ("_warn_of_frames", "if image.format not in _STILL else 1", ""),
    ("open_mask", "// np.uint8(scale)", ""),
    ("_labels", "array.min() < 0 or array.max() > LABELS", "False"),
    ("is_picture", "value.dtype in (np.uint8, torch.uint8) and ", ""),
    ("stored_digest", "repr((numbers.shape, str(numbers.dtype))).encode() + numbers.tobytes()", "b''", DATA_OF_IMAGES),
)
of(
    "datasets.masks",
    DATA_OF_IMAGES,
    ("", "3: UNLABELLED", "3: BACKGROUND"),
    ("StoredMask.open", "labels == UNLABELLED, UNLABELLED", "labels == UNLABELLED, BACKGROUND"),
    ("StoredMask.open", "labels != BACKGROUND if self.category is None else", ""),
    ("StoredMask.digest", "':trimap' * self.trimap", "''"),
    ("Drawing.array", "not outline.crowd)", "outline.crowd)"),
    ("Drawing.array", "size if self.fractions else (1, 1)", "(1, 1)"),
    ("_filled", "at - 0.5", "at"),
    ("_filled", "+ 0.5", ""),
    ("_of_runs", ".reshape(width, height).T", ".reshape(height, width)"),
    ("drawing", "not in_pixels and ", ""),
    ("drawing", "category is None or category in _names(each)", "True"),
)
of(
    "datasets.columns",
    DATA_OF_IMAGES,
    ("_Finder._images", '"image" not in self.named and (text or tokens)', "False"),
    ("_Finder._images", '"trimap" in masks or ', ""),
    ("_Finder._text", '"image" in self.named or ', ""),
)
of("datasets.dataset", DATA_OF_IMAGES, ("Dataset.digest", "facts += (self.columns.images,)", "pass"))
of(
    "datasets.source",
    DATA_OF_IMAGES,
    ("DataFile.file", "inside(Path(self.where).parent, name)", "Path(self.where).parent / name"),
)
of("datasets.hub", DATA_OF_IMAGES, ("undecoded", '== "Image"', '== "None"'))
of("datasets.matlab", DATA_OF_IMAGES, ("Cell.array", "np.asarray(value).T", "np.asarray(value)"))
of(
    "datasets.image_folders",
    DATA_OF_IMAGES,
    ("ImageFolder.digest", ", (self.folder / path).stat().st_size", ""),
    ("_inside", 'entry.name.startswith(".")', "False"),
    ("_inside", "sorted(images), sorted(folders)", "images[::-1], folders[::-1]"),
)
of(
    "datasets.synsets",
    DATA_OF_IMAGES,
    ("Classes.label", ".count(name) == 1", ".count(name) > 0"),
    ("Classes.label", "len(labels) == len(numbers)", "labels"),
    ("Classes.beside", "if len(names) == ILSVRC else {}", ""),
    ("_by_number", "synsets[numbers[int(place[1]) - 1]]", "synsets[numbers[int(place[1]) % len(numbers)]]"),
)
SEEN = "contract/test_image_architectures.py"
GIVEN_IMAGES = "inputs/test_images.py"
of(
    "recorder.run",
    SEEN,
    ("_without_pooling", "attentions[kept - 1].size[0] == 1", "True"),
    ("_without_pooling", "not calls.holds_alone(kept - 1)", "False"),
)
of(
    "recorder.patches",
    f"{SEEN}::test_an_image_is_cut_into_few_cells_where_no_unit_goes_through_the_model",
    ("_joined", "if count % n == 0", "if True"),
    ("_joined", "-(-count // MOST_CELLS)", "1"),
)
of(
    "recorder.patches",
    GIVEN_IMAGES,
    ("_owners", "several |= there & away", "several |= there & False"),
    ("_owners", "owner[~seen] = NOWHERE", "pass"),
    ("_grid", "by_row.index(tops[place]), by_column.index(lefts[place])", "0, 0"),
)
of(
    "images.processing",
    f"{GIVEN_IMAGES}::test_the_region_is_what_the_model_sees",
    ("_region", "or is_plain(type(processor).__name__)", "or True"),
    ("_region", "(1 - width / kept[1]) / 2", "0"),
    ("_with_share", "cropped is None and short >= NOT_CROPPED", "False"),
    ("_with_share", "int(short / share)", "short"),
)
of(
    "images.processing",
    f"{SEEN}::test_patches_that_were_cut_before_have_no_place_in_an_image",
    ("_numbers", " and not isinstance(made, Mapping)", ""),
)
of(
    "models.processors",
    f"{GIVEN_IMAGES}::test_processors_that_do_more_are_refused",
    ("PlainProcessor.__init__", "unknown or not (kind is None or is_plain(str(kind)))", "unknown"),
)
of(
    "tasks.similarity",
    "contract/test_similarity.py",
    ("Side.embedded", " * width**-0.5", ""),
    ("Side.compared", " * model.logit_scale.exp()", ""),
    ("Side.compared", "None if bias is None else bias.expand(len(weight))", "None"),
    ("tokenizer_for", "not in FULL", "in ()"),
    ("OneSide.of", "multi_label=sigmoid", "multi_label=False"),
)
of(
    "explain.similarity",
    "contract/test_similarity.py",
    ("Similarities._check", "if not close(", "if False and not close("),
    ("Similarities.of", "self._by_text.against(", "(lambda _: None)("),
)
of(
    "images.reading",
    "contract/test_similarity.py::test_patches_are_found_once_for_a_model",
    ("patches_of", "model.model if isinstance(model, ImageSide) else model", "model"),
)
of(
    "show.overlay",
    SHOWN_IMAGES,
    ("heat_strengths", "if explanation.pixels is not None", "if False"),
    ("heat_strengths", "strengths(explanation, peak)", "strengths(explanation)"),
    ("layer", ">= 0", "<= 0"),
    ("layer", "np.minimum(1, np.abs(strength))", "np.abs(strength)"),
    ("blended", "DIMMED * grey", "grey.copy()"),
    ("enlarged", "longer <= TINY", "longer <= 0"),
    ("seen_part", "max(round(right * width), first[0] + 1)", "round(right * width)"),
    ("cells", "left + (right - left) * x / width", "x / width"),
)
of(
    "show.colours",
    SHOWN_IMAGES,
    ("strengths", "np.where(patches, visible, 0.0), peak)", "visible, peak)"),
    ("largest", "visible[_patches(explanation)]", "visible"),
)
of(
    "show.images",
    SHOWN_IMAGES,
    ("_Names.above", "row == 0 if", "True if"),
    ("_Names.above", "else not _shared(part, self.rows[row])", "else False"),
    ("image_grid", "if new[number] else None", "if True else None"),
    ("image_figure", 'scale or "row"', 'scale or "shared"'),
)
of(
    "show.image_html",
    SHOWN_IMAGES,
    ("image_card", "max(NARROWEST, width)", "width"),
    ("image_card", "max(1, TALLEST * width // height)", "width + NARROWEST"),
    ("_picture", "escape(alt)", "alt"),
    ("_shot", "two_sided(explanation)", "False"),
)
of(
    "show.preview",
    SHOWN_IMAGES,
    ("_shade", "FOR if strength > 0", "FOR if strength < 0"),
    ("_fitted", "round(2 * lines * wide)", "columns"),
    ("previews", "(width + GAP) // (wide + GAP)", "len(blocks)"),
    ("preview", "regions(explanation) if coloured else _seen_regions(explanation)", "regions(explanation)"),
    ("_write_numbers", "reversed(list(enumerate(frames)))", "enumerate(frames)"),
)
of(
    "cli.asking",
    OF_IMAGES,
    ("AskedFlags.check_images", "value or (value == 0 and value is not False)", "value"),
    ("AskedFlags.check_images", "len(images) > most", "len(images) > 2"),
    ("AskedFlags.explainer", "self.image and not takes", "False"),
    ("ShownFlags.save", "len(results) != 1", "not results"),
    ("ShownFlags.check", "if self.out is not None", "if False"),
)
of("cli.app", OF_IMAGES, ("Loading.explainer", '"pets" if images', '"sentiment" if images'))
of(
    "recorder.mode",
    SEEN,
    ("Recorder._instead", "if name == BATCH_NORM:", "if False:"),
    ("_settled_batch_norm", "- mean * factor", "- mean"),
)

RECIPES_OF_IMAGES = "evaluation/test_image_recipes.py"
of(
    "images.composing",
    RECIPES_OF_IMAGES,
    ("side_by_side", "width - width % 2", "width"),
    ("pairs_of", "and (second, first) not in pairs", ""),
)
USUAL_METHOD = "evaluation/test_usual.py"
of("methods.default", RECIPES_OF_IMAGES, ("usual_method", "and is_stacked(subject)", ""))
of(
    "methods.default",
    USUAL_METHOD,
    ("usual_method", 'subject.task == "classes" and', ""),
    ("usual_method", "if reads_in_one_stack(subject)", "if True"),
    ("usual_method_for", "if reads_in_one_stack_for(model, batch)", "if True"),
    ("usual_in_steps", "if usual in (AUTO, AUTO_OF_NEXT_TOKENS)", "if True"),
    ("with_options", "if (name, value) != (spec.of_option, USUAL)", ""),
)
of(
    "methods.stacks",
    USUAL_METHOD,
    ("reads_in_one_stack_for", "if model not in _STACKED", "if True"),
    ("reads_in_one_stack", "except WhyformerError", "except ZeroDivisionError"),
)
of("papers.sources", RECIPES_OF_IMAGES, ("given_data", 'one.partition("=")', 'one.rpartition("=")'))
of(
    "papers.image_figures",
    RECIPES_OF_IMAGES,
    ("TwoObjectFigure.images", "(classes[left], classes[right])", "(classes[left],)"),
)
of("papers.transformer_attribution", RECIPES_OF_IMAGES, ("_perturbation", "scale=100 / RANGE", "scale=100"))
of(
    "papers.recipe",
    RECIPES_OF_IMAGES,
    ("Reproduction.measures_of", "(m.columns or (column.label,))", "(column.label,)"),
)
LEANING = "evaluation/test_leaning.py"
WORD_PAGE = "show/test_leaning_page.py"
STRIKING = f"{LEANING}::test_what_is_to_be_looked_at"
of(
    "results.leaning",
    f"{LEANING}::test_words_are_counted_as_they_are_by_hand",
    ("LeaningSums._count", "abs(score) / whole", "score / whole"),
    ("LeaningSums._count", "1 / len(scores)", "1.0"),
    ("LeaningSums._count", "key=lambda k: abs(scores[k])", "key=lambda k: scores[k]"),
    ("LeaningSums._word", "(sums.share - sums.fair) * math", "sums.share * math"),
    ("LeaningSums._word", "math.log(sum(self.texts.values()) / sums.texts)", "1.0"),
    ("_most_first", "-word.reliance", "word.reliance"),
    (
        "LeaningSums._association",
        "base * (1 - base) / here",
        "base * (1 - base)",
        f"{LEANING}::test_labels_are_told_by_words",
    ),
    ("LeaningSums.add", "text.is_wrong or not self.wrong", "True", f"{LEANING}::test_wrong_predictions_only"),
    ("LeaningSums.add", "self.sides[word.part] if", "None if", f"{LEANING}::test_a_word_is_deleted_on_its_side"),
    ("LeaningSums.leaning", "or word.look", "", f"{LEANING}::test_a_word_that_is_striking_is_shown_whatever_its_place"),
    (
        "_sampled",
        "row * 2654435761 % 2**32",
        "row",
        f"{LEANING}::test_examples_are_a_sample_that_does_not_depend_on_the_order",
    ),
    ("is_striking", "max(LOOK_TEXTS, LOOK_PART", "max(0, LOOK_PART", STRIKING),
    ("is_striking", "LOOK_PART * texts[index]", "LOOK_PART * sum(texts.values())", STRIKING),
    ("is_striking", "word.share >= LOOK_SHARE and ", "", STRIKING),
    ("is_striking", " and word.lift >= LOOK_LIFT", "", STRIKING),
    ("is_striking", "large and tells and", "large and", STRIKING),
    ("is_striking", "word.effect.log_odds >= LITTLE", "word.effect.log_odds >= -LITTLE", STRIKING),
)
of(
    "evaluation.leaning",
    f"{LEANING}::test_effects_are_those_of_deleting_the_word",
    ("checked_words", "with_it - without", "without - with_it"),
    ("_places", "unit.text.lower() == word.word and ", ""),
    ("_places", "part in (None, unit.part)", "True", f"{LEANING}::test_a_word_is_deleted_on_its_side"),
    ("_questions", "[:texts]", "[:1]"),
)
of(
    "evaluation.tally",
    f"{LEANING}::test_wrong_predictions_only",
    ("_Tally._count", "not self.wrong or", "True or"),
    (
        "token_tables",
        "not check or tally.interrupted",
        "not check",
        f"{LEANING}::test_nothing_is_checked_after_an_interruption",
    ),
    (
        "_Golds.of",
        "self.unknown += label is None",
        "self.unknown += 0",
        f"{LEANING}::test_labels_that_cannot_be_used_are_counted",
    ),
)
of(
    "show.leaning_page",
    WORD_PAGE,
    ("_link", "if row in leaning.examples", "if True"),
    ("_cell", "{escape(text)}{more}", "{text}{more}"),
    ("_row", "effect.log_odds if effect", "-effect.log_odds if effect"),
)
of(
    "show.leaning",
    WORD_PAGE,
    ("effect_text", "abs(effect.log_odds) >= LITTLE", "True"),
    ("_numbers", "of.mean", "of.score"),
    ("rows_for_people", "- {NONE}", ""),
)

LOADED = "contract/test_loading_faults.py"
of("models.checkpoints", LOADED, ("Checkpoint.reached", "if self.is_cached:", "if not self.is_cached:"))
of(
    "models.loading",
    LOADED,
    ("_check_hub_id", 'if "/" not in name and', 'if "/" in name and'),
    ("_check_hub_id", " and not checkpoint.is_cached", ""),
    ("_models_beside", '"*/config.json"', '"*"'),
)
MODULES = "contract/test_any_module.py"
of(
    "inputs.tensors",
    MODULES,
    ("of_transformers", 'hasattr(unwrapped(model), "main_input_name")', "False"),
    ("_by_name", "_content(name, t) if name == taken[0] else name", "name"),
    ("_by_name", "len(inputs) > len(taken)", "len(inputs) > len(taken) + 1"),
)
of(
    "tasks.task",
    MODULES,
    ("call_of", "(first.POSITIONAL_ONLY, first.VAR_POSITIONAL)", "(first.VAR_POSITIONAL,)"),
    ("output_of", "isinstance(output, dict)", "False"),
    ("output_of", "output and classifies", "output"),
    ("arguments_of", "if not accepts(model, name)}", "}"),
)
of("explain.windows", "inputs/test_images.py", ("check_windows", "windows != Windows()", "windows.merge"))
CHECKED = "contract/test_checked.py"
of(
    "explain.checking",
    CHECKED,
    ("checked_run", "question.turn == number and question.other is None", "question.turn == number"),
    ("_strongest", "not picture and sum", "sum", f"{CHECKED} cli/test_images.py"),
    ("_strongest", "> LONGEST", "> LONGEST + 1"),
    ("_strongest", "-abs(_score(explanation, group[1]))", "-_score(explanation, group[1])"),
    ("_groups", " if tuple(places) in free", ""),
    ("_fallen", "whole.log_odds - without.log_odds", "without.log_odds - whole.log_odds"),
)
of(
    "perturb.effects",
    CHECKED,
    ("_outcomes", "odds if versus is None else", "odds if True else"),
    ("_outcomes", "odds.sigmoid()", "odds.exp()"),
    ("_run", "mask.bool()", "~mask.bool()"),
)
of("tasks.task", CHECKED, ("others_than", "-torch.inf", "0"))
of("tasks.answers", CHECKED, ("Answers.odds", "~outputs.attended[:, None]", "outputs.attended[:, None]"))
of("tasks.tokens", CHECKED, ("Tokens.odds", "chosen[:, 1]", "chosen[:, 1] * 0"))
of(
    "results.checked",
    CHECKED,
    ("Checked.agrees", "not self.signed or", ""),
    ("Checked.side", " or not self.signed", ""),
    ("Checked.joined", "if place in whose", "if place not in whose"),
    ("directions", "LITTLE_OF_SCORES * largest", "LITTLE_OF_SCORES"),
    ("directions", "abs(effect) < little", "effect < little"),
)

# What it will cost

of(
    "evaluation.ladder",
    f"{COST}::test_a_curve_without_negative_parts",
    ("extrapolated", "(0, 1, 2))", "(0, 1))"),
    ("extrapolated", "1: (2,)", "1: (0,)", f"{COST}::test_few_lengths_give_a_bound"),
    ("extrapolated", "2: (0, 2)", "2: (0, 1)", f"{COST}::test_few_lengths_give_a_bound"),
    (
        "_affordable",
        "2 * last.seconds",
        "last.seconds",
        f"{COST}::test_longer_texts_are_run_while_there_is_time_and_memory",
    ),
    (
        "_affordable",
        "longer**2 <= free",
        "longer <= free",
        f"{COST}::test_longer_texts_are_run_while_there_is_time_and_memory",
    ),
    (
        "Budget.begin",
        "max(0.0, end - time.perf_counter())",
        "end - time.perf_counter()",
        f"{COST}::test_time_that_is_left_over_is_for_the_next",
    ),
    ("steps_to", "units <= STEPS[-1]", "units < STEPS[-1]", f"{COST}::test_the_steps_to_a_length"),
)
of(
    "evaluation.cost",
    COST,
    (
        "_batch",
        "len(droppable) - surplus :",
        "len(droppable) - surplus + 1 :",
        f"{COST}::test_the_batch_has_as_many_tokens_as_are_asked_for",
    ),
    ("_backward", "hook.remove()", "pass", f"{COST}::test_the_model_is_given_back_as_it_was"),
)
of(
    "models.memory",
    MEMORY,
    ("_LiveStorages._count", "self.bytes -= size", "pass", f"{MEMORY}::test_live_storages_are_counted_and_let_go"),
    (
        "_LiveStorages._count",
        "address in self._known or",
        "",
        f"{MEMORY}::test_weights_and_inputs_are_not_counted_again",
    ),
    (
        "_left_by_groups",
        "(inner, *inner.parents)",
        "(inner,)",
        f"{MEMORY}::test_the_limit_of_a_control_group_counts_if_it_is_lower",
    ),
)
of(
    "recorder.memory",
    MEMORY,
    ("maps_estimate", "units**2", "units", f"{MEMORY}::test_maps_are_counted_by_the_configuration"),
    (
        "check_fits",
        "estimate > free",
        "estimate >= free",
        f"{MEMORY}::test_what_cannot_fit_is_an_error_with_numbers_and_advice",
    ),
)

# Rules that act while a model runs

HALVED = f"{RUNNING}::test_half_precision_ranks_units_no_worse_than_opened_attention"
MASKS = f"{RUNNING}::test_masks_windows_and_shared_keys"
REACH = f"{RUNNING}::test_reach"
SOME_POSITIONS = f"{RUNNING}::test_a_run_of_some_positions_says_nothing_of_others"
of(
    "recorder.lrp.running",
    MASKS,
    ("_Ratio.forward", "torch.promote_types(x.dtype, torch.float32)", "x.dtype", HALVED),
    ("_HeldNorm.forward", "ctx.dimensions = dimensions if centred else ()", "ctx.dimensions = ()"),
    ("_HeldNorm.forward", "(spread + eps).rsqrt()", "(spread + eps)", f"{RUNNING}::test_norms_of_torch"),
    ("_HeldNorm.forward", "if centred else square", "if not centred else square", f"{RUNNING}::test_norms_of_torch"),
    ("_HeldNorm.backward", "gradient * weight", "gradient"),
    ("_halved", "scaled(operand, 0.5)", "scaled(operand, 1.0)"),
    ("scaled", "if factor else x.detach()", "if factor else x"),
    ("", "rules.halved: (0.5, 0.5)", "rules.halved: (0.5, 1.0)"),
    ("Running.__init__", "self._map_share * _SHARES", "_SHARES"),
    ("Running.fused", "(self._score_share, self._score_share, self._value_share", "(self._value_share,) * 3 + (1.0"),
    ("Running.entered", "attention.detach().requires_grad_(attention.requires_grad)", "attention", AT_MAPS),
    ("Running.step", "scaled(operands[1], self._value_share)", "operands[1]", AT_MAPS),
    (
        "Running.step",
        "node_of_result(result).register_prehook(partial(self._at_bias, path, constants[-1], result.shape))",
        "result.register_hook(lambda g: self._at_bias(path, constants[-1], result.shape, (g,)))",
        AT_BIASES,
    ),
    ("Running._at_bias", "gradients[0].reshape(shape) * bias", "gradients[0].reshape(shape)", AT_BIASES),
    (
        "acts_while_running",
        'book.carries == "gradient" and plain and fused',
        'book.carries == "gradient" and fused',
        f"{RUNNING}::test_which_books_act_while_a_model_runs",
    ),
)
of(
    "recorder.lrp.merged",
    f"{RUNNING}::test_what_is_not_followed_is_explained_by_sites",
    ("RunningActivations._leave", "not alone or self.recorder.products != products", "not alone"),
)
of(
    "recorder.needs",
    f"{RUNNING}::test_what_a_run_records_for_several",
    ("Needs.opened", "self.maps or self.sites", "self.maps"),
    ("Needs.__or__", "self.last and other.last", "self.last or other.last"),
)
of(
    "recorder.run",
    REACH,
    ("_reach", "return reach, str(uncovered)", 'return "inputs", str(uncovered)'),
    ("recorded", "if not varies:", "if True:", f"{RUNNING}::test_a_model_that_calls_other_functions_at_each_input"),
    (
        "recorded",
        "known.get(signature) or _reach(trace, running)",
        "next(iter(known.values()), None) or _reach(trace, running)",
        f"{RUNNING}::test_a_run_that_calls_other_functions_is_looked_at_again",
    ),
    (
        "recorded_somehow",
        "Needs(sites=True, last=needs.last)",
        "Needs(last=needs.last)",
        f"{RUNNING}::test_what_is_not_followed_is_explained_by_sites",
    ),
    ("last_positions", ".flip(1).int().argmax(1)", ".int().argmax(1)", SOME_POSITIONS),
)
of(
    "recorder.trace",
    REACH,
    ("Trace._balanced", 'below and self.reach != "inputs"', "False"),
    ("Trace.relevance", " carried = tuple(t.detach() * g for", " carried = tuple(g for"),
    ("Trace._balanced", "self.at_biases.clear()", "pass", AT_BIASES),
    (
        "Trace._balanced",
        "not self.once or self.outputs.task.in_parts",
        "not self.once",
        f"{RUNNING}::test_an_answer_is_explained_in_parts_by_one_run",
    ),
    ("Trace._balanced", "self.spent = not keep", "self.spent = False", FREED),
)
of(
    "recorder.runs",
    FREED,
    ("Runs._unspent", "for trace in self.traces if not trace.spent", "for trace in self.traces"),
    ("Runs.under", "if t.book == book and", "if t.book is not None and"),
    (
        "Runs.tapped",
        "if self.needs.tap is not tap",
        "if True",
        f"{LOW}::test_of_maps_no_more_is_kept_than_what_is_made_of_them",
    ),
)
of(
    "methods.registry",
    f"{RUNNING}::test_methods_that_ask_where_the_head_reads_run_once",
    ("Method.needs", ' and self.passes == "one" and not self.maps', ' and self.passes == "one"'),
)
of("tasks.task", SOME_POSITIONS, ("Outputs.rows_at", "(kept[rows] != positions).any()", "False"))
of(
    "recorder.tail",
    f"{RUNNING}::test_scores_are_those_of_all_positions",
    ("Tail.of", "if trace.outputs.kept is not None", "if False"),
)
of(
    "explain.questions",
    f"{RUNNING}::test_explain_asks_for_the_ends_or_a_position",
    ("Questions.at_the_end", "not placed and not any", "not any"),
)
of(
    "recorder.taps",
    f"{DERIVED}::test_att_grads",
    ("positive_gradients", "gradient.clamp(min=0)", "gradient"),
    (
        "positive_products",
        "(gradient * attention).clamp(min=0)",
        "(gradient * attention).abs()",
        f"{GOLDEN}::test_class_specific_methods",
    ),
)
of(
    "prediction",
    f"{GOLDEN}::test_class_specific_methods",
    ("_weighted", "weight * relevance).clamp(min=0)", "weight * relevance)"),
    ("_weighted", "else weight * relevance", "else weight + relevance"),
    ("Prediction._in_turn", "maps.insert(0, ", "maps.append(", f"{IN_TURN}::test_methods_take_large_maps_in_turn"),
    ("Prediction._are_maps_large", "> LARGE_MAPS", "< LARGE_MAPS", f"{IN_TURN}::test_methods_take_large_maps_in_turn"),
)
of(
    "recorder.in_turn",
    f"{IN_TURN}::test_parts_of_a_pass_are_the_whole",
    ("parts_of", "or not between & marked <= allowed", "", f"{IN_TURN}::test_a_state_that_is_passed_by_makes_no_parts"),
    (
        "_through",
        "upper = (trace.hidden[layer], relevances[1], gradients[1])",
        "upper = (trace.hidden[layer], relevances[1], relevances[1])",
    ),
)
of(
    "recorder.recomputing",
    f"{LOW}::test_a_forward_that_somebody_exchanged_is_put_back",
    ("_put_back", "if forward is not None:", "if False:"),
    ("_put_back", 'del layer.__dict__["forward"]', "pass", f"{LOW}::test_the_model_is_given_back_as_it_was"),
    (
        "recomputed",
        "partial(_checkpointed, layer.forward, again)",
        "layer.forward",
        f"{LOW}::test_less_memory_is_taken",
    ),
)
of(
    "recorder.run",
    f"{LOW}::test_the_model_is_given_back_as_it_was",
    ("_again", "evaluating(model.modules()), ", ""),
    ("_again", "RunningActivations(repeated), ", "", f"{LOW}::test_scores_are_the_same"),
    (
        "recorded_somehow",
        "if needs.low:",
        "if False:",
        f"{LOW}::test_nothing_large_is_done_silently_where_rules_cannot_follow",
    ),
)
of(
    "recorder.needs",
    f"{LOW}::test_methods_that_need_maps_or_sites_refuse",
    ("Needs.within", "self.book is None or self.maps or self.sites", "self.book is None"),
)
CAPTURES = "contract/test_captures.py"
of(
    "models.state",
    f"{CAPTURES}::test_another_state_of_the_model_ends_a_capture",
    ("State.holds", "not all(map(is_, now.values(), then))", "False"),
    ("State.holds", "(then and not all(map(is_, _each(now), then)))", "False"),
    ("State.holds", "self._now() == (self._places, self._versions)", "True"),
    ("State.holds", "self._now() == (self._places, self._versions)", "self._now()[0] == self._places"),
    (
        "State.lies_still",
        "list(map(Tensor.data_ptr, self._tensors)) == self._places",
        "True",
        f"{CAPTURES}::test_a_state_holds_until_something_is_exchanged",
    ),
)
of(
    "recorder.captures",
    f"{CAPTURES}::test_a_run_is_brought_back_to_whoever_asks",
    ("Replay.turn", "if run.turn is not self._turn", "if run.turn is None"),
    ("Replay._outputs", "logits=logits.clone()", "logits=logits"),
    (
        "CapturedRun.__init__",
        "if ways_known(model, needs) > known",
        "if False",
        f"{CAPTURES}::test_a_model_that_goes_another_way_while_it_is_captured_is_run_once",
    ),
    (
        "_padded_length",
        "(known is not None and known.length_matters)",
        "False",
        f"{CAPTURES}::test_where_padding_matters_exact_lengths_are_captured",
    ),
    ("misfit", "if units > MOST_UNITS", "if False", f"{CAPTURES}::test_large_batches_are_left_alone"),
    (
        "misfit",
        "if ids is not None and unpadded and",
        "if False and",
        f"{CAPTURES}::test_a_model_without_a_padding_token_is_captured_text_by_text",
    ),
    ("make_room", "min(of, key", "max(of, key", f"{CAPTURES}::test_captures_hold_no_more_memory_than_they_may"),
    ("make_room", ".graphs.wait()", "", f"{CAPTURES}::test_captures_hold_no_more_memory_than_they_may"),
    ("release", "run.graphs.wait()", "pass", f"{CAPTURES}::test_captures_hold_no_more_memory_than_they_may"),
    ("needs_of_capture", ", last=False", "", f"{CAPTURES}::test_lengths_share_a_capture_and_padding_changes_nothing"),
)
of(
    "methods.replaying",
    f"{CAPTURES}::test_a_full_text_does_not_tell_what_padding_does",
    ("replayed", "not (known.padding_is_known or _is_full(replay))", "False"),
    ("_replayed", "known.target.copy_(target)", "pass", f"{CAPTURES}::test_targets_and_what_they_are_set_against"),
    ("_replayed", "known.versus.copy_(versus)", "pass", f"{CAPTURES}::test_targets_and_what_they_are_set_against"),
    (
        "_replayed",
        "raise_or_postpone(() if flags is None else flags.unbind(), known.errors)",
        "pass",
        f"{CAPTURES}::test_what_is_wrong_with_numbers_is_said_by_a_replay_too",
    ),
    (
        "_tried",
        "    raise_postponed()\n",
        "",
        f"{CAPTURES}::test_nothing_is_captured_of_numbers_that_are_wrong",
    ),
    (
        "_tried",
        "with at_once():",
        "if True:",
        f"{CAPTURES}::test_what_is_wrong_with_a_capture_is_not_wrong_with_what_was_done",
    ),
    (
        "_tried",
        "captures.refused[of_method] = str(error)",
        "pass",
        f"{CAPTURES}::test_what_cannot_be_captured_says_so_and_goes_on",
    ),
)
of(
    "recorder.lrp.sites",
    f"{IN_TURN}::test_of_large_maps_one_is_kept_for_each_layer",
    ("make_site", "and kind in SPARED", "and False"),
)
of(
    "perturb.runner",
    AHEAD,
    ("Runner._learn", "torch.isfinite(flight.outputs).all()", "True"),
    ("Runner._learn", "self._launched.difference_update(one.key for one in flight.inputs)", "pass"),
    ("Runner.advance", "while self._flights.has_room", "while True"),
    ("Runner._run_until_known", "any(key not in self._known for key in keys)", "self._waiting"),
    ("Runner._go_on", "            self._stop()\n", ""),
    ("Runner.advance", "begin and self.waiting", "self.waiting"),
    ("Runner._launching", "if key not in self._launched", "if True"),
    ("Runner._stop", "self._launched.clear()", "pass"),
    ("Runner._stop", "self._flights.forget()", "pass"),
    ("Runner._lies_still", "self._flights.join()", "pass"),
    ("Runner._launch", "        if aside:\n            self._lies_still()\n", ""),
)
of(
    "perturb.flights",
    AHEAD,
    ("Flights.arrived", "flight.landing.wait()", "pass"),
    ("Flights._may_fly", "count <= 2 * self._most:", "count <= self._most:"),
    ("Flights._may_fly", "count - 1", "count"),
    ("Flights._may_fly", " < self._enough", " < 10**9"),
    ("Flights._are_more_than", "not self._may_fly(count)", "count > self._most"),
    ("Flights.has_little", "max(1, self._little)", "1"),
    ("Flights.has_little", "max(1, self._little)", "self._little"),
)
of(
    "evaluation.chunk",
    AHEAD,
    ("measured_chunks", "if going and going[0].is_asked:", "if False:"),
    ("measured_chunks", "2 if plan.subject.device.type in AHEAD else 1", "1"),
    ("_advance", "run.advance(urgent=_have_little(going))", "pass"),
    ("ChunkRun.advance", "except Exception:", "except KeyError:"),
    ("ChunkRun.advance", "if self.has_failed:", "if False:"),
    ("ChunkRun.advance", "not self.is_asking or ", ""),
    ("ChunkRun.advance", "urgent and ", ""),
    ("ChunkRun.advance", "self.outcomes.waiting >= MANY", "True"),
    ("ChunkRun.advance", "self.outcomes.waiting >= MANY or ", ""),
    ("ChunkRun.advance", " or self.outcomes.waiting_tokens >= MUCH", ""),
    ("ChunkRun.advance", "self.has_left_over or ", ""),
    ("ChunkRun.advance", "self.has_left_over &= not begin", "pass"),
    ("ChunkRun._ask_about", "if not self.batches_to_load and self.meanwhile():", "if False:"),
    ("ChunkRun.measure", "self.outcomes.forget()", "pass"),
    (
        "ChunkRun.measure",
        "        for call in self.waiting:",
        "        self.outcomes.run()\n        for call in self.waiting:",
    ),
)
of(
    "models.memory",
    AHEAD,
    ("uncollected", "not _PAUSED.count and ", ""),
    ("collect_now", "2 if is_late else 1", "1"),
    ("collect_now", "gc.get_count()[0] > MUCH", "True"),
    ("collect_now", "not _PAUSED.count or ", ""),
    ("collect_now", " or not _PAUSED.collecting", ""),
)
of(
    "evaluation.plan",
    AHEAD,
    ("Plan.know_facts_soon", "thread.join()", "pass"),
    ("Plan._made_facts", "with_weights(self._shape, self.subject.model, ended)", "self.subject.fingerprint"),
    ("Plan._known_facts", "with _HASHING:  # by one thread", "if True:"),
)
of(
    "evaluation.journal",
    "evaluation/test_journal.py",
    ("Journal.open", "callable(run) and not is_there", "False"),
    ("Journal._make", "self._begin = None", "pass"),
    ("Journal.close", "self._descriptor = self._begin = None", "self._descriptor = None"),
    ("Journal.chunks", "() if self._begin else ", ""),
)
READING = "contract/test_reading.py"
of(
    "perturb.reading",
    f"{READING}::test_who_reads_the_first_position {READING}::test_texts_of_one_token_do_not_tell",
    (
        "FirstAlone._left_of",
        "states[:, :1]",
        "states",
        f"{READING}::test_one_position_is_computed_once_that_was_checked",
    ),
    ("FirstAlone.__torch_function__", "self._left -= 1", "self._left = 0"),
    (
        "_checked",
        "is_read_alone and first.is_narrow",
        "is_read_alone",
        f"{READING}::test_a_model_that_does_nothing_behind_its_attention_is_left_alone",
    ),
    (
        "OthersSpoilt._left_of",
        "torch.nan",
        "1.0",
        f"{READING}::test_a_head_that_reads_others_is_noticed_by_no_tolerance",
    ),
    (
        "attentions_before_reading",
        "except torch.OutOfMemoryError:",
        "except KeyError:",
        f"{READING}::test_short_memory_is_no_answer",
    ),
    (
        "_checked",
        "except Exception:",
        "except KeyError:",
        f"{READING}::test_a_head_that_refuses_the_check_is_run_as_before",
    ),
    (
        "attentions_before_reading",
        " or longest > known.longest",
        "",
        f"{READING}::test_longer_inputs_are_looked_at_again",
    ),
    (
        "attentions_before_reading",
        " or not known.state.holds()",
        "",
        f"{READING}::test_a_head_that_reads_all_positions_is_noticed_when_it_is_put_in",
    ),
)
of(
    "perturb.runner",
    READING,
    (
        "Runner.__init__",
        "reuse and kept is None",
        "reuse",
        f"{READING}::test_what_is_said_at_positions_is_not_narrowed",
    ),
    ("Runner._launching", "total >= MANY", "True", f"{READING}::test_few_inputs_are_not_worth_a_look"),
    (
        "Runner._look_where_the_head_reads",
        " <= self.budget",
        " <= 10**9",
        f"{READING}::test_the_check_keeps_to_the_budget",
    ),
    (
        "Runner._look_where_the_head_reads",
        "not self._speaks_once or ",
        "",
        f"{READING}::test_what_is_said_at_positions_is_not_narrowed",
    ),
    (
        "Runner._outputs",
        "batch.prefix or is_longer",
        "batch.prefix",
        f"{READING}::test_longer_inputs_are_looked_at_again",
    ),
    (
        "Runner._logits_in",
        "said[0].flatten(1)",
        "said[0].flatten(1)[:, :1]",
        f"{READING}::test_the_answer_does_not_depend_on_what_of_the_outputs_is_kept",
    ),
)
HIDING_MANY = "inputs/test_hiding_many.py"
of(
    "inputs.input",
    HIDING_MANY,
    ("TensorInput._left", '(arrays["attention_mask"] != 0)', "True"),
    ("TensorInput._left", "[: end - start]", "[start:end]"),
    ("TensorInput._filled", "attended or of_one.any()", "True"),
    ("TensorInput.without_each", "else self", "else None"),
)
of("perturb.runner", HIDING_MANY, ("Runner.without", "self._made[whole.key, hide]", "self._made[whole.key, None]"))
HABITS = f"{CAPTURES}::test_the_same_question_is_begun_before_its_batch_is_looked_at"
of(
    "recorder.captures",
    f"{CAPTURES}::test_what_is_wrong_with_a_batch_is_said_as_before",
    ("_have_rows", "int(end.min) >= 0 and ", ""),
    ("_have_rows", " and int(end.max) < count", ""),
    (
        "begun",
        " or not captures.state.lies_still()",
        "",
        f"{CAPTURES}::test_weights_that_moved_are_not_replayed_at_all",
    ),
    ("begun", "habit = asked,", "habit = None,", f"{CAPTURES}::test_other_questions_have_habits_of_their_own"),
    (
        "Captures.know_habit",
        "if len(self.habits) >= REMEMBERED:",
        "if False:",
        f"{CAPTURES}::test_habits_are_not_remembered_for_ever",
    ),
    ("Captures.know_habit", "self.habits[habit] = key", "pass", HABITS),
    ("replay_of", "begun.taken_by(run)", "begun.replay", f"{CAPTURES}::test_other_surroundings_take_another_run"),
    (
        "replay_of",
        "replay = begun.taken_by(run)",
        "replay = None",
        f"{CAPTURES}::test_a_replay_that_was_begun_is_the_only_one",
    ),
)
CHECKS = "contract/test_checks.py"
of(
    "checks",
    CHECKS,
    ("gathered", "raise_or_postpone(checks.flags, checks.errors)", "pass"),
    ("at_once", "_POSTPONED.set(None)", "_POSTPONED.set(_POSTPONED.get())"),
    ("postponed", "_POSTPONED.reset(before)", "pass"),
    ("raise_postponed", "later.make()", "pass"),
)
of(
    "recorder.masking",
    "contract/test_masking.py",
    ("masks", "_NEEDED.reset(before)", "pass"),
    ("_Exchanged.end", "if not self.tellers:", "if False:"),
    ("_Exchanged.end", "if not self.tellers:", "if True:"),
    ("_Exchanged.is_tracing", "needed is not None and needed is (mask is not None)", "needed is not None"),
    ("_Exchanged.texts_in_rows", "None if _NEEDED.get() is False else ", ""),
)
of(
    "recorder.captures",
    f"{CAPTURES}::test_many_texts_are_captured_once_that_pays",
    ("is_seen_often", "len(content) > 1 and ", ""),
)
MASKS = "contract/test_masking.py::test_runs_of_padded_texts_do_not_look"
of("recorder.runs", MASKS, ("Runs._record", "masks(needed=self.padded or None)", "masks(needed=None)"))
of("perturb.runner", MASKS, ("Runner._call", "masks(needed=self._needs_masks(batch))", "masks(needed=None)"))
TOLD = "contract/test_masking.py::test_an_engine_that_runs_ahead_tells_whether_anything_is_masked"
of(
    "perturb.runner",
    f"{TOLD} contract/test_masking.py::test_positions_of_its_own_are_left_to_transformers",
    ("Runner._needs_masks", "not self._flights.run_ahead or ", ""),
    ("Runner._needs_masks", "not bool(np.concatenate(own).all())", "False"),
    ("Runner._needs_masks", "has_others and not is_masked", "False"),
)
of(
    "recorder.masking",
    "contract/test_masking.py::test_a_mask_that_masks_nothing_is_not_looked_at",
    ("_ignores", "None if _NEEDED.get() is False else padding_mask", "padding_mask"),
)

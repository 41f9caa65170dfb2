"""All studies. Their limits are chosen so that one GPU measures all of them in about twelve minutes."""

from dataclasses import replace

from whyformer_papers.results.study import Study

OURS = ("layer_lrp", "attn_lrp", "cp_lrp")
ONE_PASS = (
    *("random", "raw_attention", "rollout", "grads", "att_grads", "cam", "grad_cam", "cat", "cat(states=inputs)"),
    *("attcat", "attcat(states=inputs)", "lrp", "partial_lrp", "transformer_attribution", "gae", "alti", *OURS),
    *("layer_lrp(depth=0.5)", "saliency", "input_x_gradient"),
)
HIDING = ("aopc", "log_odds", "comprehensiveness", "sufficiency")
FAITHFULNESS = (*HIDING, "kendall_tau")
PLAUSIBILITY = ("token_f1", "token_f1(window=inside)")  # evidence beyond the context length is missed, or left out

SIGNED = (
    *(*OURS, "lrp", "attcat", "attcat(states=inputs)", "cat(states=inputs)", "cam", "grads", "full_grad"),
    *("input_x_gradient", "integrated_gradients", "gradient_shap", "deep_lift_shap", "occlusion"),
)
SAMPLED = ("lime", "kernel_shap", "shapley_value_sampling")  # by far the slowest
SIGNS = ("sign_agreement", "sign_agreement(hide=mask)", "aopc")

STEPPED = ("layer_lrp", "attn_lrp", "cp_lrp", "attcat(states=inputs)")
STEPS = (3, 10)
IN_STEPS = (
    *("random", *STEPPED),
    *(f"stepwise(of={method}, steps={steps})" for method in STEPPED for steps in STEPS),
)
STEP_METRICS = ("aopc", "aopc(hide=mask)", "log_odds", "comprehensiveness", "sufficiency")

DECODED = (
    "decoded_grad_cam(layer=0, decode=false)",
    *(f"decoded_grad_cam(layer={layer}, lm_head={{lm_head}})" for layer in range(7)),
    *("saliency(protocol=allennlp)", "smooth_grad", "integrated_gradients(protocol=allennlp)", "occlusion"),
    *("integrated_gradients(steps=25, at=embedding_output)", "gradient_shap", "lime"),
    *("input_x_gradient(at=embedding_output)", "deep_lift_shap", "kernel_shap", "shapley_value_sampling"),
    *("attcat(states=inputs)", "attn_lrp", *(f"random(seed={seed})" for seed in range(5))),
)
GAMES = ("hiding_game", "revealing_game", "token_overlap(k=50)", "token_overlap(k=50, units=token, once=true)")

TREEBANK = "ud_en_ewt/en_ewt-ud-dev.conllu"
MASKED = (
    *("random", "transformer_attribution", "gae", "attn_lrp"),
    *(
        f"mask_lrp(head_mask={{heads}}{kind}, variant={variant})"
        for variant in ("paper", "authors")
        for kind in ("", ", only=positional", ", only=syntactic")
    ),
    *(
        f"mask_lrp(head_mask=random, rate={{rate}}, seed={seed}, variant={variant})"
        for variant in ("paper", "authors")
        for seed in range(5)
    ),
)
CORRUPTED = (
    *("transformer_attribution", "mask_lrp(head_mask={heads})"),
    *(
        f"mask_lrp(head_mask={{heads}}, corrupted={rate}, seed={seed})"
        for rate in (0.1, 0.2, 0.5, 0.8)
        for seed in range(3)
    ),
    "mask_lrp(head_mask={heads}, corrupted=1.0)",
)

OF_IMAGES = (
    *("random", "centre", "raw_attention", "rollout", "alti", "lrp", "partial_lrp", "grad_cam"),
    *("transformer_attribution", "gae", "grads", "att_grads", "cat(states=inputs)", "attcat(states=inputs)"),
    *("full_grad", "input_x_gradient", "saliency", "legrad", "gae(book=conservative)", "att_grads(book=conservative)"),
    *("attcat(states=inputs, book=conservative)", "full_grad(book=conservative)", "cat(states=inputs, book=attn)"),
    *("attcat(states=inputs, book=attn)", "full_grad(book=attn)", "cp_lrp", "attn_lrp", "cp_lrp(gamma=0.05)"),
    "attn_lrp(gamma=0.05)",
)
OF_MANY_PASSES = (
    *("random", "attn_lrp", "full_grad(book=attn)", "occlusion", "integrated_gradients(steps=50)"),
    *("integrated_gradients(steps=50, book=conservative)", "stepwise(of=attn_lrp, steps=3)"),
    "stepwise(of=attn_lrp, steps=10)",
)
SEGMENTATION = ("pixel_accuracy", "mean_average_precision", "mean_iou", "pointing_game")
DROPPING = ("deletion_accuracy", "deletion_accuracy(order=least)")
CURVES = ("deletion", "insertion")
PERTURBATION = (
    *("positive_perturbation", "negative_perturbation"),
    *("positive_perturbation(target=gold)", "negative_perturbation(target=gold)"),
)
TWO_IMAGES = (
    *("random", "centre", "raw_attention", "rollout", "lrp", "partial_lrp", "grad_cam", "transformer_attribution"),
    *("gae", "attcat(states=inputs)", "attcat(states=inputs, book=conservative)", "attcat(states=inputs, book=attn)"),
    *("full_grad(book=conservative)", "full_grad(book=attn)", "legrad", "cp_lrp", "attn_lrp"),
)

SST2 = Study(
    name="sst2",
    title="SST-2",
    model="sst2",
    bundled="sentiment",
    data="sst2",
    split="validation",
    methods=(*ONE_PASS, "attention_flow"),
    metrics=FAITHFULNESS,
    ceiling=50,
)
AG_NEWS = replace(SST2, name="ag_news", title="AG News", model="agnews", bundled=None, data="ag_news", split="test")
AG_NEWS = replace(AG_NEWS, methods=ONE_PASS)
IMDB = replace(AG_NEWS, name="imdb", title="IMDB", model="imdb", data="imdb", limit=100, sampled=True, ceiling=0)
YELP = replace(IMDB, name="yelp", title="Yelp", data="yelp_polarity", limit=200, sampled=False)
MNLI = replace(AG_NEWS, name="mnli", title="MNLI", model="nli", data="mnli", split="validation_matched")
QQP = replace(AG_NEWS, name="qqp", title="QQP", model="qqp", data="qqp", ceiling=0)
DISTILBERT = replace(
    SST2, name="distilbert", title="SST-2, DistilBERT", model="distilbert-sst2", bundled=None, methods=ONE_PASS
)
DISTILBERT = replace(DISTILBERT, ceiling=0)
MOVIES = replace(
    AG_NEWS,
    name="movies",
    title="Movie Reviews",
    model="imdb",
    data="eraser_movies",
    limit=199,
    ceiling=0,
    metrics=PLAUSIBILITY,
)
PETS = Study(
    name="pets",
    title="Pets",
    model="vit-pets",
    bundled="pets",
    data="pets",
    limit=100,
    methods=OF_IMAGES,
    metrics=(*SEGMENTATION, *DROPPING, *CURVES),
    options={"rows_per_chunk": 50},
)
TINY_IMAGENET = replace(
    PETS,
    name="tiny_imagenet",
    title="Tiny-ImageNet",
    model="vit-tiny-imagenet",
    bundled=None,
    data="tiny_imagenet",
    split="validation",
    limit=300,
    metrics=(*PERTURBATION, *DROPPING),
)


def _signs(study: Study, quantity: str, sampled: tuple[str, ...] = ()) -> Study:
    options = {"versus": "runner_up"} if quantity == "runner_up" else {"explains": quantity}
    return replace(
        study,
        name=f"signs-{study.name}-{quantity}",
        title=f"{study.title}: {quantity}",
        methods=(*SIGNED, *sampled),
        metrics=SIGNS,
        limit=100,
        ceiling=0,
        options=options,
    )


def _in_steps(study: Study, limit: int) -> Study:
    name, title = f"steps-{study.name}", f"{study.title}, in steps"
    return replace(study, name=name, title=title, methods=IN_STEPS, metrics=STEP_METRICS, limit=limit, ceiling=0)


def _decoded(study: Study, limit: int) -> Study:
    name, title = f"decoded-{study.name}", f"{study.title}, games"
    return replace(
        study, name=name, title=title, methods=DECODED, metrics=GAMES, limit=limit, ceiling=0, lm_head="base-mlm"
    )


def _masked(study: Study, limit: int) -> Study:
    name, title = f"masks-{study.name}", f"{study.title}, head masks"
    metrics = ("aopc", "log_odds")
    return replace(
        study, name=name, title=title, methods=MASKED, metrics=metrics, limit=limit, ceiling=0, treebank=TREEBANK
    )


def _many_passes(study: Study) -> Study:
    return replace(
        study,
        name=f"{study.name}-many",
        title=f"{study.title}, many passes",
        methods=OF_MANY_PASSES,
        limit=50,
        options={"rows_per_chunk": 10},
    )


_STUDIES = (
    *(SST2, AG_NEWS, IMDB, YELP, MNLI, QQP, DISTILBERT, MOVIES),
    *(_signs(study, "logit", SAMPLED) for study in (SST2, QQP)),
    *(_signs(study, "log_odds", SAMPLED) for study in (AG_NEWS, MNLI)),
    *(_signs(study, quantity) for study in (AG_NEWS, MNLI) for quantity in ("logit", "runner_up")),
    *(_in_steps(SST2, 200), _in_steps(AG_NEWS, 100), _in_steps(MNLI, 150), _in_steps(QQP, 150)),
    *(_in_steps(IMDB, 40), replace(_in_steps(MOVIES, 50), metrics=PLAUSIBILITY)),
    *(_decoded(SST2, 300), _decoded(AG_NEWS, 100)),
    *(_masked(SST2, 300), _masked(MNLI, 200), _masked(IMDB, 50)),
    replace(_masked(SST2, 300), name="masks-corrupted", title="SST-2, corrupted head masks", methods=CORRUPTED),
    *(PETS, TINY_IMAGENET, _many_passes(PETS), _many_passes(TINY_IMAGENET)),
    replace(
        PETS,
        name="two_pets",
        title="Two pets in one image",
        kind="two_images",
        limit=200,
        methods=TWO_IMAGES,
        metrics=(),
        options={},
    ),
)
STUDIES = {study.name: study for study in _STUDIES}

"""Whatever is wrong with a checkpoint is one named error, and no pickle is opened without leave."""

import json
import os
import shutil
import socket
import types
import warnings
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
import transformers as hf
from huggingface_hub.utils import logging as hub_logging
from safetensors.torch import load_file, save_file
from transformers.utils import logging

import whyformer
from tests.helpers import cases, families
from whyformer import BadInput, BadOption, Explainer, UnsupportedModel, WhyformerError
from whyformer.inputs.batch import batch_of
from whyformer.methods.logit_lens import head_for, load_head
from whyformer.models.load import Checkpoint, _check_attention, check_depth, labels_of, reading
from whyformer.perturb import Outcomes
from whyformer.prediction import Prediction
from whyformer.tasks.regression import is_regression

TEXT = "the film is a fine film"
INDEX = "model.safetensors.index.json"
HIDDEN = torch.zeros(1, 1, 32)


class Opened:
    """A pickle that leaves a trace when it is read without restrictions, and is refused when it is read with them."""

    def __reduce__(self) -> tuple[Any, tuple[str, int]]:
        return os.open, ("opened", os.O_CREAT)


@pytest.fixture(autouse=True)
def no_pickle(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[list[str]]:
    """Every call of torch.load, whatever it would have read."""
    calls: list[str] = []
    load = torch.load

    def noted(file: Any, *arguments: Any, **options: Any) -> Any:
        calls.append(str(file))
        return load(file, *arguments, **options)

    monkeypatch.setattr(torch, "load", noted)
    monkeypatch.chdir(tmp_path)
    yield calls
    assert not (tmp_path / "opened").exists()


def classifier(**changes: Any) -> Any:
    torch.manual_seed(0)
    tokenizer = cases.wordpiece()
    config = families.CONFIGS["bert"]()
    config.update({"vocab_size": len(tokenizer), "num_labels": 3, **changes})
    return hf.BertForSequenceClassification(config).eval()


@pytest.fixture(scope="module")
def good(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("models") / "good"
    classifier().save_pretrained(folder)
    cases.wordpiece().save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def language_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("heads") / "good"
    hf.BertForMaskedLM(families.CONFIGS["bert"]()).save_pretrained(folder)
    return folder


def configure(**changes: Any) -> Callable[[Path], None]:
    return rewrite("config.json", lambda config: {**config, **changes})


def rewrite(name: str, change: Callable[[Any], Any]) -> Callable[[Path], None]:
    def rewritten(folder: Path) -> None:
        path = folder / name
        path.write_text(json.dumps(change(json.loads(path.read_text()))))

    return rewritten


def indexed(folder: Path, shard: Any, file: Any = None) -> None:
    """The weights in one shard of that name, and an index that names it; a file of one byte stands beside."""
    weights = load_file(folder / "model.safetensors")
    (folder / "model.safetensors").unlink()
    (folder / "x.safetensors").write_text("x")
    if str(file or shard).endswith(".safetensors"):
        save_file(weights, folder / (file or shard), {"format": "pt"})
    else:
        torch.save(weights, folder / (file or shard))
    index = {"metadata": {}, "weight_map": dict.fromkeys(weights, shard)}
    (folder / INDEX).write_text(json.dumps(index))


def malicious(folder: Path, name: str) -> None:
    (folder / "model.safetensors").unlink(missing_ok=True)
    torch.save({"classifier.weight": Opened()}, folder / name)


def linked(folder: Path) -> None:
    indexed(folder, "shard.safetensors", "../away.safetensors")
    (folder / "shard.safetensors").symlink_to(folder.parent / "away.safetensors")


def explicit(name: str) -> Callable[[Path], None]:
    def named(folder: Path) -> None:
        configure(transformers_weights=name)(folder)
        malicious(folder, name) if name.endswith(".bin") else indexed(folder, "w.bin")
        if name.endswith("other.safetensors.index.json"):
            (folder / INDEX).rename(folder / name)

    return named


def adapted(folder: Path) -> None:
    (folder / "adapter_config.json").write_text(json.dumps({"base_model_name_or_path": "evil/base"}))
    torch.save({"x": Opened()}, folder / "adapter_model.bin")


def waiting(folder: Path) -> None:
    indexed(folder, "shard.safetensors")
    (folder / "shard.safetensors").unlink()
    os.mkfifo(folder / "shard.safetensors")


PICKLED: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a shard that is a pickle": (lambda f: indexed(f, "w.bin"), r"index\.json of .* names 'w\.bin' as weights: only"),
    "a shard outside": (lambda f: indexed(f, "../w.safetensors"), r"names '\.\./w\.safetensors' as weights"),
    "a shard at an absolute path": (
        lambda f: indexed(f, str(f.parent / "w.safetensors")),
        r"names '/.*w\.safetensors' as weights",
    ),
    "a shard beyond a backslash": (lambda f: indexed(f, "..\\w.safetensors"), "as weights: only safetensors"),
    "a shard in a folder below": (
        lambda f: ((f / "sub").mkdir(), indexed(f, "sub/w.safetensors")),
        "as weights: only safetensors",
    ),
    "a shard that is an index": (lambda f: indexed(f, INDEX, "w.bin"), "as weights: only safetensors"),
    "a shard that is no name": (lambda f: indexed(f, 5, "w.bin"), "names 5 as weights"),
    "a shard linked from outside": (linked, "lies outside"),
    "a shard that is a pipe": (waiting, "not a file"),
    "a shard that is not there": (lambda f: indexed(f, "gone.safetensors", "w.safetensors"), "no file 'gone.saf"),
    "an index without a map": (lambda f: (indexed(f, "w.bin"), (f / INDEX).write_text("{}")), "has no weight_map"),
    "an index of nothing": (
        lambda f: (indexed(f, "w.bin"), (f / INDEX).write_text('{"weight_map": {}}')),
        "has no weight_map",
    ),
    "an index that is a list": (lambda f: (indexed(f, "w.bin"), (f / INDEX).write_text("[]")), "has no weight_map"),
    "an index that is nested": (lambda f: (indexed(f, "w.bin"), (f / INDEX).write_text("[" * 10**5)), "not JSON"),
    "weights named in the configuration": (explicit("adapter_model.bin"), r"config\.json of .* 'adapter_model\.bin'"),
    "an index named in the configuration": (explicit("other.safetensors.index.json"), r"names 'w\.bin' as weights"),
    "an adapter": (adapted, r"holds an adapter .*merge it"),
}


@pytest.mark.parametrize("name", PICKLED)
def test_only_safetensors_of_the_folder_are_read(good: Path, tmp_path: Path, name: str, no_pickle: list[str]) -> None:
    spoil, message = PICKLED[name]
    folder = shutil.copytree(good, tmp_path / "model")
    spoil(folder)
    with pytest.raises(WhyformerError, match=message):
        Explainer.load(folder)
    assert not no_pickle


@pytest.mark.parametrize("name", PICKLED)
def test_lm_heads_are_read_in_the_same_way(
    language_model: Path, tmp_path: Path, name: str, no_pickle: list[str]
) -> None:
    spoil, message = PICKLED[name]
    folder = shutil.copytree(language_model, tmp_path / "model")
    spoil(folder)
    with pytest.raises(WhyformerError, match=message):
        load_head(folder)
    with pytest.raises(WhyformerError, match=message):  # as `decoded_grad_cam(lm_head=…)` asks, recorded or not
        head_for(classifier(), str(folder), HIDDEN)
    assert not no_pickle


def test_lm_heads_in_pickle_files_are_refused(language_model: Path, tmp_path: Path, no_pickle: list[str]) -> None:
    folder = shutil.copytree(language_model, tmp_path / "model")
    malicious(folder, "pytorch_model.bin")
    with pytest.raises(BadInput, match="no weights in safetensors"):
        load_head(folder)
    assert not no_pickle


def test_shards_that_are_safetensors_are_read(good: Path, tmp_path: Path) -> None:
    expected = load_file(good / "model.safetensors")
    folder = shutil.copytree(good, tmp_path / "model")
    indexed(folder, "shard.safetensors")
    found = Explainer.load(folder).subject.model.state_dict()
    assert all(torch.equal(found[name], weight) for name, weight in expected.items())


def test_weights_that_the_configuration_names_are_read(good: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(good, tmp_path / "model")
    (folder / "model.safetensors").rename(folder / "other.safetensors")
    configure(transformers_weights="other.safetensors")(folder)
    assert Explainer.load(folder).subject.labels == ("LABEL_0", "LABEL_1", "LABEL_2")


def test_a_linked_file_of_weights_is_read(good: Path, tmp_path: Path) -> None:
    """One that the user put there, not one that an index names."""
    folder = shutil.copytree(good, tmp_path / "model")
    (folder / "model.safetensors").rename(tmp_path / "elsewhere")
    (folder / "model.safetensors").symlink_to(tmp_path / "elsewhere")
    assert Explainer.load(folder).subject.task == "classes"


def test_an_index_beside_whole_weights_is_not_looked_at(good: Path, tmp_path: Path, no_pickle: list[str]) -> None:
    folder = shutil.copytree(good, tmp_path / "model")
    indexed(folder, "w.bin")
    shutil.copy(good / "model.safetensors", folder)
    assert Explainer.load(folder).subject.task == "classes"
    assert not no_pickle


def test_a_folder_is_of_the_hub_s_cache_only_where_blobs_lie(good: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(good, tmp_path / "snapshots" / "model")
    linked(folder)
    with pytest.raises(BadInput, match="lies outside"):
        Explainer.load(folder)
    elsewhere = Path(shutil.copytree(folder, tmp_path / "other" / "model", symlinks=True))
    (tmp_path / "blobs").mkdir()
    with pytest.raises(BadInput, match="lies outside"):
        Explainer.load(elsewhere)


def test_kernels_for_attention_are_left_to_those_who_trust(good: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(good, tmp_path / "model")
    configure(attn_implementation="evil/kernel")(folder)
    with pytest.raises(WhyformerError, match="could not load") as caught:
        Explainer.load(folder, trust_remote_code=True)
    assert "not run without" not in str(caught.value)


def test_code_beside_an_lm_head_is_neither_run_nor_asked_about(language_model: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(language_model, tmp_path / "model")
    configure(model_type="homemade", auto_map={"AutoConfig": "homemade.Config"})(folder)
    (folder / "homemade.py").write_text("raise SystemExit('the code was run')")
    with pytest.raises(UnsupportedModel, match=r"LM head of .* its own code, which is not run"):
        load_head(folder)


def test_depths_are_compared_with_the_number_of_weights() -> None:
    check_depth(hf.AlbertConfig(num_hidden_layers=12), 25, "shared")  # one layer's weights for all
    check_depth(hf.BartConfig(encoder_layers=9, decoder_layers=9), 9, "as many")
    for field, config in (
        ("num_hidden_layers", hf.BartConfig(encoder_layers=10, decoder_layers=9)),
        ("decoder_layers", hf.BartConfig(encoder_layers=9, decoder_layers=10)),
        ("num_decoder_layers", hf.T5Config(num_layers=9, num_decoder_layers=10)),
    ):
        with pytest.raises(UnsupportedModel, match=rf"weights of 'deep' are not complete: {field} is 10 .* hold 9 w"):
            check_depth(config, 9, "deep")


# The hub


COMMIT = "0123456789abcdef0123456789abcdef01234567"


def cached(folder: Path, cache: Path, name: str = "some/model") -> Path:
    """A folder as the hub's cache would hold it: links to blobs."""
    place = cache / f"models--{name.replace('/', '--')}"
    snapshot = place / "snapshots" / COMMIT
    for part in (place / "blobs", place / "refs", snapshot):
        part.mkdir(parents=True)
    (place / "refs" / "main").write_text(COMMIT)
    for number, file in enumerate(sorted(folder.iterdir())):
        shutil.copy(file, place / "blobs" / str(number))
        (snapshot / file.name).symlink_to(Path("../../blobs") / str(number))
    return snapshot


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    from huggingface_hub import constants

    monkeypatch.setattr(constants, "HF_HUB_CACHE", str(tmp_path / "hub"))
    return tmp_path / "hub"


def test_a_hub_id_in_the_cache_is_read_with_its_revision(good: Path, hub: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(good, tmp_path / "model")
    indexed(folder, "shard.safetensors")
    snapshot = cached(folder, hub)
    for found in (Explainer.load("some/model").subject, Explainer.load("some/model", revision=COMMIT).subject):
        assert (found.name, found.revision) == ("some/model", COMMIT)
        assert found.provenance["revision"] == COMMIT
    assert Explainer.load(snapshot).subject.task == "classes"  # the same as a folder, whose shard is a link


def test_an_lm_head_of_a_hub_id_in_the_cache(language_model: Path, hub: Path) -> None:
    snapshot = cached(language_model, hub)
    assert load_head("some/model").vocabulary == load_head(snapshot).vocabulary == families.VOCABULARY


@pytest.mark.parametrize("name", ["a shard that is a pickle", "a shard outside", "an adapter"])
def test_a_hub_id_whose_weights_are_not_safetensors(
    good: Path, language_model: Path, hub: Path, tmp_path: Path, name: str, no_pickle: list[str]
) -> None:
    spoil, message = PICKLED[name]
    for kind, folder in (("model", good), ("head", language_model)):
        spoiled = shutil.copytree(folder, tmp_path / kind)
        spoil(spoiled)
        cached(spoiled, hub, f"some/{kind}")
        with pytest.raises(UnsupportedModel, match=message):
            (Explainer.load if kind == "model" else load_head)(f"some/{kind}")
    assert not no_pickle


def test_a_hub_id_with_pickles_in_shards(good: Path, hub: Path, tmp_path: Path, no_pickle: list[str]) -> None:
    folder = shutil.copytree(good, tmp_path / "model")
    indexed(folder, "w.bin")
    (folder / INDEX).rename(folder / "pytorch_model.bin.index.json")
    cached(folder, hub)
    with pytest.raises(UnsupportedModel, match=r"only in pickle files \(pytorch_model\.bin\.index\.json\)"):
        Explainer.load("some/model")
    assert not no_pickle


def test_a_hub_id_with_pickles_only(good: Path, hub: Path, tmp_path: Path, no_pickle: list[str]) -> None:
    folder = shutil.copytree(good, tmp_path / "model")
    torch.save(load_file(folder / "model.safetensors"), folder / "pytorch_model.bin")
    (folder / "model.safetensors").unlink()
    cached(folder, hub)
    with pytest.raises(UnsupportedModel, match=r"only in pickle files \(pytorch_model\.bin\).*allow_pickle"):
        Explainer.load("some/model")
    assert not no_pickle
    assert Explainer.load("some/model", allow_pickle=True).subject.task == "classes"
    assert no_pickle


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("sentimnt", r"could not load 'sentimnt': there is no bundled model \(did you mean 'sentiment'\?"),
        ("some/model", r"load 'some/model': there is no bundled model or folder of that name, and on the hub:"),
        ("bert-base-uncased", r"known: pets, sentiment\) or folder of that name, and on the hub: it does not answer"),
        ("some/folder/model", r"or folder of that name, and models of the hub are written owner/name"),
        ("some model", r"or folder of that name, and models of the hub are written owner/name"),
    ],
)
def test_a_name_that_nobody_knows(name: str, message: str) -> None:
    with pytest.raises(BadInput, match=message) as caught:
        Explainer.load(name)
    assert "pickle" not in str(caught.value)


def test_a_folder_with_a_name_that_is_near_is_named(
    good: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(good, tmp_path / "models" / "sst2")
    (tmp_path / "models" / "sst").mkdir()  # without a model
    monkeypatch.chdir(tmp_path)
    with pytest.raises(BadInput, match=r"or folder \(did you mean 'models/sst2'\?\) of that name"):
        Explainer.load("models/sst1")


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[int]]:
    """A hub that hangs up at once; one number for each call."""
    from huggingface_hub import constants

    seen: list[int] = []
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = f"http://127.0.0.1:{server.getsockname()[1]}"

        def hang_up() -> None:
            with suppress(OSError):  # when the server is closed
                while True:
                    with server.accept()[0]:
                        seen.append(len(seen))

        Thread(target=hang_up, daemon=True).start()
        monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
        monkeypatch.setattr(constants, "ENDPOINT", place)
        monkeypatch.setattr(
            constants, "HUGGINGFACE_CO_URL_TEMPLATE", f"{place}/{{repo_id}}/resolve/{{revision}}/{{filename}}"
        )
        yield seen


@pytest.mark.parametrize("name", ["some/model", "bert-base-uncased"])
def test_a_hub_that_does_not_answer_is_asked_once(name: str, hub: Path, calls: list[int]) -> None:
    with pytest.raises(BadInput, match=r"on the hub: it does not answer \(\w+\), and its cache here does not hold"):
        Explainer.load(name)
    assert len(calls) == 1


@pytest.mark.parametrize("name", ["sentimnt", "Pet", "some/folder/model"])
def test_a_mistyped_name_is_answered_without_the_hub(name: str, hub: Path, calls: list[int]) -> None:
    with pytest.raises(BadInput, match="models of the hub are written owner/name"):
        Explainer.load(name)
    assert not calls


@pytest.mark.parametrize("name", ["some/model", "sentiments"])
def test_what_the_cache_holds_is_read_where_the_hub_does_not_answer(
    good: Path, hub: Path, calls: list[int], name: str
) -> None:
    cached(good, hub, name)
    assert Explainer.load(name).subject.revision == COMMIT
    assert len(calls) == 1


@pytest.mark.parametrize("name", [None, 5, b"sentiment", "", " ", "a\0b", "x" * 300, "x/" * 3000, "\ud800", Path("\0")])
def test_names_that_cannot_be_those_of_models(name: Any) -> None:
    with pytest.raises(BadInput) as caught:
        Explainer.load(name)
    assert len(str(caught.value)) < 500
    with pytest.raises(WhyformerError):
        head_for(classifier(), name or "\0", HIDDEN) if isinstance(name, str) else load_head(name)


# Failures of transformers


def pickled(content: Callable[[Path], Any]) -> Callable[[Path], None]:
    def change(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        content(folder / "pytorch_model.bin")

    return change


def exchanged(folder: Path) -> None:
    weights = load_file(folder / "model.safetensors")
    weights["classifier.weight"] = weights["classifier.weight"].T.contiguous()
    save_file(weights, folder / "model.safetensors", {"format": "pt"})


FAULTS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "a configuration of nothing": (lambda f: (f / "config.json").write_text("null"), r"config\.json' holds no fields"),
    "a configuration that is a list": (
        lambda f: (f / "config.json").write_text("[]"),
        r"config\.json' holds no fields",
    ),
    "a configuration in another encoding": (lambda f: (f / "config.json").write_bytes(b"\xff{}"), "it is not UTF-8"),
    "a configuration without end": (lambda f: (f / "config.json").write_text('{"a":' * 10**5), "nested too deeply"),
    "architectures of numbers": (configure(architectures=[5]), "holds 5; a sequence|Field 'architectures'"),
    "architectures as a string": (
        configure(architectures="BertModel"),
        "holds BertModel; a sequence|Field 'architectures'",
    ),
    "architectures that are true": (configure(architectures=True), "holds True; a sequence|Field 'architectures'"),
    "labels in a list": (configure(id2label=["A", "B", "C"]), "id2label .* each once; found a list"),
    "labels without numbers": (configure(id2label={"A": "A"}), "each once; found A: correct"),
    "labels from another number on": (configure(id2label={"1": "A", "2": "B", "3": "C"}), "each once; found 1, 2, 3"),
    "labels with a negative number": (configure(id2label={"-1": "A", "0": "B", "1": "C"}), "each once; found -1, 0, 1"),
    "labels with a gap": (configure(id2label={"0": "A", "5": "B", "1": "C"}), "each once; found 0, 5, 1"),
    "another number of labels": (
        configure(id2label={str(n): str(n) for n in range(5)}),
        r"classifier\.\w+ is \[3(, 32)?\] in the files, and \[5(, 32)?\] by config\.json",
    ),
    "a weight whose axes are exchanged": (exchanged, "its weights: they do not have the shapes that config.json asks"),
    "an empty tokenizer": (lambda f: (f / "tokenizer.json").write_text("{}"), "its tokenizer"),
    "a torn tokenizer": (lambda f: (f / "tokenizer.json").write_text("{"), "its tokenizer"),
    "a tokenizer that is a number": (lambda f: (f / "tokenizer.json").write_text("5"), "its tokenizer"),
    "a tokenizer's settings in a list": (lambda f: (f / "tokenizer_config.json").write_text("[]"), "its tokenizer"),
    "a tokenizer of inputs that are no names": (
        rewrite("tokenizer_config.json", lambda settings: {**settings, "model_input_names": True}),
        "its tokenizer",
    ),
    "a tokenizer that panics": (
        rewrite("tokenizer.json", lambda content: without_separator(content)),
        "its tokenizer: PanicException no entry found",
    ),
    "a vocabulary without unknown words": (
        rewrite("tokenizer.json", lambda content: without_unknown(content)),
        r"its tokenizer: .*Missing \[UNK\] token",
    ),
    "an activation that is not known": (configure(hidden_act="nope"), "config.json describes: KeyError 'nope'"),
    "a dtype that is not known": (configure(dtype="nope"), "nope"),
    "a dtype of eight bits": (
        configure(dtype="float8_e4m3fn"),
        "is in float8_e4m3fn, in which nothing is explained: give dtype=float32",
    ),
    "a dtype of whole numbers": (configure(dtype="int8"), "is in int8, in which"),
    "no heads": (configure(num_attention_heads=0), "config.json describes: ZeroDivisionError"),
    "a size that is a word": (configure(hidden_size="big"), "hidden_size"),
    "a size that is negative": (configure(hidden_size=-32), "config.json describes: .*-32"),
    "a size beyond all memory": (configure(hidden_size=2**40), r"by config\.json|could not load"),
    "a vocabulary beyond all memory": (configure(vocab_size=2**33), r"\[8589934592, 32\] by config\.json"),
    "positions beyond all memory": (configure(max_position_embeddings=2**33), r"8589934592, 32\] by config\.json"),
    "layers without end": (configure(num_hidden_layers=20_000), r"not complete: num_hidden_layers is 20000 .* \d\d w"),
    "layers that are not there": (configure(num_hidden_layers=3), "not complete: .*layer.2.* would be random"),
    "quantised for a package": (
        configure(quantization_config={"quant_method": "bitsandbytes", "load_in_8bit": True}),
        "could not load",
    ),
    "attention from the hub": (
        configure(attn_implementation="evil/kernel"),
        "'evil/kernel', code from the hub, which is not run without trust_remote_code",
    ),
    "attention that is not known": (configure(attn_implementation="nope"), "nope"),
    "weights of one byte": (lambda f: (f / "model.safetensors").write_bytes(b"x"), "its weights"),
    "weights with a torn header": (
        lambda f: (f / "model.safetensors").write_bytes((f / "model.safetensors").read_bytes()[:100]),
        "its weights",
    ),
    "weights that are a folder": (
        lambda f: ((f / "model.safetensors").unlink(), (f / "model.safetensors").mkdir()),
        "has no weights",
    ),
    "a pickle that runs code": (
        pickled(lambda p: malicious(p.parent, p.name)),
        "other things than weights, which are not read",
    ),
    "a broken pickle": (pickled(lambda p: p.write_bytes(b"broken")), "its weights"),
    "an empty pickle": (pickled(lambda p: p.write_bytes(b"")), "its weights"),
    "a pickle of no weights": (pickled(lambda p: torch.save([1], p)), "its weights"),
}


def without_separator(content: Any) -> Any:
    del content["post_processor"]["special_tokens"]["[SEP]"]
    return content


def without_unknown(content: Any) -> Any:
    content["added_tokens"] = [token for token in content["added_tokens"] if token["content"] != "[UNK]"]
    del content["model"]["vocab"]["[UNK]"]
    return content


@pytest.mark.parametrize("name", FAULTS)
def test_what_transformers_cannot_load_is_one_named_error(good: Path, tmp_path: Path, name: str) -> None:
    spoil, message = FAULTS[name]
    folder = shutil.copytree(good, tmp_path / "model")
    spoil(folder)
    with pytest.raises(WhyformerError, match=message) as caught:
        Explainer.load(folder, allow_pickle="pickle" in name)
    text = str(caught.value)
    assert str(folder) in text or "id2label" in text
    assert len(text) < 700
    assert "\n" not in text
    assert "above report" not in text


HEADS: dict[str, Callable[[Path], Any]] = {
    "a configuration of nothing": FAULTS["a configuration of nothing"][0],
    "an activation that is not known": FAULTS["an activation that is not known"][0],
    "no heads": FAULTS["no heads"][0],
    "layers without end": FAULTS["layers without end"][0],
    "a torn file": FAULTS["weights with a torn header"][0],
    "another width": configure(hidden_size=16),
}


@pytest.mark.parametrize("name", HEADS)
def test_what_transformers_cannot_load_of_an_lm_head(language_model: Path, tmp_path: Path, name: str) -> None:
    folder = shutil.copytree(language_model, tmp_path / "model")
    HEADS[name](folder)
    with pytest.raises(WhyformerError, match=r"LM head|not complete"):
        load_head(folder)


@pytest.mark.parametrize(
    "about", ["", "{", "[]", "{}", '{"model_type": "nope"}', '{"model_type": "bert", "layers": 1}']
)
def test_an_lm_head_that_says_nonsense_about_itself(language_model: Path, tmp_path: Path, about: str) -> None:
    weights = load_file(language_model / "model.safetensors")
    save_file(weights, tmp_path / "head.safetensors", {"format": "pt", "config": about})
    with pytest.raises(WhyformerError, match="LM head"):
        load_head(tmp_path / "head.safetensors")


def test_an_lm_head_of_layers_without_end(language_model: Path, tmp_path: Path) -> None:
    about = json.dumps({"model_type": "bert", "num_hidden_layers": 20_000})
    save_file(load_file(language_model / "model.safetensors"), tmp_path / "x", {"format": "pt", "config": about})
    with pytest.raises(UnsupportedModel, match="num_hidden_layers is 20000"):
        load_head(tmp_path / "x")


def test_a_broken_tokenizer_beside_an_lm_head_is_said(language_model: Path, tmp_path: Path) -> None:
    """Without it nobody could tell whether the head means the same tokens."""
    folder = shutil.copytree(language_model, tmp_path / "model")
    assert head_for(classifier(vocab_size=60), str(folder), HIDDEN).width == 32
    (folder / "tokenizer.json").write_text("{}")
    with pytest.raises(BadInput, match=r"could not compare the tokens of .*: its tokenizer"):
        head_for(classifier(vocab_size=60), str(folder), HIDDEN)


# Options


@pytest.mark.parametrize("device", ["meta", "nonsense", "cuda:99", "cpu:x", "hpu", "vulkan", "", object(), 1.5])
def test_devices_that_cannot_be_used(good: Path, device: Any) -> None:
    with pytest.raises(BadOption, match="cannot be used"):
        Explainer.load(good, device=device)


@pytest.mark.parametrize("dtype", ["float8_e4m3fn", "int8", "nope", "", 5, torch.int8, torch.float8_e5m2])
def test_dtypes_in_which_nothing_is_explained(good: Path, dtype: Any) -> None:
    with pytest.raises(BadOption, match="is not known; use float64"):
        Explainer.load(good, dtype=dtype)


@pytest.mark.parametrize("dtype", ["float64", torch.float16])
def test_dtypes_in_which_models_are_explained(good: Path, dtype: Any) -> None:
    assert str(Explainer.load(good, dtype=dtype).subject.model.dtype).endswith(str(dtype).removeprefix("torch."))


def test_another_dtype_than_that_of_the_configuration(good: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(good, tmp_path / "model")
    configure(dtype="float8_e4m3fn")(folder)
    assert Explainer.load(folder, dtype="float32").subject.model.dtype == torch.float32


def test_a_folder_has_no_revision(good: Path) -> None:
    assert Explainer.load(good, revision="v1").subject.revision is None


def test_kernels_are_looked_for_in_the_text_s_configuration_too() -> None:
    text = types.SimpleNamespace(_attn_implementation="evil/kernel")
    config = types.SimpleNamespace(_attn_implementation="sdpa", get_text_config=lambda: text)
    with pytest.raises(UnsupportedModel, match="'evil/kernel'"):
        _check_attention(Checkpoint("name", local=True), config, trusted=False)


# Silence


def test_long_reasons_are_cut_and_warnings_are_not_shown() -> None:
    with reading("task"):
        warnings.warn("nobody hears this", FutureWarning, stacklevel=1)
    with pytest.raises(BadInput) as caught, reading("task"):
        raise ValueError("x" * 1000)
    assert str(caught.value) == f"task: {'x' * 300}"
    with pytest.raises(KeyboardInterrupt), reading("task"):
        raise KeyboardInterrupt


@pytest.mark.parametrize("spoil", [lambda _: None, configure(num_hidden_layers=3), configure(dtype="nope")])
def test_loading_is_quiet_and_leaves_settings_as_they_were(
    good: Path, tmp_path: Path, capfd: pytest.CaptureFixture[str], spoil: Any
) -> None:
    folder = shutil.copytree(good, tmp_path / "model")
    weights = load_file(folder / "model.safetensors")
    save_file({**weights, "unexpected": torch.zeros(1)}, folder / "model.safetensors", {"format": "pt"})
    spoil(folder)
    bars, level, filters = logging.is_progress_bar_enabled(), logging.get_verbosity(), list(warnings.filters)
    logging.enable_progress_bar()
    logging.set_verbosity_info()
    capfd.readouterr()
    try:
        Explainer.load(folder)
    except WhyformerError:
        pass
    finally:
        state = logging.is_progress_bar_enabled(), logging.get_verbosity()
        logging.set_verbosity(level)
        if not bars:
            logging.disable_progress_bar()
    assert capfd.readouterr() == ("", "")
    assert state == (True, logging.INFO)  # type: ignore[attr-defined]
    assert warnings.filters == filters


def test_progress_bars_that_were_off_stay_off(good: Path) -> None:
    before, level = logging.is_progress_bar_enabled(), hub_logging.get_verbosity()
    logging.disable_progress_bar()
    hub_logging.set_verbosity_debug()
    try:
        Explainer.load(good)
        assert not logging.is_progress_bar_enabled()
        assert hub_logging.get_verbosity() == 10
    finally:
        hub_logging.set_verbosity(level)
        if before:
            logging.enable_progress_bar()


# Scores, labels, windows


def test_scores_are_not_shown_as_classes(good: Path, tmp_path: Path) -> None:
    folder = shutil.copytree(good, tmp_path / "model")
    configure(problem_type="regression")(folder)
    explainer = Explainer.load(folder)
    model, data = explainer.subject.model, tmp_path / "data.csv"
    data.write_text("text,label\nthe film is fine,0\na bad film,1\n")
    for ask in (
        lambda: explainer.explain(TEXT, "attcat"),
        lambda: explainer.compare(TEXT, ["attcat"]),
    ):
        with pytest.raises(UnsupportedModel, match=r"BertForSequenceClassification predicts 3 scores .*attribute"):
            ask()
    with pytest.raises(WhyformerError, match=r"scores|regression"):
        explainer.evaluate(data, ["attcat"], metrics=["aopc"])
    inputs = dict(explainer.subject.tokenizer(TEXT, return_tensors="pt"))
    assert whyformer.attribute(model, inputs, "attcat", target=1).shape == inputs["input_ids"].shape
    with pytest.raises(BadOption, match="model of scores"):
        whyformer.attribute(model, inputs, "saliency", of="loss", target=1)
    with pytest.raises(UnsupportedModel, match="gives no probabilities of classes"):
        Outcomes(model).of(Prediction(model, batch_of(model, inputs), 0).inputs, 3)


@pytest.mark.parametrize(
    ("labels", "problem", "expected"),
    [
        (3, None, False),
        (3, "regression", True),
        (3, "single_label_classification", False),
        (1, None, True),
        (1, "regression", True),
        (1, "multi_label_classification", False),
    ],
)
def test_what_a_regression_is(labels: int, problem: str | None, expected: bool) -> None:
    model = classifier(num_labels=labels)
    model.config.problem_type = problem
    assert is_regression(model) is expected
    assert not is_regression(torch.nn.Linear(1, 1))


def test_labels_that_are_not_those_of_the_outputs_are_refused() -> None:
    model = classifier()
    model.config.id2label = {0: "A", 1: "B"}
    with pytest.raises(UnsupportedModel, match="has 3 outputs, and its configuration names 2 labels"):
        Explainer(model, cases.wordpiece()).explain(TEXT, "attcat")


@pytest.mark.parametrize("labels", [{0: "A", 2: "B"}, {"x": "A"}, ["A", "B"], {-1: "A", 0: "B"}, {0: "A", "0": "B"}])
def test_labels_without_their_numbers_are_refused(labels: Any) -> None:
    model = classifier()
    model.config.__dict__["id2label"] = labels
    with pytest.raises(UnsupportedModel, match="must name the classes 0, 1 and so on"):
        labels_of(model)


def test_only_some_of_many_labels_are_listed() -> None:
    model = classifier()
    for count, end in ((5, "5: correct"), (6, "5, …: correct")):
        model.config.__dict__["id2label"] = {index + 1: "A" for index in range(count)}
        with pytest.raises(UnsupportedModel, match=f"found 1, 2, 3, 4, {end}"):
            labels_of(model)


def test_labels_in_another_order_and_as_text() -> None:
    model = classifier()
    model.config.id2label = {"1": "B", "0": "A", "2": "C"}
    assert labels_of(model) == ("A", "B", "C")


def test_a_label_of_several_classes_is_given_by_index() -> None:
    model = classifier()
    model.config.id2label = {0: "A", 1: "B", 2: "A"}
    explainer = Explainer(model, cases.wordpiece())
    with pytest.raises(BadOption, match=r"target 'A' .*(index.*0.*2|0.*2.*index)"):
        explainer.explain(TEXT, "attcat", target="A")
    assert explainer.explain(TEXT, "attcat", target=2).target.index == 2
    assert explainer.explain(TEXT, "attcat", target="b").target.index == 1


@pytest.mark.parametrize("length", [-5, "many", float("nan"), float("-inf"), [512]])
def test_windows_that_are_none(length: Any) -> None:
    tokenizer = cases.wordpiece()
    tokenizer.model_max_length = length
    with pytest.raises(BadInput, match="tokenizer's model_max_length"):
        Explainer(classifier(), tokenizer).explain(TEXT, "attcat")


@pytest.mark.parametrize("length", [float("inf"), 1e30, 64.0])
def test_windows_without_a_bound_of_the_tokenizer(length: Any) -> None:
    tokenizer = cases.wordpiece()
    tokenizer.model_max_length = length
    assert len(Explainer(classifier(), tokenizer).explain(TEXT, "attcat").units) == 8


def test_a_configuration_without_a_bound_of_positions() -> None:
    model = classifier()
    model.config.max_position_embeddings = -1
    assert len(Explainer(model, cases.wordpiece()).explain(TEXT, "attcat").units) == 8


# Pipelines


@pytest.mark.parametrize(
    "task",
    ["ner", "token-classification", "fill-mask", "text-generation", "image-classification", "summarization", ""],
)
def test_pipelines_of_other_tasks_are_refused(task: str) -> None:
    pipeline = types.SimpleNamespace(task=task, model=classifier(), tokenizer=cases.wordpiece())
    with pytest.raises(UnsupportedModel, match=rf"a pipeline for '{task}' is not explained.*pipeline\.model"):
        Explainer(pipeline)


def test_a_zero_shot_pipeline_is_refused_by_name() -> None:
    names = {"id2label": {0: "contradiction", 1: "neutral", 2: "entailment"}}
    pipeline = hf.pipeline(
        "zero-shot-classification", model=classifier(**names), tokenizer=cases.wordpiece(), device="cpu"
    )
    with pytest.raises(
        UnsupportedModel, match=r"'zero-shot-classification' is not explained.*judges pairs.*hypothesis"
    ):
        Explainer(pipeline)


@pytest.mark.parametrize("task", ["text-classification", "sentiment-analysis"])
def test_pipelines_that_classify_texts_are_explained(task: str) -> None:
    pipeline = hf.pipeline(task, model=classifier(), tokenizer=cases.wordpiece(), device="cpu")
    assert Explainer(pipeline).explain(TEXT, "attcat").prediction.label.startswith("LABEL_")


def test_pipelines_that_answer_questions_are_explained() -> None:
    config = families.CONFIGS["bert"]()
    config.vocab_size = len(cases.wordpiece())
    model = hf.BertForQuestionAnswering(config).eval()
    pipeline = types.SimpleNamespace(task="question-answering", model=model, tokenizer=cases.wordpiece())
    assert Explainer(pipeline).subject.task == "answer"

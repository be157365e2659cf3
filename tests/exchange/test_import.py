"""``fairseq-relpos import-hf``: models of Hugging Face transformers in fairseq, with their outputs and words."""

import codecs
import json
import os
import re
import shutil
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from fairseq import checkpoint_utils
from fairseq.data import Dictionary
from fairseq.models import ARCH_MODEL_REGISTRY
from fairseq.utils import get_activation_fn
from refusals import assert_refused
from small_models import logits, moved
from vocabularies import sentencepiece_folder, words_folder

pytest.importorskip("transformers", "5.4", reason='needs transformers 5.4: pip install "fairseq_relpos[hf]"')

import transformers  # noqa: E402
from safetensors.torch import load_file, save_file  # noqa: E402

from fairseq_relpos.checkpoints.encoder_decoder import start_encoder_decoder  # noqa: E402
from fairseq_relpos.cli import main  # noqa: E402
from fairseq_relpos.exchange import from_transformers, names  # noqa: E402
from fairseq_relpos.exchange.export import export  # noqa: E402
from fairseq_relpos.exchange.from_transformers import import_hf  # noqa: E402
from fairseq_relpos.exchange.pieces import Pieces, settings_of  # noqa: E402
from fairseq_relpos.finetuning.vocabulary import Vocabulary  # noqa: E402
from fairseq_relpos.hf import fast_tokenizer  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "fixtures/golden/hf"


def read_by_fairseq(folder):
    (model,), _, _ = checkpoint_utils.load_model_ensemble_and_task([str(folder / "model.pt")], {"data": str(folder)})
    return model.eval()


def new_ids(folder, kind):
    """The new id of each old one."""
    config = from_transformers.Config(folder)
    order = Pieces.of(folder, kind, config.values["vocab_size"], config).order
    return torch.tensor(order).argsort()


@pytest.mark.parametrize(
    "name, arch",
    {
        "bert_relative_key_query": "roberta_m4",
        "deberta": "roberta_deberta",
        "deberta_v2": "roberta_deberta",
        "roberta_relative_key": "roberta_shaw",
    }.items(),
)
def test_models_with_relative_positions_are_imported_with_their_outputs_and_words(name, arch, tmp_path):
    source, out = GOLDEN / name, tmp_path / "out"
    imported = import_hf(source, out)
    assert (imported.args.arch, imported.fresh, imported.left_out) == (arch, [], [])
    model, golden = read_by_fairseq(out), np.load(source / "io.npz")
    ids = new_ids(source, json.loads((source / "config.json").read_text())["model_type"])
    for batch in ("b0", "b2"):
        if f"{batch}_input_ids" in golden:
            old = torch.from_numpy(golden[f"{batch}_input_ids"].astype(np.int64))
            real = old.ne(-1) if batch == "b2" else torch.from_numpy(golden["b0_attention_mask"] > 0)
            with torch.no_grad():
                states, scores = (model(ids[old].masked_fill(~real, 1), features_only=f)[0] for f in (True, False))
            what, ours = ("b0_last_hidden", states) if batch == "b0" else ("b2_logits", scores[..., ids])
            torch.testing.assert_close(ours[real], torch.from_numpy(golden[what])[real], rtol=0, atol=5e-5)
    words = Vocabulary(out)
    for text, old, real in zip(golden["texts"], golden["b0_input_ids"], golden["b0_attention_mask"]):
        wanted = ids[torch.from_numpy(old[real > 0].astype(np.int64))].tolist()
        found = [0, *words.encode(str(text)).tolist()]
        assert found[: len(wanted) - 1] == wanted[:-1]  # what is longer was cut there
    back = export(out / "model.pt", tmp_path / "back", out)
    assert back.difference == 0 and back.texts > 9


@pytest.mark.parametrize("theirs, ours", names.FAIRSEQ_ACTIVATIONS.items())
def test_activations_are_the_same_functions(theirs, ours):
    x = torch.linspace(-5, 5, 101)
    torch.testing.assert_close(get_activation_fn(ours)(x), transformers.activations.ACT2FN[theirs](x))


def test_settings_that_begin_with_a_byte_order_mark_are_read(tmp_path):
    given = (GOLDEN / "deberta" / "config.json").read_bytes()
    (tmp_path / "config.json").write_bytes(codecs.BOM_UTF8 + given)
    (tmp_path / "tokenizer_config.json").write_bytes(codecs.BOM_UTF8 + b'{"do_lower_case": true}')
    assert from_transformers.read(tmp_path / "config.json") == json.loads(given)
    assert settings_of(tmp_path) == {"do_lower_case": True}


SIZES = {
    **{"vocab_size": 120, "hidden_size": 24, "num_hidden_layers": 2, "num_attention_heads": 3},
    **{"intermediate_size": 48, "max_position_embeddings": 26},
    **{"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.2},
}


def save_with_words(model, folder):
    """A folder of save_pretrained with a WordPiece vocabulary of 120 words."""
    moved(model).save_pretrained(folder)
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *(f"w{i}" for i in range(115))]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n", encoding="utf-8")
    return model


def xlm_roberta(folder):
    """A folder of XLM-R with its SentencePiece model alone."""
    sentencepiece_folder(folder, "unigram")
    (folder / "dict.txt").unlink()
    (folder / "spm.model").rename(folder / "sentencepiece.bpe.model")
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "sentencepiece.bpe.model"))
    size = processor.get_piece_size() + 2
    config = transformers.XLMRobertaConfig(**SIZES | {"vocab_size": size}, layer_norm_eps=1e-5)
    model = moved(transformers.XLMRobertaForMaskedLM(config))
    model.save_pretrained(folder)
    return model, config


@pytest.mark.parametrize("kind", ["bert", "roberta", "roberta_untied", "xlm-roberta"])
def test_transformers_own_models_are_imported_and_go_back(kind, tmp_path, capsys):
    if kind == "bert":
        config = transformers.BertConfig(**SIZES)
        model = save_with_words(transformers.BertForMaskedLM(config), tmp_path / "a")
    elif kind == "xlm-roberta":
        model, config = xlm_roberta(tmp_path / "a")
    else:
        config = transformers.RobertaConfig(**SIZES, layer_norm_eps=1e-5, tie_word_embeddings=kind == "roberta")
        model = transformers.RobertaForMaskedLM(config)
        words_folder(tmp_path / "words")
        dictionary = Dictionary.load(str(tmp_path / "words/dict.txt"))
        symbols = [*dictionary.symbols, *(f"madeupword{i}" for i in range(119 - len(dictionary))), "<mask>"]
        moved(model).save_pretrained(tmp_path / "a")
        for name, text in fast_tokenizer.files_of(fast_tokenizer.words(symbols), 24).items():
            (tmp_path / "a" / name).write_text(text, encoding="utf-8")
    assert main(["import-hf", str(tmp_path / "a"), str(tmp_path / "out")]) == 0
    printed = capsys.readouterr().out
    assert "--arch roberta_learned" in printed and ("--layer-norm-eps 1e-12" in printed) == (kind == "bert")
    imported = read_by_fairseq(tmp_path / "out")
    rates = [getattr(imported.args, name) for name in ("dropout", "attention_dropout", "pooler_dropout")]
    assert rates == [0.3, 0.2, 0.3]  # a head without a dropout of its own has that of the model
    eps = {module.eps for module in imported.modules() if isinstance(module, torch.nn.LayerNorm)}
    assert eps == {config.layer_norm_eps} and imported.args.untie_weights_roberta == (kind == "roberta_untied")
    ids = new_ids(tmp_path / "a", kind.split("_")[0])
    old = torch.randint(5, config.vocab_size - 1, (3, 9))
    with torch.no_grad():
        ours = imported(ids[old])[0][..., ids]
    torch.testing.assert_close(ours, logits(model, old), rtol=0, atol=5e-5)
    assert export(tmp_path / "out/model.pt", tmp_path / "back", tmp_path / "out").difference < 1e-5
    back = transformers.AutoModelForMaskedLM.from_pretrained(tmp_path / "back")
    torch.testing.assert_close(logits(back, ids[old])[..., ids], logits(model, old), rtol=0, atol=5e-5)


def test_the_names_of_classes_come_back(tmp_path):
    names = {0: "contradiction", 1: "neutral", 2: "entailment"}
    config = transformers.RobertaConfig(**SIZES, layer_norm_eps=1e-5, id2label=names)
    moved(transformers.RobertaForSequenceClassification(config)).save_pretrained(tmp_path / "a")
    symbols = ["<s>", "<pad>", "</s>", "<unk>", *(f"w{i}" for i in range(115)), "<mask>"]
    for name, text in fast_tokenizer.files_of(fast_tokenizer.words(symbols), 24).items():
        (tmp_path / "a" / name).write_text(text, encoding="utf-8")
    import_hf(tmp_path / "a", tmp_path / "out")
    (tmp_path / "out/labels.txt").write_text("\n".join(reversed(names.values())))
    export(tmp_path / "out/model.pt", tmp_path / "back", tmp_path / "out")
    assert transformers.AutoConfig.from_pretrained(tmp_path / "back").id2label == names
    change(tmp_path / "a", problem_type="multi_label_classification")
    with pytest.raises(ValueError, match="problem_type is 'multi_label_classification'"):
        import_hf(tmp_path / "a", tmp_path / "again")


def save_a_bart(folder):
    config = transformers.BartConfig(
        **{"vocab_size": 60, "d_model": 24, "encoder_layers": 2, "decoder_layers": 1, "encoder_ffn_dim": 48},
        **{"decoder_ffn_dim": 40, "encoder_attention_heads": 3, "decoder_attention_heads": 2},
        **{"max_position_embeddings": 20, "dropout": 0.3, "attention_dropout": 0.2, "activation_dropout": 0.1},
    )
    model = moved(transformers.BartForConditionalGeneration(config))
    model.save_pretrained(folder)
    symbols = ["<s>", "<pad>", "</s>", "<unk>", *(f"w{i}" for i in range(55)), "<mask>"]
    for name, text in fast_tokenizer.files_of(fast_tokenizer.words(symbols), 20).items():
        (folder / name).write_text(text, encoding="utf-8")
    return model


def test_a_bart_becomes_a_translation_model(tmp_path):
    model = save_a_bart(tmp_path / "a")
    assert main(["import-hf", str(tmp_path / "a"), str(tmp_path / "out")]) == 0
    source, previous = torch.randint(4, 59, (2, 7)), torch.randint(4, 59, (2, 5))
    state = torch.load(tmp_path / "out/model.pt", weights_only=False)
    settings = vars(state["cfg"]["model"])
    assert [settings[f"{what}dropout"] for what in ("", "attention_", "activation_")] == [0.3, 0.2, 0.1]
    words = Dictionary.load(str(tmp_path / "out/dict.txt"))
    task = SimpleNamespace(source_dictionary=words, target_dictionary=words)
    ours = ARCH_MODEL_REGISTRY["transformer_learned"].build_model(state["cfg"]["model"], task).eval()
    ours.load_state_dict(state["model"])
    with torch.no_grad():
        wanted = model(input_ids=source, decoder_input_ids=previous).logits
        found = ours(source, torch.full((2,), 7), previous)[0]
    torch.testing.assert_close(found, wanted, rtol=0, atol=5e-5)
    # and from there bart_NAME, with all that fits
    for arch, table in (("bart_learned", {}), ("bart_t5", {"encoder.embed_positions.b", "decoder.embed_positions.b"})):
        done = start_encoder_decoder(tmp_path / "out/model.pt", tmp_path / f"{arch}.pt", arch)
        assert set(done.fresh) == set(table)
    state = torch.load(tmp_path / "bart_learned.pt", weights_only=False)
    bart = ARCH_MODEL_REGISTRY["bart_learned"].build_model(state["cfg"]["model"], task).eval()
    bart.load_state_dict(state["model"])
    assert torch.equal(bart(source, torch.full((2,), 7), previous)[0], found)


def change(folder, **settings):
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps({**config, **settings}))


class Hostile:
    def __reduce__(self):
        return os.system, ("touch HACKED",)


def bin_of(content):
    def put(folder):
        (folder / "model.safetensors").unlink()
        torch.save(content, folder / "pytorch_model.bin")

    return put


def with_weights(edit):
    def put(folder):
        weights = load_file(folder / "model.safetensors")
        edit(weights)
        save_file(weights, folder / "model.safetensors")

    return put


WORDS = "bert.embeddings.word_embeddings.weight"
BIAS = "bert.encoder.layer.1.output.dense.bias"
DISTANCES = "bert.encoder.layer.0.attention.self.distance_embedding.weight"
WRONG = {
    "no config.json": lambda a: (a / "config.json").unlink(),
    "config.json is no JSON": lambda a: (a / "config.json").write_text("{"),
    "model_type is 't5'": lambda a: change(a, model_type="t5"),
    "position_embedding_type is 'rotary'": lambda a: change(a, position_embedding_type="rotary"),
    "hidden_act is 'mish'": lambda a: change(a, hidden_act="mish"),
    "config.json has no hidden_size": lambda a: change(a, hidden_size=None),
    "promises a model of": lambda a: change(a, hidden_size=999),
    "have no bert.encoder.layer.2.attention": lambda a: change(a, num_hidden_layers=5),
    "the weights have bert.encoder.layer.1.attention": lambda a: change(a, num_hidden_layers=1),
    "the weights have no cls.predictions.decoder.weight": lambda a: change(a, tie_word_embeddings=False),
    "are tied, but": with_weights(lambda w: w.update({"cls.predictions.decoder.weight": w[WORDS] + 1})),
    f"have no {BIAS}": with_weights(lambda w: w.pop(BIAS)),
    "contradicts itself": with_weights(lambda w: w.update({BIAS: torch.zeros(7)})),
    "no model.safetensors or pytorch_model.bin": lambda a: (a / "model.safetensors").unlink(),
    "is damaged or no safetensors file": lambda a: (a / "model.safetensors").write_bytes(b"none"),
    "contains posix.system, which could run any code: not read": bin_of({WORDS: Hostile()}),
    "has something else than weights": bin_of([1, 2]),
    "no tokenizer in": lambda a: (a / "vocab.txt").unlink(),
    "the model has 120 embeddings": lambda a: (a / "vocab.txt").write_text("[PAD]\n" + (a / "vocab.txt").read_text()),
    "has no [MASK], which fairseq needs": lambda a: (a / "vocab.txt").write_text(
        (a / "vocab.txt").read_text().replace("[MASK]\n", "")
    ),
    f"the weights have {DISTANCES}, but not for a bert": with_weights(
        lambda w: w.update({DISTANCES: torch.zeros(51, 8)})
    ),
    "quantized weights are not served": lambda a: change(a, quantization_config={"bits": 8}),
    "word_embeddings.weight is of type torch.int32": with_weights(lambda w: w.update({WORDS: w[WORDS].int()})),
    "pad_token_id is 7 in config.json": lambda a: change(a, pad_token_id=7),
    "fc1.weight is [48, 24] in it and [49, 24] here": lambda a: change(a, intermediate_size=49),
    "absolute positions end at 26, 27 are asked for": lambda a: change(a, max_position_embeddings=27),
}


def test_wrong_input_of_the_import_is_one_line_and_writes_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    save_with_words(transformers.BertForMaskedLM(transformers.BertConfig(**SIZES)), tmp_path / "good")
    for what, spoil in WRONG.items():
        shutil.copytree("good", "a")
        spoil(tmp_path / "a")
        assert_refused(["import-hf", "a", "out"], what, capsys)
        shutil.rmtree("a")
    Path("out").mkdir()
    assert_refused(["import-hf", "good", "out"], "out is there already", capsys)


@pytest.mark.parametrize(
    "kind, settings, what",
    [
        ("bart", {"encoder_layers": 5}, "no weight for encoder.layers.2"),
        ("bart", {"d_model": 10**9}, "promises a model of"),
        ("ours", {"num_hidden_layers": 10**9}, "promises a model of"),
        ("bart", {"decoder_ffn_dim": 41}, "fc1.weight is [40, 24] in it and [41, 24] here"),
        ("bart", {"max_position_embeddings": 21}, "absolute positions end at 20, 21 are asked for"),
        ("ours", {"classifier_activation": "sigmoid"}, "classifier_activation is 'sigmoid'; served are"),
        ("ours", {"has_cls": False}, "has_cls is False"),
        ("ours", {"num_hidden_layers": 1}, "it has besides encoder.sentence_encoder.layers.1"),
        ("ours", {"max_position_embeddings": 5}, "absolute positions end at"),
        ("ours", {"position_hparams": "num_buckets=8"}, "use the same --arch and --position-"),
        ("deberta", {"position_biased_input": True}, "position_biased_input is True"),
        ("deberta", {"relative_attention": False}, "relative_attention is not true"),
        ("deberta", {"pos_att_type": ["c2p", "p2p"]}, "pos_att_type is ['c2p', 'p2p']"),
        ("deberta", {"norm_rel_ebd": "batch"}, "norm_rel_ebd is 'batch'"),
        ("deberta", {"position_buckets": 9}, "embed_positions.a is [16, 32] in it and [18, 32] here"),
    ],
)
def test_settings_that_an_import_cannot_follow_are_refused_by_name(kind, settings, what, with_words, tmp_path):
    if kind == "bart":
        save_a_bart(tmp_path / "a")
    elif kind == "ours":
        export(with_words / "a.pt", tmp_path / "a", with_words / "data")
    else:
        shutil.copytree(GOLDEN / "deberta_v2", tmp_path / "a")
    change(tmp_path / "a", **settings)
    with pytest.raises(ValueError, match=re.escape(what)):
        import_hf(tmp_path / "a", tmp_path / "out")


def test_an_exported_folder_comes_back(with_words):
    export(with_words / "a.pt", with_words / "out", with_words / "data")
    assert import_hf(with_words / "out", with_words / "back").args.arch == "roberta_tupe_r"
    before = torch.load(with_words / "a.pt", weights_only=False)["model"]
    after = read_by_fairseq(with_words / "back").state_dict()
    assert all(torch.equal(tensor, before[key]) for key, tensor in after.items())

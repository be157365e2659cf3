"""The recipe through its own scripts, sized for seconds, and the steps that its preparation is made of."""

import copy
import json
import lzma
from pathlib import Path
from types import SimpleNamespace

import pytest
import tiny_squad
import torch
from fairseq.data import Dictionary, data_utils
from fairseq.models import ARCH_MODEL_REGISTRY
from recipes import Recipe

from fairseq_relpos.checkpoints.loading import load_checkpoint
from fairseq_relpos.finetuning import questions
from fairseq_relpos.finetuning.encoder_start import start
from fairseq_relpos.finetuning.vocabulary import Vocabulary
from fairseq_relpos.tasks import span_windows

ROOT = Path(__file__).parents[2]
TINY = """
VOCAB_SIZE=60 MAX_SOURCE=24 MAX_TARGET=60
ENCODER_LAYERS=1 DECODER_LAYERS=1 EMBED_DIM=16 FFN_DIM=32 HEADS=2
MODEL_FLAGS=(--share-all-embeddings --copy-from-source
  --encoder-learned-pos --layernorm-embedding --no-scale-embedding --activation-fn gelu)
HPARAMS=([shaw]="max_distance=4")
BATCH=4 UPDATES=4 WARMUP_UPDATES=1 LOG_EVERY=1 VALIDATE_EVERY=2
BEAM=2 TOKENS=13a COMPARED=shaw SEEDS=1
"""

recipe = Recipe("question_generation")
succeeds, fails = recipe.succeeds, recipe.fails


@pytest.fixture(scope="module")
def pretraining(tmp_path_factory):
    return tiny_squad.vocabulary(tmp_path_factory.mktemp("pretraining"))


def write_lines(prefix, pairs):
    for side, ending in enumerate(("src", "tgt")):
        Path(f"{prefix}.{ending}").write_text("".join(f"{pair[side]}\n" for pair in pairs), encoding="utf-8")


@pytest.mark.slow
def test_from_json_and_a_pretraining_to_a_report(tmp_path, pretraining):
    (tmp_path / "tiny.sh").write_text(TINY + f"START_FROM={tiny_squad.pretrained(pretraining / 'start.pt')}\n")
    tiny_squad.write(tmp_path / "all.json", tiny_squad.squad())
    (tmp_path / "titles").write_text("T\nt\n")
    prepare = ("prepare.sh", "data", "--vocabulary", pretraining, "--train", "all.json", "--valid", "all.json")
    prepare = (*prepare, "--test", "all.json", "--test-titles", "titles")
    printed = succeeds(tmp_path, *prepare)
    assert "test: 5 questions, 1 of the 2 titles are in the file" in printed and "texts cut" in printed
    assert "data is ready" in succeeds(tmp_path, *prepare)
    dictionary = Dictionary.load(str(tmp_path / "data" / "dict.tgt.txt"))
    assert dictionary == span_windows.load_dictionary(str(pretraining))
    sources = data_utils.load_indexed_dataset(str(tmp_path / "data" / "test.src-tgt.src"), dictionary)
    assert {int(source[0]) for source in sources} == {dictionary.bos()} and max(sources.sizes) <= 24
    assert "run.sh generate gcdf first" in fails(tmp_path, "run.sh", "score", "gcdf")

    succeeds(tmp_path, "compare.sh")
    runs = tmp_path / "runs"
    results = (runs / "RESULTS.md").read_text()
    for name in ("BLEU-4", "ROUGE-L (rouge-score)", "ROUGE-L (pycocoevalcap)"):
        assert f"{name} on test" in results
    assert "--copy-from-source" in results and "'max_distance=4'" in results and str(ROOT) not in results
    assert len((runs / "shaw-seed1" / "test.questions").read_text().splitlines()) == 5
    # with what the runs keep of the data, as it is packed beside a report
    (tmp_path / "data").rename(tmp_path / "elsewhere")
    succeeds(tmp_path, "run.sh", "report")
    assert (runs / "RESULTS.md").read_text() == results
    (tmp_path / "elsewhere").rename(tmp_path / "data")
    before = {path: path.stat().st_mtime_ns for path in runs.glob("*/*.*")}
    succeeds(tmp_path, "run.sh", "evaluate", "shaw")
    assert before == {path: path.stat().st_mtime_ns for path in runs.glob("*/*.*")}
    # scores of other tokens are not those of this report, nor those of another split
    (tmp_path / "tiny.sh").write_text((tmp_path / "tiny.sh").read_text() + "TOKENS=spaces\n")
    assert "no finished run" in fails(tmp_path, "run.sh", "report")
    (tmp_path / "tiny.sh").write_text((tmp_path / "tiny.sh").read_text() + "SCORED=valid\n")
    assert "of another checkpoint, split or text" in fails(tmp_path, "run.sh", "score", "shaw")
    command = succeeds(tmp_path, "run.sh", "command", "gcdf")
    assert "fairseq_relpos.finetuning.encoder_start" in command and "--finetune-from-model=" in command


def test_lines_without_answers_have_a_vocabulary_of_their_own(tmp_path):
    (tmp_path / "tiny.sh").write_text(TINY)
    pairs = [("the red cat sat on the mat .", "who sat ?"), ("a dog ran home .", "where did it run ?")] * 6
    write_lines(tmp_path / "all", pairs)
    (tmp_path / "all.src.xz").write_bytes(lzma.compress((tmp_path / "all.src").read_bytes()))
    (tmp_path / "all.src").unlink()
    succeeds(tmp_path, "prepare.sh", "data", "--train", "all", "--valid", "all")
    words = Vocabulary(tmp_path / "data")
    sources = data_utils.load_indexed_dataset(str(tmp_path / "data" / "valid.src-tgt.src"), words.dictionary)
    pieces = [words.dictionary[number] for number in sources[0]]
    assert pieces[0] == "<s>" and pieces[-1] == "</s>" and words.text_of(pieces[1:-1]) == pairs[0][0]
    assert (tmp_path / "data" / "text" / "valid.questions").read_text().splitlines() == [q for _, q in pairs]


@pytest.mark.parametrize(
    "arguments, message",
    [
        (["--train", "cmrc2018_train.json"], "no readable file cmrc2018_train.json: get SQuAD or CMRC 2018 first"),
        (["--train", "elsewhere"], "no elsewhere.src and elsewhere.tgt (or .xz, .gz): give SQuAD's JSON"),
        (["--train", "odd.json", "--valid", "odd.json"], "question q3, 'Uppsala', does not stand in its text: correct"),
        (["--train", "odd", "--valid", "odd"], "odd.src has 2 lines and odd.tgt has 3"),
        (["--train", "good.json"], "no text for training or validation"),
        (["--train", "good.json", "--test-titles", "good.json"], "--test-titles without --test"),
    ],
)
def test_text_that_cannot_be_used_is_one_line_and_leaves_nothing(tmp_path, arguments, message):
    (tmp_path / "tiny.sh").write_text(TINY)
    tiny_squad.write(tmp_path / "good.json", tiny_squad.squad())
    odd = tiny_squad.squad()
    odd["data"][0]["paragraphs"][1]["qas"][0]["answers"][0]["text"] = "Uppsala"
    tiny_squad.write(tmp_path / "odd.json", odd)
    (tmp_path / "odd.src").write_text("a b\nc d\n")
    (tmp_path / "odd.tgt").write_text("a ?\nb ?\nc ?\n")
    assert message in fails(tmp_path, "prepare.sh", "data", *arguments)
    assert not list(tmp_path.glob("data/**/*.idx")) and not list(tmp_path.glob("data/work"))


# --- what the preparation does with answers and long texts ---


def test_an_answer_may_stand_elsewhere_than_the_file_says_and_questions_without_one_are_left_out(tmp_path):
    data = tiny_squad.squad([*tiny_squad.QUESTIONS, ("q5", "Who?", 1, None)], version="v2.0")
    moved = data["data"][0]["paragraphs"][0]["qas"][0]["answers"]
    moved[0]["answer_start"] += 3
    several = data["data"][0]["paragraphs"][0]["qas"][1]["answers"]
    several.insert(0, {"text": "no such words", "answer_start": 0})
    examples, told = questions.from_json(tiny_squad.write(tmp_path / "a.json", data))
    assert told == ", 1 without an answer left out, 1 answers stand elsewhere than the file says"
    for example, (_, text, _, answer) in zip(examples, tiny_squad.QUESTIONS, strict=True):
        assert example.text[example.start : example.end] == answer and example.question == text
    moved[0].update(text="the", answer_start=tiny_squad.CONTEXTS[0].index("the dog") - 3)
    examples, _ = questions.from_json(tiny_squad.write(tmp_path / "a.json", data))
    assert examples[0].text[examples[0].start :].startswith("the dog")  # the nearest of four


def test_only_articles_with_the_wanted_titles_are_taken(tmp_path):
    data = tiny_squad.squad()
    other = copy.deepcopy(data["data"][0])
    data["data"][0]["title"], other["title"] = "Brasília", "Normans"
    for item in (item for paragraph in other["paragraphs"] for item in paragraph["qas"]):
        item["id"] += "n"
    data["data"].append(other)
    path = tiny_squad.write(tmp_path / "a.json", data)
    (tmp_path / "titles").write_text("Bras%C3%ADlia\n")
    examples, told = questions.from_json(path, tmp_path / "titles")
    assert len(examples) == 5 and "1 of the 1 titles" in told
    (tmp_path / "titles").write_text("Oxygen\n")
    with pytest.raises(ValueError, match="no question with an answer under the titles of"):
        questions.from_json(path, tmp_path / "titles")


def test_a_long_text_is_cut_around_its_answer(pretraining):
    words = Vocabulary(pretraining)
    text = " ".join(f"the cat {number}" for number in range(40)) + " Ångström " + "the dog " * 40
    start_ = text.index("Ångström")
    example = questions.Example(text, "who ?", start_, start_ + len("Ångström"))
    answer = words.pieces("Ångström")
    for longest in (len(answer) + 5, 40, 60):
        source, is_cut = questions.source_of(example, words, longest)
        assert is_cut and len(source) == longest - 1 and source[0] == "<s>"
        assert source[-len(answer) - 2 :] == ["</s>", "</s>", *answer]
        inside = "".join(source[1 : -len(answer) - 2])
        assert ("".join(answer) in inside) == (longest >= 40)
    whole, is_cut = questions.source_of(example, words, 1000)
    assert not is_cut and whole[1 : -len(answer) - 2] == words.pieces(text)
    first = questions.Example(text, "what ?", 0, 7)
    assert questions.source_of(first, words, 40)[0][1:5] == words.pieces(text)[:4]
    with pytest.raises(ValueError, match=r"leaves no room for its text in a source of \d+: set a larger MAX_SOURCE"):
        questions.source_of(example, words, len(answer) + 4)


def test_questions_that_are_too_long_are_left_out_of_training_and_refused_elsewhere(tmp_path, pretraining, capsys):
    examples = [questions.Example("a text", "who sat ?"), questions.Example("a text", "who sat on the mat, who ? " * 9)]
    lines = [json.dumps(vars(example)) for example in examples]
    questions.write(tmp_path / "valid.jsonl", lines)
    questions.encode(tmp_path / "valid", pretraining, 20, 20, training=True)
    assert "valid: 1 questions, 1 longer than 20 tokens left out; 0 texts cut" in capsys.readouterr().out
    with pytest.raises(ValueError, match="more than MAX_TARGET=20: set a larger one"):
        questions.encode(tmp_path / "valid", pretraining, 20, 20)


def test_pieces_of_every_kind_of_vocabulary_become_text_again(pretraining, tmp_path, monkeypatch):
    text = "Who sat on the mat?"
    words = Vocabulary(pretraining)
    assert words.text_of(list(words.pieces(text))) == text.lower()  # its normalisation
    # GPT-2's
    (tmp_path / "dict.txt").touch()
    for name in ("encoder.json", "vocab.bpe"):
        (tmp_path / name).touch()
    from fairseq.data.encoders import gpt2_bpe_utils

    bpe = SimpleNamespace(encode=lambda text: [*text.encode()], decode=lambda ids: bytes(ids).decode())
    monkeypatch.setattr(gpt2_bpe_utils, "get_encoder", lambda *paths: bpe)
    words = Vocabulary(tmp_path)
    assert words.text_of([*words.pieces(text), "<unk>"]) == text


def test_questions_that_are_collected_are_text_in_the_order_of_the_data(pretraining, tmp_path):
    words = Vocabulary(pretraining)
    for name in ("spm.model", "dict.txt"):
        (tmp_path / name).write_bytes((pretraining / name).read_bytes())
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "test.questions").write_text("a ?\nb ?\n")
    asked = ["who sat on the mat?", "when did it sit?"]
    lines = [f"H-{n}\t-1\t{' '.join(words.pieces(asked[n]))}\n" for n in (1, 0)]
    (tmp_path / "generated").write_text("".join(lines), encoding="utf-8")
    questions.main([str(tmp_path / name) if name != "test" else name for name in ("generated", "", "test", "out")])
    assert (tmp_path / "out").read_text(encoding="utf-8").splitlines() == asked


# --- the encoder of a pretraining ---

FLAGS = (
    "--task translation --arch transformer_t5 --position-stacks decoder --copy-from-source --share-all-embeddings"
    " --encoder-learned-pos --layernorm-embedding --no-scale-embedding --activation-fn gelu"
    " --max-source-positions 24 --max-target-positions 60"
    " --encoder-layers 1 --encoder-embed-dim 16 --encoder-ffn-embed-dim 32 --encoder-attention-heads 2"
    " --decoder-layers 2 --decoder-embed-dim 16 --decoder-ffn-embed-dim 32 --decoder-attention-heads 2"
).split()


@pytest.fixture(scope="module")
def data(pretraining, tmp_path_factory):
    """The folder in which a task finds its dictionaries."""
    folder = tmp_path_factory.mktemp("data")
    for side in ("src", "tgt"):
        span_windows.load_dictionary(str(pretraining)).save(str(folder / f"dict.{side}.txt"))
    return [str(folder), "--source-lang", "src", "--target-lang", "tgt"]


@torch.no_grad()
def test_the_encoder_computes_what_the_roberta_computes_and_the_decoder_begins_as_without(pretraining, data, tmp_path):
    source = tiny_squad.pretrained(pretraining / "start.pt")
    told = start(str(source), str(tmp_path / "start.pt"), [*data, *FLAGS, "--seed", "5"])
    assert told.endswith(f"numbers of the encoder are those of {source}")
    old, new = load_checkpoint(source), load_checkpoint(tmp_path / "start.pt")
    words = SimpleNamespace(
        source_dictionary=span_windows.load_dictionary(str(pretraining)),
        target_dictionary=span_windows.load_dictionary(str(pretraining)),
    )
    models = []
    for state in (old, new):
        args = state["cfg"]["model"]
        models.append(ARCH_MODEL_REGISTRY[args.arch].build_model(args, words).eval())
        models[-1].load_state_dict(state["model"])
    tokens = torch.tensor([[0, 7, 8, 2, 2, 9, 2], [0, 7, 8, 9, 2, 1, 1]])
    expected = models[0].encoder.sentence_encoder(tokens)["encoder_out"][0]
    assert torch.equal(models[1].encoder(tokens)["encoder_out"][0], expected)
    assert torch.equal(new["model"]["decoder.embed_tokens.weight"], new["model"]["encoder.embed_tokens.weight"])
    torch.manual_seed(5)
    fresh = ARCH_MODEL_REGISTRY["transformer_t5"].build_model(new["cfg"]["model"], words).state_dict()
    others = [key for key in fresh if key.startswith("decoder.layers")]
    assert others and all(torch.equal(fresh[key], new["model"][key]) for key in others)


@pytest.mark.parametrize(
    "arch, settings, flags, message",
    [
        ("roberta_t5", {}, [], "has the positions t5, the encoder to train has learned ones: give a RoBERTa with"),
        ("roberta_sinusoidal", {}, [], "has the positions sinusoidal, the encoder to train has learned ones: leave --"),
        ("roberta_base", {"encoder_learned_pos": False}, [], "has the positions sinusoidal, the encoder to train has"),
        ("roberta_learned", {}, ["--position-stacks", "encoder,decoder"], "--position-stacks encoder,decoder: the en"),
        ("roberta_learned", {}, ["--encoder-attention-heads", "4"], "encoder_attention_heads 2, not 4: give its"),
        ("roberta_learned", {}, ["--max-source-positions", "30"], "max_source_positions 24, not 30: give its settings"),
        ("roberta_learned", {"activation_fn": "relu"}, [], "activation_fn relu, not gelu: give its settings"),
    ],
)
def test_another_encoder_is_refused_in_one_line(pretraining, data, tmp_path, arch, settings, flags, message):
    source = tiny_squad.pretrained(pretraining / "other.pt", arch, **settings)
    if "encoder,decoder" in flags:
        flags = [*flags, "--position-encoding", "learned"]
    with pytest.raises(ValueError) as caught:
        start(str(source), str(tmp_path / "start.pt"), [*data, *FLAGS, *flags])
    assert message in str(caught.value) and "\n" not in str(caught.value)
    assert not (tmp_path / "start.pt").exists()


def test_another_dictionary_is_refused_in_one_line(pretraining, data, tmp_path):
    source = tiny_squad.pretrained(pretraining / "start.pt")
    for side in ("src", "tgt"):
        (tmp_path / f"dict.{side}.txt").write_text("a 1\nb 1\n")
    with pytest.raises(ValueError, match="was trained with a dictionary of .* words, the data's has 6"):
        start(str(source), str(tmp_path / "start.pt"), [str(tmp_path), *data[1:], *FLAGS])

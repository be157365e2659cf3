"""How far a model reaches: every token is scored once, with the context that is said, as fairseq scores it."""

import json
import math
import re
from pathlib import Path
from types import SimpleNamespace

import forked
import pytest
import torch
import torch.nn.functional as F
from fairseq_cli import eval_lm, train  # noqa: F401  forked runs find them imported
from fairseq_data import USER_DIR, language_modeling, masked_lm
from refusals import assert_refused
from small_models import dictionary, language_model

from fairseq_relpos.cli import main
from fairseq_relpos.reports import extrapolation, extrapolation_plot
from fairseq_relpos.reports.checkpoint import load_model
from fairseq_relpos.segments import SegmentMemory

MODELS = {"rope": "transformer_lm_rope", "learned": "transformer_lm_learned", "stock": "transformer_lm"}


@pytest.fixture(scope="module")
def checkpoints(data, tmp_path_factory):
    """Trained at 16 tokens."""
    folder = tmp_path_factory.mktemp("reach")
    common = ["--max-update", 8, "--lr", 0.05]
    for name, arch in MODELS.items():
        more = ["--decoder-learned-pos"] if name == "stock" else []
        forked.train(language_modeling(data, folder / name, *common, *more, arch=arch), folder / "log")
    masked = masked_lm(data, folder / "masked", *common, arch="roberta_t5")
    forked.train([*masked, "--no-epoch-checkpoints"], folder / "log")
    return {name: folder / name / "checkpoint_last.pt" for name in (*MODELS, "masked")}


def loss_of_eval_lm(checkpoint, data, folder, *flags):
    """In nats per token."""
    arguments = [data, "--user-dir", USER_DIR, "--cpu", "--path", checkpoint, "--gen-subset", "valid", *flags]
    printed = forked.run("eval_lm", arguments, folder / "log")
    return float(re.search(r"Loss \(base 2\): ([\d.]+)", printed)[1]) * math.log(2)


def test_blocks_at_the_trained_length_have_the_loss_of_eval_lm(checkpoints, data, tmp_path):
    found = extrapolation.measure(checkpoints["rope"], data, [16, 50])
    short, long = found.measurements
    expected = loss_of_eval_lm(checkpoints["rope"], data, tmp_path, "--tokens-per-sample", 16)
    assert short.loss == pytest.approx(expected, abs=1e-4)
    assert short.scored == long.scored == found.tokens == 227 and abs(short.loss - long.loss) > 1e-4


def test_a_token_sees_its_block_or_its_window_and_no_more(checkpoints, data):
    model, _, task = load_model(checkpoints["rope"], data)
    text = extrapolation.text_of(task, "valid", 61)

    def losses(begin, end):
        """The losses of these tokens, which see one another alone."""
        with torch.no_grad():
            logits = model(text.inputs[None, begin:end])[0][0]
        return F.cross_entropy(logits, text.targets[begin:end], reduction="none").double()

    found = extrapolation.measure(checkpoints["rope"], data, [16, 24], stride=5, last=3, tokens=61, max_tokens=40)
    blocks = {length: [losses(i, min(i + length, 61)) for i in range(0, 61, length)] for length in (16, 24)}
    windows = {
        length: [losses(0, length), *(losses(end - length, end)[-5:] for end in range(length + 5, 62, 5))]
        for length in (16, 24)
    }
    # what a stride leaves
    windows[24].append(losses(61 - 24, 61)[-2:])
    for length in (16, 24):
        of_blocks, of_windows = (m for m in found.measurements if m.length == length)
        assert of_blocks.scored == of_windows.scored == 61 == len(torch.cat(windows[length]))
        assert of_blocks.loss == pytest.approx(float(torch.cat(blocks[length]).mean()), abs=1e-6)
        assert of_windows.loss == pytest.approx(float(torch.cat(windows[length]).mean()), abs=1e-6)
        last = torch.cat([block[-3:] for block in blocks[length] if len(block) == length])
        assert of_blocks.last_loss == pytest.approx(float(last.mean()), abs=1e-6)
    assert not found.same_last
    # where the lengths divide the longest, its last tokens are last tokens at each: 21..23 and 45..47
    found = extrapolation.measure(checkpoints["rope"], data, [8, 24], last=3, tokens=61)
    short = torch.cat([losses(16, 24)[-3:], losses(40, 48)[-3:]])
    assert found.same_last and found.measurements[0].last_loss == pytest.approx(float(short.mean()), abs=1e-6)
    long = torch.cat([losses(0, 24)[-3:], losses(24, 48)[-3:]])
    assert found.measurements[1].last_loss == pytest.approx(float(long.mean()), abs=1e-6)


def test_a_memory_as_long_as_the_text_makes_blocks_equal_to_the_whole_text(checkpoints, data):
    found = extrapolation.measure(checkpoints["rope"], data, [16, 227], [0, 8, 300], last=1)
    short, remembering, all_of_it, whole, *others = found.measurements
    assert [(m.length, m.memory) for m in found.measurements[:4]] == [(16, 0), (16, 8), (16, 300), (227, 0)]
    assert all_of_it.loss == pytest.approx(whole.loss, abs=1e-6)
    assert all(m.loss == pytest.approx(whole.loss, abs=1e-6) for m in others)
    assert len({short.loss, remembering.loss, all_of_it.loss}) == 3
    assert {m.scored for m in found.measurements} == {227}


def test_absolute_positions_count_block_and_memory(monkeypatch):
    plan = extrapolation.Measurement(length=16, memory=8)
    monkeypatch.setattr(extrapolation, "last_position", lambda model: 20)
    extrapolation.fill(plan, None, None, 1, None, max_tokens=64)
    assert plan.ends_at == 20 and plan.loss is None


def test_a_memory_is_of_the_kind_of_the_training():
    given = []
    positions = SimpleNamespace(segment_memory=SegmentMemory(8, 8, same_length=True))
    model = SimpleNamespace(decoder=SimpleNamespace(embed_positions=positions), remember=given.append)
    extrapolation.remember(model, 30)
    (memory,) = given
    assert (memory.length, memory.eval_length, memory.same_length) == (0, 30, True)


@pytest.mark.parametrize("tokens, step, stride", [(9, 9, 2), (10, 9, 2), (37, 8, 8), (37, 8, 3), (38, 1, 1)])
def test_every_token_is_scored_once(tokens, step, stride):
    for windows in (extrapolation.side_by_side(tokens, step), extrapolation.sliding(tokens, step, stride)):
        scored = [
            place
            for begins, width, new in extrapolation.batches(windows, rows=2)
            for begin in begins.tolist()
            for place in range(begin + width - new, begin + width)
        ]
        assert sorted(scored) == list(range(tokens))


def test_every_length_fills_in_the_same_masks(checkpoints, data):
    found = extrapolation.measure(checkpoints["masked"], data, [4, 16, 32, 200], max_tokens=64)
    assert len({m.scored for m in found.measurements}) == 1 and 20 < found.measurements[0].scored < 50
    assert len({m.loss for m in found.measurements}) == 4
    assert found.kind == extrapolation_plot.MASKED and found.tokens == 227
    again = extrapolation.measure(checkpoints["masked"], data, [16])
    assert again.digest == found.digest and again.measurements[0].loss == pytest.approx(found.measurements[1].loss)
    assert extrapolation.measure(checkpoints["masked"], data, [16], seed=2).digest != found.digest
    # a block is <s> and 15 tokens, as in the training
    model, _, task = load_model(checkpoints["masked"], data)
    text = extrapolation.masked_text(task, "valid", None, seed=1)
    total = 0.0
    for begin in range(0, 227, 15):
        inputs, targets, scored = (x[begin : begin + 15] for x in (text.inputs, text.targets, text.scored))
        with torch.no_grad():
            logits = model(torch.cat([torch.tensor([0]), inputs])[None])[0][0, 1:]
        total += float(F.cross_entropy(logits[scored], targets[scored], reduction="sum"))
    assert found.measurements[1].loss == pytest.approx(total / found.measurements[1].scored, abs=1e-5)


def test_a_model_of_stock_fairseq_is_measured_like_ours(checkpoints, data):
    ours, stock = (extrapolation.measure(checkpoints[name], data, [16, 32]) for name in ("learned", "stock"))
    assert ours.measurements == stock.measurements and stock.measurements[1].ends_at == 16
    assert stock.encoding == "stock transformer_lm" and ours.digest == stock.digest


def test_adaptive_softmax_is_scored_as_its_criterion_does():
    model = language_model(
        "transformer_lm_t5", criterion="adaptive_loss", adaptive_softmax_cutoff="10,20", adaptive_softmax_dropout=0.0
    ).eval()
    tokens = torch.randint(4, len(dictionary()), (2, 9))
    targets = torch.randint(4, len(dictionary()), (2, 9))
    scored = torch.rand(2, 9) < 0.7
    with torch.no_grad():
        found = extrapolation.losses_of(model, tokens, targets, scored, None)
        logits, target = model.decoder.adaptive_softmax(model(tokens)[0], targets)
        expected = sum(
            F.cross_entropy(part, wanted, reduction="sum") for part, wanted in zip(logits, target) if part is not None
        )
        every = extrapolation.losses_of(model, tokens, targets, torch.ones_like(scored), None)
    assert float(every.sum()) == pytest.approx(float(expected), rel=1e-5)
    assert torch.equal(found != 0, scored) and torch.allclose(found[scored], every[scored])


def test_rope_is_rescaled_for_each_length_beyond_the_training(checkpoints, data, tmp_path):
    def measure(hparams):
        found = extrapolation.measure(checkpoints["rope"], data, [16, 64], position_hparams=hparams)
        assert found.changed == hparams and found.trained_length == 16
        return found.measurements

    plain, yarn, same = measure(""), measure("scaling=yarn"), measure("scaling=yarn factor=4 trained_length=16")
    assert yarn[0].loss == plain[0].loss and yarn[0].position_hparams is None
    assert yarn[1].loss != plain[1].loss
    assert yarn[1].position_hparams == "base=10000 scaling=yarn factor=4.0 trained_length=16 fraction=1 kind=partial"
    assert same[1].loss == yarn[1].loss and same[0].loss != plain[0].loss
    overrides = {"max_target_positions": 64, "position_hparams": yarn[1].position_hparams}
    flags = ["--tokens-per-sample", 64, "--model-overrides", str(overrides)]
    expected = loss_of_eval_lm(checkpoints["rope"], data, tmp_path, *flags)
    assert yarn[1].loss == pytest.approx(expected, abs=1e-4)


def test_memory_and_the_first_token_count_in_the_factor(checkpoints, data, tmp_path):
    """Trained at 16 tokens and a memory of 8, and at <s> and 16 tokens."""
    common = ["--max-update", 2]
    remembering = [*common, "--memory-length", 8]
    arguments = language_modeling(
        data, tmp_path / "memory", *remembering, arch="transformer_lm_rope", task="lm_streams"
    )
    forked.train(arguments, tmp_path / "log")
    with_bos = [*common, "--add-bos-token", "--max-target-positions", 17]
    forked.train(language_modeling(data, tmp_path / "bos", *with_bos, arch="transformer_lm_rope"), tmp_path / "log")

    def hparams(checkpoint, lengths, memories=(0,)):
        found = extrapolation.measure(checkpoint, data, lengths, memories, position_hparams="scaling=yarn")
        scaled = [re.search(r"factor=(\S+) trained_length=(\d+)", m.position_hparams or "") for m in found.measurements]
        return found.trained_length, [(float(m[1]), int(m[2])) if m else None for m in scaled]

    assert hparams(checkpoints["rope"], [8, 16], [0, 8, 16]) == (16, [None, None, (1.5, 16), None, (1.5, 16), (2, 16)])
    of_memory = hparams(tmp_path / "memory" / "checkpoint_last.pt", [16, 24], [0, 8, 32])
    assert of_memory == (16, [None, None, (2, 24), None, (32 / 24, 24), (56 / 24, 24)])
    assert hparams(tmp_path / "bos" / "checkpoint_last.pt", [17, 34]) == (17, [None, (2, 17)])
    # with --same-length a query sees the memory's number of keys
    assert [extrapolation.in_sight(16, memory, same_length=True) for memory in (0, 8, 32)] == [16, 8, 32]


def test_the_command_prints_a_table_and_several_runs_share_a_picture(checkpoints, data, tmp_path, capsys, caplog):
    caplog.set_level("INFO")
    files = []
    for name in ("rope", "learned"):
        files.append(str(tmp_path / "new" / f"{name}.json"))
        flags = ["--lengths", "32,16", "--stride", "8", "--post-process", "none", "--json", files[-1]]
        assert main(["extrapolation", str(checkpoints[name]), str(data), *flags]) == 0
    printed = capsys.readouterr().out
    head = "| length | context | loss (nats per token) | perplexity per token | last 4: loss | last 4: perplexity"
    assert f"{head} | bits per byte | perplexity per word |" in printed
    assert "learned, trained at 16 tokens with seed 1" in printed
    assert "| 32 | block | ends at 16 | - | - | - | - | - |" in printed
    assert "length 32, sliding by 8: ends at 16" in caplog.text
    rope, learned = (json.loads(Path(file).read_text()) for file in files)
    assert learned["measurements"][2] == {
        **{"length": 32, "memory": 0, "stride": None, "loss": None, "last_loss": None, "scored": 0, "ends_at": 16},
        "position_hparams": None,
    }
    # words: 203 and 24 line ends
    assert rope["words"] == rope["tokens"] == 227 and rope["bytes"] > 3 * 203
    assert len(list(tmp_path.glob("new/*"))) == 2
    assert main(["plot", "extrapolation", *files, "--output", str(tmp_path / "a.svg")]) == 0
    drawn = (tmp_path / "a.svg").read_text()
    assert "learned (ends at 16)" in drawn and "last 4 tokens" in drawn and "all tokens, window by 8" in drawn
    extrapolation_plot.plot([rope, learned], tmp_path / "b.svg", ["last"])
    assert "window" not in (tmp_path / "b.svg").read_text()


def test_the_lengths_before_one_that_fails_are_kept(checkpoints, data, tmp_path, monkeypatch):
    fill = extrapolation.fill

    def too_long(plan, *rest):
        if plan.length > 16:
            raise RuntimeError("out of memory")
        fill(plan, *rest)

    monkeypatch.setattr(extrapolation, "fill", too_long)
    flags = ["--lengths", "8,16,32", "--json", str(tmp_path / "a.json")]
    with pytest.raises(RuntimeError):
        main(["extrapolation", str(checkpoints["rope"]), str(data), *flags])
    assert [one["length"] for one in json.loads((tmp_path / "a.json").read_text())["measurements"]] == [8, 16]


def test_perplexities_are_per_token_and_word_and_bits_per_byte():
    """60 tokens of two bits each: 120 bytes and 40 words."""
    found = {"bytes": 120, "words": 40}
    measured = {"length": 16, "memory": 0, "stride": None, "scored": 60, "ends_at": None}
    cells = extrapolation_plot.row(found, measured | {"loss": 2 * math.log(2), "last_loss": math.log(2)})
    assert cells[2:] == ["1.3863", "4.00", "0.6931", "2.00", "1.0000", "8.00"]


def test_pieces_make_words_and_bytes_and_an_unknown_piece_makes_neither():
    words = dictionary(0)
    for piece in ("\u2581gr", "\u00fc", "n", "\u2581a"):
        words.add_symbol(piece)
    tokens = words.encode_line("\u2581gr \u00fc n \u2581a", add_if_not_exist=False).long()
    twice = torch.cat([tokens, tokens[:-2]])
    assert extrapolation.words_and_bytes(words, tokens, "sentencepiece") == (3, len("gr\u00fcn a\n".encode()))
    assert extrapolation.words_and_bytes(words, twice, "sentencepiece") == (4, len("gr\u00fcn a\ngr\u00fcn".encode()))
    for piece in ("<0xC3>", "<0xBC>"):
        words.add_symbol(piece)
    spelled = words.encode_line("\u2581gr <0xC3> <0xBC> n \u2581a", add_if_not_exist=False).long()
    assert extrapolation.words_and_bytes(words, spelled, "sentencepiece") == (3, len("gr\u00fcn a\n".encode()))
    unknown = torch.cat([tokens, torch.tensor([words.unk()])])
    assert extrapolation.words_and_bytes(words, unknown, "none") == (6, None)
    with pytest.raises(ValueError, match="1 of 6 tokens are <unk>, whose words and bytes nobody knows"):
        extrapolation.words_and_bytes(words, unknown, "sentencepiece")


@pytest.mark.parametrize(
    "name, flags, what",
    [
        ("rope", "--lengths 16,512", "--lengths 512: the text has 227 tokens (--split valid); give 227 or less"),
        ("masked", "--lengths 229", "the text has 227 tokens (--split valid); give 228 or less"),
        ("rope", "--lengths 16 --tokens 300", "--tokens 300: the split valid has 227"),
        ("masked", "--lengths 2 --tokens 2 --seed 1", "no token of the text is scored at length 2: give a longer text"),
        ("rope", "--lengths 16,x", "--lengths '16,x': whole numbers of 2 or more"),
        ("rope", "--lengths 1", "--lengths '1': whole numbers of 2 or more"),
        ("rope", "--lengths 16 --last 17", "--last 17: a block of 16 tokens has no more than 16"),
        ("rope", "--lengths 16 --stride 17", "--stride 17: more than the shortest window"),
        ("rope", "--lengths 16 --split test", "no split test in"),
        ("rope", "--lengths 16 --output a.jpg", "--output a.jpg: pictures are written as .png or .svg"),
        ("rope", "--lengths 16 --position-hparams base=5", "base: at evaluation rope may change factor, scaling, tra"),
        ("learned", "--lengths 16 --position-hparams a=5", "a: at evaluation learned may change no hyperparameter"),
        ("stock", "--lengths 16 --memory 0,8", "--memory 8: a model of stock fairseq has none"),
        ("learned", "--lengths 16 --memory 0,8", "--memory 8: a segment memory of 8 tokens"),
        ("rope", "--lengths 16 --memory -1", "--memory '-1': whole numbers of 0 or more"),
        ("masked", "--lengths 16 --stride 4", "--stride, --memory and --post-process are for language models"),
    ],
)
def test_wrong_input_is_one_line_and_writes_nothing(name, flags, what, checkpoints, data, tmp_path, capsys):
    out = tmp_path / "a.json"
    assert main(["extrapolation", str(checkpoints[name]), str(data), *flags.split(), "--json", str(out)]) == 1
    (line,) = [line for line in capsys.readouterr().err.splitlines() if "error" in line]
    assert line.startswith("fairseq-relpos extrapolation: error: ") and what in line
    assert not list(tmp_path.iterdir())


def test_results_of_different_texts_share_no_picture(tmp_path, capsys):
    common = {"kind": "language model", "last": 4, "measurements": []}
    for name, digest in (("a", "1f"), ("b", "2f")):
        (tmp_path / name).write_text(json.dumps({**common, "digest": digest, "checkpoint": f"{name}.pt"}))
    (tmp_path / "c").write_text("{}")
    different = "results of different texts cannot be compared: 1f of a.pt, 2f of b.pt"
    for files, what in {"ab": different, "c": "is no"}.items():
        command = ["plot", "extrapolation", *(tmp_path / name for name in files), "--output", tmp_path / "p.png"]
        assert_refused(command, what, capsys, tmp_path)

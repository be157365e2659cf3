"""transformer_lm_NAME: what must stay stock, and every encoding through training, scoring and decoding."""

import re

import forked
import pytest
import torch
from fairseq import search
from fairseq.sequence_generator import SequenceGenerator
from fairseq_cli import eval_lm, generate, interactive, train  # noqa: F401  forked runs find them imported
from fairseq_data import USER_DIR, language_modeling
from loops import scale_up_positions
from small_models import Anew, dictionary, language_model
from torch import nn

from fairseq_relpos.models.language_model import RelPosLanguageModel

WORDS = dictionary()


def commands(data):
    return [data, "--user-dir", USER_DIR, "--cpu", "--num-workers", 0, "--no-progress-bar"]


@pytest.fixture(scope="module")
def folder(data, tmp_path_factory):
    """A folder with a trained model, with positions in its logits and a table of --max-target-positions."""
    folder = tmp_path_factory.mktemp("trained")
    more = ["--max-update", 5, "--max-target-positions", 40]
    forked.train(language_modeling(data, folder, *more, arch="transformer_lm_shaw"), folder / "log")
    return folder


def test_generate_and_interactive_continue_a_text(data, folder):
    common = ["--path", folder / "checkpoint_last.pt", "--task", "language_modeling", "--beam", 2, "--max-len-b", 30]
    sentences = ["--gen-subset", "valid", "--required-batch-size-multiple", 1, "--sample-break-mode", "eos"]
    printed = forked.run("generate", [*commands(data), *common, *sentences], folder / "log")
    assert printed.count("\nH-") == 24
    text = folder / "text"
    text.write_text("w1 w2 w3\nw7\n", encoding="utf-8")
    arguments = [*commands(data), *common, "--batch-size", 2, "--buffer-size", 2, "--input", text]
    printed = forked.run("interactive", arguments, folder / "log")
    hypotheses = re.findall(r"H-(\d+)\t\S+\t(.*)", printed)
    assert dict(hypotheses)["0"].startswith("w1 w2 w3") and dict(hypotheses)["1"].startswith("w7")


def test_eval_lm_gives_a_text_more_context(data, folder):
    flags = [*commands(data), "--path", folder / "checkpoint_last.pt", "--gen-subset", "valid", "--batch-size", 1]
    flags += ["--required-batch-size-multiple", 1, "--tokens-per-sample", 16, "--context-window", 8]
    losses = {}
    for workers in (0, 2):  # which would each remember its own batches
        printed = forked.run("eval_lm", [*flags, "--num-workers", workers], folder / "log")
        losses[workers] = re.search(r"Loss \(base 2\): ([\d.]+)", printed)[1]
    assert losses[0] == losses[2]
    for more, said in ((["--num-shards", 2], "give --num-shards 1"), (["--context-window", 16], "it is a part of")):
        assert said in forked.error_of(forked.Run([*flags, *more], folder / "log", command="eval_lm"))


def test_eval_lm_evaluates_something_or_says_so(data, folder):
    flags = [*commands(data), "--path", folder / "checkpoint_last.pt", "--gen-subset", "valid", "--batch-size", 4]
    # blocks of 1024 tokens: none fits; of 41: the last one does, and would be all that is evaluated
    for length in (1024, 41):
        run = forked.Run([*flags, "--tokens-per-sample", length], folder / "log", command="eval_lm")
        assert re.search("samples are longer than the 40 positions.*--tokens-per-sample", forked.error_of(run))
    one = ["--tokens-per-sample", 16, "--sample-break-mode", "eos"]
    printed = forked.run("eval_lm", [*flags, *one], folder / "log")
    assert float(re.search(r"Perplexity: ([\d.]+)", printed)[1]) > 2


def test_from_pretrained_samples_and_scores(data, folder):
    hub = RelPosLanguageModel.from_pretrained(str(folder), "checkpoint_last.pt", str(data))
    assert hub.sample("w1 w2", beam=2, max_len_b=12).startswith("w1 w2")
    found = hub.score("w1 w2 w3 w4")["positional_scores"]
    tokens = hub.encode("w1 w2 w3 w4")
    with torch.no_grad():
        logits = hub.models[0](torch.cat([tokens[-1:], tokens[:-1]])[None])[0]
    torch.testing.assert_close(found, logits.log_softmax(-1)[0].gather(1, tokens[:, None])[:4, 0])


@pytest.mark.parametrize("name", ["transformer_xl", "t5"])
def test_adaptive_inputs_and_adaptive_softmax_train_all_parameters(name):
    adaptive = {"adaptive_input_cutoff": "10,20", "adaptive_softmax_cutoff": "10,20", "tie_adaptive_proj": True}
    model = language_model(f"transformer_lm_{name}_wiki103", dropout=0.0, **adaptive)
    assert model.decoder.adaptive_softmax is not None and model.decoder.embed_tokens.cutoff[:2] == [10, 20]
    tokens = torch.randint(4, 44, (3, 12))
    features = model(tokens)[0]
    outputs, targets = model.decoder.adaptive_softmax(features, tokens.flatten())
    parts = [(output, target) for output, target in zip(outputs, targets) if output is not None]
    sum(nn.functional.cross_entropy(*part, reduction="sum") for part in parts).backward()
    assert [key for key, p in model.named_parameters() if p.grad is None] == []
    assert model.get_normalized_probs((features, {}), True, {"target": tokens}).shape == (3, 12, len(WORDS))


def model_of(name, seed=1, **settings):
    """Evaluated, with positions that matter and outputs that vary."""
    model = language_model(f"transformer_lm_{name}", seed, dropout=0.0, **settings).eval()
    scale_up_positions(model.decoder)
    with torch.no_grad():
        model.decoder.output_projection.weight.mul_(4)
    return model


@torch.no_grad()
@pytest.mark.parametrize("name", ["learned", "t5", "tupe_r", "m4m", "transformer_xl", "cope", "path"])
def test_a_sampled_continuation_is_the_same_with_and_without_cache(name):
    model = model_of(name)
    prompts = torch.tensor([[5, 6, 7], [8, 1, 1], [9, 10, 1]])
    found = []
    for each in (model, Anew(model)):
        torch.manual_seed(7)
        sampling = search.Sampling(WORDS, sampling_topk=10)
        generator = SequenceGenerator([each], WORDS, beam_size=2, max_len_b=20, search_strategy=sampling)
        sample = {"net_input": {"src_tokens": prompts, "src_lengths": prompts.ne(1).sum(1)}}
        hypotheses = generator.generate([each], sample, prefix_tokens=prompts, bos_token=2)
        found.append([[h["tokens"].tolist() for h in sentence] for sentence in hypotheses])
    assert found[0] == found[1]
    assert len({tuple(h) for sentence in found[0] for h in sentence}) > 3, "nothing to tell them apart"
    assert found[0][0][0][:3] == [5, 6, 7]


@pytest.mark.parametrize("name", ["learned", "tupe_r"])
def test_absolute_positions_say_where_they_end(name):
    model = language_model(f"transformer_lm_{name}")
    saved = {key: value for key, value in vars(model.args).items() if key != "arch"}
    longer = language_model(f"transformer_lm_{name}", **{**saved, "max_target_positions": 64})
    with pytest.raises(ValueError, match="positions end at 32, 64 are asked for .*: use --max-target-positions 32"):
        longer.load_state_dict(model.state_dict())

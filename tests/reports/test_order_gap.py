import json
import math
import re

import pytest
import torch
from fairseq.logging import metrics
from fairseq_data import binarise, fairseq_ok, masked_lm

from fairseq_relpos.checkpoints.loading import load_checkpoint
from fairseq_relpos.cli import main
from fairseq_relpos.criterions.masked_lm_order_gap import MaskedLmOrderGap, MaskedLmOrderGapConfig, permute_blocks
from fairseq_relpos.reports import order_gap
from fairseq_relpos.reports.checkpoint import load_model

PAD = 1


@pytest.fixture(scope="session")
def data(tmp_path_factory):
    # 25 is no multiple of 8, at which fairseq leaves sentences out
    return binarise(tmp_path_factory.mktemp("order_gap"), train=16, valid=25)


@pytest.fixture(scope="session")
def checkpoints(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("order_gap_runs")
    for name in ("none", "tupe_r"):
        # another seed than the masks will have
        flags = f"--arch roberta_{name} --max-update 4 --lr 0.1 --seed 7 --disable-validation --no-epoch-checkpoints"
        fairseq_ok("train", *masked_lm(data, folder / name, *flags.split()))
    checkpoints = {name: str(folder / name / "checkpoint_last.pt") for name in ("none", "tupe_r")}
    amplify_positions(checkpoints["tupe_r"])
    return checkpoints


def amplify_positions(checkpoint):
    """After four updates they would hardly weigh in."""
    state = load_checkpoint(checkpoint)
    for key, value in state["model"].items():
        if key.endswith(("u_q.weight", "u_k.weight")):
            value *= 20
    torch.save(state, checkpoint)


def measure(checkpoint, data, **options):
    (gap,) = order_gap.measure(checkpoint, str(data), ["valid"], **options)
    return gap


def test_a_bag_of_words_has_no_gap_and_positions_have_one(checkpoints, data):
    assert measure(checkpoints["none"], data).gap == pytest.approx(0, abs=1e-5)
    assert abs(measure(checkpoints["tupe_r"], data).gap) > 1e-3


def test_masks_do_not_depend_on_the_model_or_its_seed_or_the_time(checkpoints, data):
    one, other = (measure(checkpoints[name], data) for name in ("none", "tupe_r"))
    assert one.digest == other.digest == measure(checkpoints["none"], data).digest
    assert one.masked_tokens == other.masked_tokens and one.blocks == other.blocks == 25
    assert measure(checkpoints["none"], data, seed=2).digest != one.digest


def test_a_head_that_attends_to_the_first_token_alone_is_lost(checkpoints, data, tmp_path, capsys):
    state = load_checkpoint(checkpoints["tupe_r"])
    (b,) = (value for key, value in state["model"].items() if key.endswith("embed_positions.b"))
    b[32, 0] = 1e6  # theta_2 of the first head: the score of every token with <s>
    torch.save(state, tmp_path / "lost.pt")
    kept, lost = measure(checkpoints["tupe_r"], data), measure(tmp_path / "lost.pt", data)
    assert order_gap.lost_heads(kept.first_token) == [] and order_gap.lost_heads(lost.first_token) == [1]
    assert all(len(heads) == 2 and heads[0] > 0.999 > heads[1] for heads in lost.first_token)
    assert main(["order-gap", str(tmp_path / "lost.pt"), str(data), "--json", str(tmp_path / "new" / "gap.json")]) == 0
    assert "head 1 is lost" in capsys.readouterr().out
    assert json.loads((tmp_path / "new" / "gap.json").read_text())[0]["checkpoint"] == str(tmp_path / "lost.pt")


def test_a_head_is_lost_in_all_layers():
    assert order_gap.lost_heads([[0.999, 0.5, 0.999], [0.5, 0.999, 0.995]]) == [3]


def test_stock_fairseq_has_a_gap_and_no_shares(data, tmp_path):
    flags = ["--arch", "roberta_base", "--max-update", 2, "--disable-validation", "--no-epoch-checkpoints"]
    fairseq_ok("train", *masked_lm(data, tmp_path, *flags))
    gap = measure(tmp_path / "checkpoint_last.pt", data)
    assert gap.loss > 0 and gap.first_token == []


def test_the_share_of_the_first_token_is_a_mean_over_the_others(checkpoints, data):
    model, _, task = load_model(checkpoints["none"], data)
    stack = model.encoder.sentence_encoder
    for parameter in stack.layers[0].self_attn.k_proj.parameters():
        torch.nn.init.zeros_(parameter)  # every token attends to all alike
    shares = order_gap.attention_to_first_token(stack, torch.tensor([0, 7, 8, 9, 2]))
    assert shares[0].tolist() == pytest.approx([1 / 5, 1 / 5])


def test_the_loss_is_that_of_fairseq_validate(checkpoints, data):
    flags = "--user-dir fairseq_relpos --task masked_lm --seed 1 --batch-size 4 --required-batch-size-multiple 1"
    path = checkpoints["tupe_r"]
    printed = fairseq_ok("validate", data, *flags.split(), "--path", path, "--log-format", "simple", "--cpu")
    bits = float(re.search(r"\| loss ([\d.]+)", printed)[1])
    assert measure(checkpoints["tupe_r"], data).loss == pytest.approx(bits * math.log(2), abs=5e-4)


def sample(*rows):
    tokens = torch.tensor(rows)
    target = torch.where(tokens.eq(PAD), tokens, tokens + 100)
    return {
        "id": torch.arange(len(rows)) + 50,
        "target": target,
        "net_input": {"src_tokens": tokens, "src_lengths": tokens.ne(PAD).sum(1)},
        "ntokens": int(tokens.ne(PAD).sum()),
    }


def test_permuted_targets_follow_their_tokens_between_start_and_padding():
    before = sample([0, *range(10, 30), 2], [0, *range(40, 50), 2] + [PAD] * 10)
    after = permute_blocks(before, PAD, seed=1)
    tokens, target = after["net_input"]["src_tokens"], after["target"]
    assert torch.equal(target, torch.where(tokens.eq(PAD), tokens, tokens + 100))
    assert torch.equal(tokens.sort(1)[0], before["net_input"]["src_tokens"].sort(1)[0])
    assert (tokens[:, 0] == 0).all()
    assert torch.equal(tokens.eq(PAD), before["net_input"]["src_tokens"].eq(PAD))
    assert not torch.equal(tokens, before["net_input"]["src_tokens"])


def test_a_block_is_permuted_alike_in_any_batch():
    long, short = [0, *range(10, 30), 2], [0, *range(40, 50), 2]
    together = permute_blocks(sample(long, short + [PAD] * 10), PAD, seed=1)
    alone = sample(short)
    alone["id"] += 1
    alone = permute_blocks(alone, PAD, seed=1)
    assert torch.equal(together["net_input"]["src_tokens"][1, :12], alone["net_input"]["src_tokens"][0])


def test_the_criterion_measures_the_same_at_a_validation(checkpoints, data):
    model, _, task = load_model(checkpoints["tupe_r"], data, 1)
    criterion = MaskedLmOrderGap(MaskedLmOrderGapConfig(tpu=False), task).eval()
    logs = [task.valid_step(sample, model, criterion)[2] for sample in order_gap.every_sample(model, task, "valid")]
    with metrics.aggregate() as found:
        criterion.reduce_metrics(logs)
    gap = measure(checkpoints["tupe_r"], data).gap
    assert abs(gap) > 1e-3 and found["order_gap"].avg == pytest.approx(gap / math.log(2), abs=1e-4)


def test_its_training_is_that_of_masked_lm(data, tmp_path):
    flags = ["--arch", "roberta_tupe_r", "--max-update", 2, "--no-epoch-checkpoints", "--log-format", "json"]
    for criterion in ("masked_lm", "masked_lm_order_gap"):
        printed = fairseq_ok("train", *masked_lm(data, tmp_path / criterion, *flags, "--criterion", criterion))
    assert '"valid_order_gap"' in printed and '"train_order_gap"' not in printed
    stock, ours = (
        load_checkpoint(tmp_path / name / "checkpoint_last.pt") for name in ("masked_lm", "masked_lm_order_gap")
    )
    assert all(torch.equal(stock["model"][name], ours["model"][name]) for name in stock["model"])

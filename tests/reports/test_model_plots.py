"""The pictures of trained models and of their data."""

import math
import re

import pytest
import torch
from loops import scale_up
from refusals import assert_refused
from small_models import dictionary, language_model, roberta, save, stack_of, trained, transformer

from fairseq_relpos.backends import Backend
from fairseq_relpos.checkpoints.loading import load_checkpoint
from fairseq_relpos.cli import main
from fairseq_relpos.finetuning.sentence_data import write_sentences
from fairseq_relpos.reports import order_gap
from fairseq_relpos.reports.attention_plot import attention_weights
from fairseq_relpos.reports.model_plots import correlations, lengths, scores, vectors

IDS = torch.tensor([[0, 5, 6, 7, 9, 2]])
TEXT = ["--text", "w1 w2 <mask> w4 w1"]


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder of binarised text: sentences in train and valid, pairs in input0 and input1."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "dict.txt").write_text("".join(f"w{i} 1\n" for i in range(40)))
    torch.manual_seed(1)
    for name, sizes in {"valid": [9, 12, 7, 20, 15], "input0/train": [3, 5], "input1/train": [4, 8]}.items():
        sentences = [torch.cat([torch.randint(4, 40, (size - 1,)), torch.tensor([2])]) for size in sizes]
        write_sentences(folder / name, iter(sentences), dictionary())
    return folder


@pytest.fixture(scope="module")
def checkpoints(data):
    """name -> checkpoint of a masked language model with weights that are not those of its start."""
    found = {}
    for name in ("learned", "t5", "m4"):
        arch = f"roberta_{name}"
        path = data / f"{name}.pt"
        save(trained(arch, path), path, data=str(data), sample_break_mode="eos", tokens_per_sample=32)
        found[name] = str(path)
    return found


@pytest.mark.parametrize("prenorm", [False, True])
def test_the_four_products_add_up_to_the_logits(prenorm):
    stack = stack_of(roberta("roberta_learned", encoder_normalize_before=prenorm)).eval()
    scale_up(stack)
    norms = [stack.layernorm_embedding, stack.layers[0].self_attn_layer_norm]
    for module in [*norms, stack.layers[0].self_attn.q_proj, stack.layers[0].self_attn.k_proj]:
        module.bias.data.zero_()
    position_HTT, context_HTT = scores(stack, IDS, 1)
    assert not position_HTT.any()
    products = correlations(stack, IDS)
    assert list(products) == ["word to word", "word to position", "position to word", "position to position"]
    torch.testing.assert_close(sum(products.values()), context_HTT, atol=1e-4, rtol=1e-4)
    norms[0].bias.data.fill_(2)
    torch.testing.assert_close(correlations(stack, IDS), products)  # a constant is in none of them


def test_a_product_is_that_of_a_loop_over_words_and_positions():
    model = transformer("transformer_learned").eval()
    scale_up(model)
    stack, attention = model.encoder, model.encoder.layers[0].self_attn
    found = correlations(stack, IDS)["word to position"]
    for head in range(3):
        of_head = slice(8 * head, 8 * head + 8)
        for i, word in enumerate(IDS[0]):
            for j in range(IDS.size(1)):
                query = attention.q_proj.weight[of_head] @ (math.sqrt(24) * stack.embed_tokens.weight[word])
                key = attention.k_proj.weight[of_head] @ stack.embed_positions.weight[j + 2]
                torch.testing.assert_close(found[head, i, j], query @ key / math.sqrt(8), atol=1e-4, rtol=1e-4)


def test_models_that_add_no_positions_to_the_words_have_no_products():
    assert correlations(stack_of(roberta("roberta_t5")).eval(), IDS) is None
    assert correlations(language_model("transformer_lm_alibi").eval().decoder, IDS) is None


@pytest.mark.parametrize("number", [1, 3])
def test_scores_of_positions_and_words_give_the_attention(number):
    stack = stack_of(roberta("roberta_t5")).eval()
    scale_up(stack)
    position_HTT, context_HTT = scores(stack, IDS, number)
    encoding = stack.layers[0].self_attn.position_encoding
    for i in range(6):
        for j in range(6):
            bias_H = stack.embed_positions.b[encoding.rows(torch.tensor(j - i))]
            torch.testing.assert_close(position_HTT[:, i, j], bias_H, atol=1e-4, rtol=1e-4)
    weights_HTT = attention_weights(stack, IDS)[number - 1]
    torch.testing.assert_close((position_HTT + context_HTT).softmax(-1), weights_HTT)
    assert all(isinstance(layer.self_attn.backend, Backend) for layer in stack.layers), "nothing is left behind"


def test_vectors_are_the_rows_of_the_table():
    stack = stack_of(roberta("roberta_m4", position_hparams="heads=each max_distance=3"))
    encoding = stack.layers[1].self_attn.position_encoding
    found = vectors(encoding, encoding.stack or stack.embed_positions, 6)
    assert list(found) == ["for queries and keys"]
    (table,) = encoding.parameters()
    for offset in range(-5, 6):
        # the table is [2 k + 1, H D], clipped at k = 3
        expected = table[max(-3, min(3, offset)) + 3].view(3, 8)
        assert torch.equal(found["for queries and keys"][:, offset + 5], expected)


@pytest.mark.parametrize(
    "name, titles",
    [("t5", []), ("shaw", ["for queries"]), ("deberta", ["for queries", "for keys"]), ("m3", ["for products"])],
)
def test_which_tables_an_encoding_has(name, titles):
    stack = stack_of(roberta(f"roberta_{name}"))
    encoding = stack.layers[0].self_attn.position_encoding
    found = list(vectors(encoding, encoding.stack or stack.embed_positions, 6))
    assert [title.removesuffix(" of query and key") for title in found] == titles


def test_heads_are_added_by_their_largest_prior(checkpoints, data, tmp_path, capsys):
    state = load_checkpoint(checkpoints["t5"])
    (bias_key,) = [key for key in state["model"] if key.endswith(".b")]
    table = state["model"][bias_key]  # [rows, H]
    assert table.size(1) == 3
    path = str(tmp_path / "heads.png")
    assert main(["plot", "heads", checkpoints["t5"], "--split", "valid", "--layer", "2", "--output", path]) == 0
    lines = re.findall(r"t5: (\d) heads, (?:head (\d) added|no head): loss \(nats\) ([\d.]+)", capsys.readouterr().out)
    assert [int(count) for count, _, _ in lines] == [0, 1, 2, 3]
    order = [int(head) - 1 for _, head, _ in lines[1:]]
    stack = stack_of(roberta("roberta_t5"))
    rows = stack.layers[0].self_attn.position_encoding.rows(torch.arange(-64, 65))
    largest = table[rows].softmax(0).amax(0)
    assert order == largest.argsort().tolist()
    for count, _, loss in lines:
        # the same model without the columns that read the other heads
        state = load_checkpoint(checkpoints["t5"])
        (weight,) = [w for key, w in state["model"].items() if key.endswith("layers.1.self_attn.out_proj.weight")]
        for without in order[int(count) :]:
            weight[:, 8 * without : 8 * without + 8] = 0
        torch.save(state, tmp_path / "cut.pt")
        (gap,) = order_gap.measure(tmp_path / "cut.pt", data, ["valid"])
        assert abs(gap.loss - float(loss)) < 2e-3


def test_lengths_of_sentences_and_of_pairs(data):
    assert lengths(data, "valid").tolist() == [9, 12, 7, 20, 15]
    assert lengths(data, "train").tolist() == [7, 13]


def test_each_kind_writes_its_picture(checkpoints, data, tmp_path, capsys):
    for kind, *rest in (
        ["correlations", checkpoints["learned"], *TEXT, "--heads", "1,3"],
        ["scores", checkpoints["m4"], *TEXT, "--word", "<mask>", "--layer", "2"],
        ["vectors", checkpoints["m4"], "--head", "2", "--reach", "10"],
        ["lengths", str(data), "--split", "valid"],
    ):
        path = tmp_path / f"{kind}.png"
        assert main(["plot", kind, *rest, "--output", str(path)]) == 0
        assert f"plot: {path}" in capsys.readouterr().out and path.stat().st_size > 5_000


@pytest.mark.parametrize(
    "words, message",
    [
        (["correlations", "t5", *TEXT], "t5 adds no positions to the words"),
        (["scores", "learned", *TEXT, "--word", "w1"], "learned has no position scores of its own"),
        (["scores", "t5", *TEXT, "--word", "w9"], "--word w9: no token of the text; they are <s> w1 w2"),
        (["vectors", "t5"], "t5 has no vectors of relative positions"),
        (["vectors", "m4", "--head", "4"], "--head 4: the heads are 1 to 3"),
        (["heads", "m4", "--split", "valid"], "m4 has no bias of the relative position alone"),
        (["lengths", "absent"], "no train.idx and no input0/train.idx in absent"),
    ],
)
def test_what_cannot_be_drawn_is_one_line(words, message, checkpoints, tmp_path, capsys):
    kind, name, *rest = words
    command = ["plot", kind, checkpoints.get(name, name), *rest, "--output", tmp_path / "x.png"]
    assert_refused(command, message, capsys, tmp_path)

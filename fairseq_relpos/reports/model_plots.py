"""``fairseq-relpos plot correlations|scores|vectors|heads|lengths``: a trained model, or its data, as in the papers."""

import argparse
from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch

from ..terms import Terms, evaluate, over_offsets
from . import attention_plot
from .attention_plot import add_chosen_heads, add_text, print_unknown, read_text
from .checkpoint import STACKS, encoded_stack, load_model, load_positions
from .encoding_plots import add_reach, layer_of, row_values, terms_without_words
from .figures import HEAT, heat_maps, line_colours, name_places, new_figure, save
from .order_gap import every_sample
from .training_log import IN_OWN_UNITS, NATS


def add_layer(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--layer", type=int, metavar="N", help="from 1 (default: the first that has positions)")


def add_correlations(parser: argparse.ArgumentParser) -> None:
    add_text(parser)
    add_chosen_heads(parser)


def plot_correlations(args: argparse.Namespace) -> Path:
    """Plots word-word, word-position, position-word and position-position products in the first layer of a model
    that adds positions to the words (TUPE Eq. 7, Figure 2)."""
    name, which, stack, shown, others = read_text(args)
    products = correlations(stack, shown.ids_1T, **others)
    if products is None:
        raise ValueError(f"{args.checkpoint}: {name} adds no positions to the words, so their products are not mixed")
    heads = attention_plot.numbers("--heads", args.heads, stack.layers[0].self_attn.num_heads)
    maps = [
        (f"{title}, head {head + 1}", product_HTT[head]) for head in heads for title, product_HTT in products.items()
    ]
    title = f"Products of words and positions in the first layer of {name}, {which}"
    print_unknown(shown)
    return heat_maps(maps, len(products), 3.4, "part of the logit (nats)", title, args.output, tokens=shown.labels)


@torch.no_grad()
def correlations(stack: Any, ids_1T: torch.Tensor, **others: Any) -> dict[str, torch.Tensor] | None:
    """Returns the four products, each [H, T, T], or None where positions are not added to the words. Constants (the
    biases of projections and of layer norms) are in none, as in the paper's equation. A layer norm divides words and
    positions by the deviation of their sum, as in the model."""
    found: dict[str, torch.Tensor] = {}
    with ExitStack() as hooks:
        for name in ("embed_tokens", "embed_positions"):
            module = getattr(stack, name)
            hook = module.register_forward_hook(lambda _, args, result, name=name: found.setdefault(name, result))
            hooks.callback(hook.remove)
        stack(ids_1T, **others)
    positions_1TE = found["embed_positions"]
    if not torch.is_tensor(positions_1TE) or not positions_1TE.any():
        return None
    layer = stack.layers[0]
    parts = [stack.embed_scale * found["embed_tokens"], positions_1TE]
    norms = [stack.layernorm_embedding, layer.self_attn_layer_norm if layer.normalize_before else None]
    for norm in norms:
        if norm is not None:
            deviation = (sum(parts).var(-1, unbiased=False, keepdim=True) + norm.eps).sqrt()
            parts = [(part - part.mean(-1, keepdim=True)) / deviation * norm.weight for part in parts]
    attention = layer.self_attn

    def heads_of(part_1TE, projection):
        return (part_1TE[0] @ projection.weight.T).unflatten(-1, (attention.num_heads, -1)).transpose(0, 1)

    queries, keys = ([heads_of(part, p) for part in parts] for p in (attention.q_proj, attention.k_proj))
    scale = attention.head_dim**-0.5
    names = "word", "position"
    return {
        f"{names[i]} to {names[j]}": scale * queries[i] @ keys[j].transpose(1, 2) for i in range(2) for j in range(2)
    }


def add_scores(parser: argparse.ArgumentParser) -> None:
    add_text(parser)
    parser.add_argument("--word", required=True, metavar="TOKEN", help="the token of the text that is the query")
    add_layer(parser)
    add_chosen_heads(parser)


def plot_scores(args: argparse.Namespace) -> Path:
    """Plots position scores, context scores and their sum, for one word of a text as the query (AT5 Figure 2)."""
    name, which, stack, shown, others = read_text(args)
    if args.word not in shown.labels:
        raise ValueError(f"--word {args.word}: no token of the text; they are {' '.join(shown.labels)}")
    query = shown.labels.index(args.word)
    _, number = layer_of(stack, args.layer)
    position_HTS, context_HTS = scores(stack, shown.ids_1T, number, **others)
    if not position_HTS.any():
        raise ValueError(
            f"{args.checkpoint}: {name} has no position scores of its own: its positions reach attention "
            "through the words"
        )
    heads = attention_plot.numbers("--heads", args.heads, len(position_HTS))
    # a causal stack sees no later keys
    keys = shown.labels[: query + 1] if which == "decoder" else shown.labels
    parts = {"position": position_HTS, "context": context_HTS, "sum": position_HTS + context_HTS}
    figure, panels = new_figure(
        len(parts), len(heads), width=max(2.4, 0.18 * len(keys)), height=2.6, sharex=True, sharey="row"
    )
    bars = [(what, head, part_HTS[head, query]) for head in heads for what, part_HTS in parts.items()]
    for panel, (what, head, row_S) in zip(panels, bars):
        colours = ["tab:red" if number == query else "tab:blue" for number in range(len(keys))]
        panel.bar(range(len(keys)), row_S[: len(keys)], color=colours)
        panel.axhline(0, color="black", linewidth=0.6)
        panel.set_title(f"{what}, head {head + 1}", fontsize="medium")
        name_places(panel.xaxis, keys)
    for panel in panels[:: len(parts)]:
        panel.set_ylabel("score (nats)")
    figure.suptitle(f'Scores of the query "{args.word}" in layer {number} of {name}, {which}', parse_math=False)
    print_unknown(shown)
    return save(figure, args.output)


@torch.no_grad()
def scores(stack: Any, ids_1T: torch.Tensor, number: int, **others: Any) -> tuple[torch.Tensor, torch.Tensor]:
    """Returns what positions add to the logits of layer ``number``, from 1, and the logits of the words alone, s q.k;
    both [H, T, T]."""
    attention = stack.layers[number - 1].self_attn
    backend, found = attention.backend, []

    def keep(terms: Terms, *args: Any) -> Any:
        found.append(terms)
        return backend(terms, *args)

    attention.backend = keep
    try:
        stack(ids_1T, **others)
    finally:
        attention.backend = backend
    (terms,) = found
    context_HTT = (terms.scale * terms.q_BHTD @ terms.k_BHSD.mT)[0]
    return evaluate(terms)[0] - context_HTT, context_HTT


def add_vectors(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoint", metavar="CHECKPOINT", help="a .pt file that fairseq-train saved")
    parser.add_argument("--stack", choices=STACKS, help="default: the encoder if there is one")
    add_layer(parser)
    parser.add_argument("--head", type=int, default=1, metavar="N", help="from 1 (default: %(default)s)")
    add_reach(parser, 50)


def plot_vectors(args: argparse.Namespace) -> Path:
    """Plots the relative vectors of one head of one layer (Huang Figure 4)."""
    model, settings, _ = load_positions(args.checkpoint)
    name, _, stack = encoded_stack(model, settings, args.checkpoint, args.stack)
    encoding, number = layer_of(stack, args.layer)
    tables = vectors(encoding, encoding.stack or stack.embed_positions, args.reach + 1)
    if not tables:
        raise ValueError(f"{args.checkpoint}: {name} has no vectors of relative positions; shaw and m4 have")
    if not 1 <= args.head <= encoding.dims.num_heads:
        raise ValueError(f"--head {args.head}: the heads are 1 to {encoding.dims.num_heads}")
    figure, panels = new_figure(columns=len(tables))
    for panel, (title, table_HLD) in zip(panels, tables.items()):
        shared = len(table_HLD) == 1
        table_LD = table_HLD[0 if shared else args.head - 1]
        strongest = table_LD.abs().max().item()
        picture = panel.imshow(
            table_LD,
            cmap=HEAT,
            vmin=-strongest,
            vmax=strongest,
            aspect="auto",
            interpolation="nearest",
            extent=(0.5, table_LD.size(1) + 0.5, args.reach + 0.5, -args.reach - 0.5),
        )
        panel.set_title(f"{title}, {'all heads' if shared else f'head {args.head}'}", fontsize="medium")
        panel.set(xlabel="dimension", ylabel="relative position j - i (tokens)")
        figure.colorbar(picture, ax=panel)
    figure.suptitle(f"Relative vectors of {name}, layer {number}")
    return save(figure, args.output)


def vectors(encoding: Any, part: Any, length: int) -> dict[str, torch.Tensor]:
    """Returns the tables of vectors by what they are multiplied with, each [1|H, 2 length - 1, D] over j - i =
    1 - length .. length - 1."""
    terms = terms_without_words(encoding, part, length)
    tables = {}
    for title, table, rows in (
        ("for queries", terms.A, terms.rows),
        ("for keys", terms.C, terms.C_rows or terms.rows),
        ("for products of query and key", terms.gate, terms.rows),
    ):
        if table is not None:
            tables[title] = over_offsets(table.detach(), rows, length, length)
    if len(tables) == 2 and torch.equal(*tables.values()):
        return {"for queries and keys": tables["for queries"]}
    return tables


def add_heads(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("checkpoints", nargs="+", metavar="CHECKPOINT", help="a .pt file that fairseq-train saved")
    parser.add_argument("--data", metavar="DIR", help="folder with the data (default: those of the training)")
    parser.add_argument("--split", default="test", help="default: %(default)s")
    parser.add_argument("--stack", choices=STACKS, help="whose heads (default: the encoder's if there is one)")
    add_layer(parser)
    add_reach(parser, 64)


def plot_heads(args: argparse.Namespace) -> Path:
    """Plots a score while the heads of one layer are added one at a time, in ascending order of the maximum of their
    prior (AT5 Figure 5). The prior of a head is the softmax of its bias over the relative positions."""
    curves = [heads_added(args, checkpoint) for checkpoint in args.checkpoints]
    metrics = {metric for _, metric, _, _ in curves}
    if len(metrics) > 1:
        raise ValueError(f"the trainings have different --best-checkpoint-metric: {' and '.join(sorted(metrics))}")
    figure, (panel,) = new_figure(width=6)
    for (name, metric, heads, values), colour in zip(curves, line_colours(len(curves))):
        panel.plot(range(len(values)), values, marker="o", color=colour, label=name)
        for count, value in enumerate(values):
            added = f"head {heads[count - 1] + 1} added" if count else "no head"
            print(f"{name}: {count} heads, {added}: {metric} {value:g}")
    panel.locator_params(axis="x", integer=True)
    panel.set(xlabel="heads, added by their largest prior", ylabel=f"{metric}, {args.split}")
    panel.legend()
    return save(figure, args.output)


def heads_added(args: argparse.Namespace, checkpoint: str) -> tuple[str, str, list[int], list[float]]:
    """Returns the encoding, the metric by which the training chose its best checkpoint, the heads in the order in which
    they are added, and the metric with 0, 1, .. of them."""
    model, settings, task = load_model(checkpoint, args.data)
    name, _, stack = encoded_stack(model, settings, checkpoint, args.stack)
    encoding, number = layer_of(stack, args.layer)
    curves = row_values(encoding, encoding.stack or stack.embed_positions, args.reach + 1)
    if curves is None or "bias" not in curves[1]:
        raise ValueError(f"{checkpoint}: {name} has no bias of the relative position alone, so its heads have no prior")
    seen = args.reach + 1 if encoding.dims.causal else None  # a causal stack sees no key to the right
    prior_HL = curves[0][:, :seen].softmax(-1).expand(encoding.dims.num_heads, -1)
    order = prior_HL.max(-1).values.argsort(stable=True).tolist()
    metric = settings.checkpoint.best_checkpoint_metric
    in_bits = metric in ("loss", "nll_loss") and settings.criterion._name not in IN_OWN_UNITS
    criterion = task.build_criterion(settings.criterion)
    if torch.cuda.is_available():
        model.cuda()
    attention = stack.layers[number - 1].self_attn
    values = []
    for count in range(len(order) + 1):
        found = score(model, task, criterion, args.split, attention, order[:count])
        values.append(found[metric] * (NATS if in_bits else 1))
    return name, f"{metric} (nats)" if in_bits else metric, order, values


def score(model: Any, task: Any, criterion: Any, split: str, attention: Any, heads: Sequence[int]) -> dict[str, float]:
    """Returns the training's own metrics of a split where only these heads of a layer give anything to its output."""
    from fairseq.logging import metrics

    kept_H = torch.zeros(attention.num_heads)
    kept_H[list(heads)] = 1
    kept_E = kept_H.repeat_interleave(attention.head_dim)
    hook = attention.out_proj.register_forward_pre_hook(lambda _, args: (args[0] * kept_E.to(args[0]),))
    try:
        logs = [task.valid_step(sample, model, criterion)[2] for sample in every_sample(model, task, split)]
    finally:
        hook.remove()
    with metrics.aggregate(new_root=True) as found:
        task.reduce_metrics(logs, criterion)
    return found.get_smoothed_values()


def add_lengths(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("data", nargs="+", metavar="DATA", help="a folder that prepare.sh or fairseq-preprocess wrote")
    parser.add_argument("--split", default="train", help="default: %(default)s")


def plot_lengths(args: argparse.Namespace) -> Path:
    """Plots the lengths of the inputs of data sets (LFHC/GCDF Figure 4)."""
    sizes = {folder: lengths(folder, args.split) for folder in args.data}
    figure, panels = new_figure(min(3, len(sizes)), -(-len(sizes) // 3))
    for panel, (folder, sizes_N) in zip(panels, sizes.items()):
        panel.hist(sizes_N, bins=50)
        panel.set_title(Path(folder).name)
        panel.set(xlabel="length of an input (tokens)", ylabel="inputs")
        print(
            f"{folder}: {len(sizes_N):,} inputs of {sizes_N.min()} to {sizes_N.max()} tokens, "
            f"mean {sizes_N.double().mean():.1f}, median {sizes_N.median()}"
        )
    for panel in panels[len(sizes) :]:
        panel.set_axis_off()
    return save(figure, args.output)


def lengths(folder: str | Path, split: str) -> torch.Tensor:
    """Returns the number of tokens of each input, [N]; that of a pair is the sum of both."""
    from fairseq.data.data_utils import load_indexed_dataset

    files = sorted(Path(folder).glob(f"input?/{split}.idx")) or sorted(Path(folder).glob(f"{split}.idx"))
    if not files:
        raise ValueError(f"no {split}.idx and no input0/{split}.idx in {folder}: give a folder of binarised text")
    total = torch.zeros(1, dtype=torch.long)
    for file in files:
        text = load_indexed_dataset(str(file.with_suffix("")))
        total = total + torch.tensor(text.sizes)  # a copy: without its text the file is closed
    return total

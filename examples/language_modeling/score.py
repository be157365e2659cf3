"""Scores a whole text with a language model, with and without a memory:

    python score.py CHECKPOINT DATA SCORES.json SAME_LENGTH STREAMS TOKENS/MEMORY[/CLAMP]...

The test text of DATA, in segments of so many tokens that follow each other in STREAMS streams. Every token is
scored once. SCORES.json has the sum of -log p (nats) for each memory; figures.py makes perplexity per word or
bits per byte of it and of DATA/counts.json. An encoding that cannot remember has the reason in place of a sum.
"""

import json
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1] / "common"))
from messages import fail, in_one_line  # noqa: E402

from fairseq_relpos.atomic_files import write_json  # noqa: E402

SPLIT = "test"


def evaluation_of(text):
    """TOKENS/MEMORY[/CLAMP] -> three numbers, the last may be None"""
    numbers = text.split("/")
    if len(numbers) not in (2, 3) or not all(number.isdecimal() for number in numbers) or int(numbers[0]) == 0:
        fail(f"EVALUATIONS: {text!r} is not TOKENS/MEMORY or TOKENS/MEMORY/CLAMP, as 64/640/400")
    return (*map(int, numbers), None)[:3]


def load(checkpoint, data, tokens, memory, clamp, same_length):
    """The model and its task for this evaluation; ValueError where the encoding cannot."""
    from fairseq import checkpoint_utils, tasks
    from omegaconf import open_dict

    from fairseq_relpos.encodings import find, parse_hparams

    state = checkpoint_utils.load_checkpoint_to_cpu(checkpoint)
    settings = state["cfg"]
    with open_dict(settings.task):
        settings.task._name = "lm_streams" if memory else "language_modeling"
        settings.task.data, settings.task.tokens_per_sample = data, tokens
        settings.task.eval_memory_length, settings.task.same_length = memory, same_length and memory > 0
    model = settings.model
    model.attention_backend = "auto"  # it may be another machine
    if clamp is not None and "clamp" in find(model.position_encoding).free_in_evaluation:
        hparams = {**parse_hparams(model.position_hparams), "clamp": str(clamp)}
        model.position_hparams = " ".join(map("=".join, hparams.items()))
    task = tasks.setup_task(settings.task, from_checkpoint=True)
    models, _, _ = checkpoint_utils.load_model_ensemble_and_task([checkpoint], task=task, state=state)
    return models[0].eval(), task, task.build_criterion(settings.criterion)


def nats_of(model, task, criterion, streams):
    """The sum of -log p, and the number of tokens that it is of."""
    import torch
    from fairseq import utils

    task.load_dataset(SPLIT)
    batches = task.get_batch_iterator(
        task.dataset(SPLIT), max_sentences=streams, required_batch_size_multiple=1, disable_iterator_cache=True
    ).next_epoch_itr(shuffle=False)
    on_gpu = torch.cuda.is_available()
    if on_gpu:
        model.cuda()
    nats = scored = 0
    for batch in batches:
        loss, _, logged = task.valid_step(utils.move_to_cuda(batch) if on_gpu else batch, model, criterion)
        nats += float(loss)
        scored += int(logged["ntokens"])
    return nats, scored


def main(checkpoint, data, target, same_length, streams, *evaluations):
    import fairseq_relpos

    fairseq_relpos.register()
    counts = json.loads(Path(data, "counts.json").read_text(encoding="utf-8"))
    found = []
    for tokens, memory, clamp in map(evaluation_of, evaluations):
        how = {"tokens": tokens, "memory": memory, "clamp": clamp}
        try:
            loaded = load(checkpoint, data, tokens, memory, clamp, same_length == "yes")
            nats, scored = nats_of(*loaded, int(streams))
            if scored != counts[SPLIT]["tokens"]:
                fail(f"{SPLIT}: {scored:,} tokens were scored, the text has {counts[SPLIT]['tokens']:,}")
            found.append({**how, "nats": nats})
        except ValueError as error:
            found.append({**how, "refused": str(error)})
    if all("refused" in one for one in found):  # no gap in a table, but a model or data that cannot be used
        fail(found[0]["refused"])
    write_json(target, {"counts": counts, "scores": found})


if __name__ == "__main__":
    checkpoint, data, target, *_ = sys.argv[1:]
    with in_one_line(Path(target).parent):
        main(*sys.argv[1:])

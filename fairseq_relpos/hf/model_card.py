"""The README.md of an exported model."""

import json
from argparse import Namespace
from typing import Any

from ..version import install_package

CARD = """---
license: unknown  # FILL IN: the licence of the weights, such as mit or cc-by-4.0
language: []  # FILL IN, such as [en]
datasets: []  # FILL IN: what it was trained on
library_name: transformers
pipeline_tag: {pipeline}
tags: [fairseq, {encoding}]
---

# FILL IN: name of the model

{what}

| | |
|---|---|
| position encoding | `{encoding}` |
| its hyperparameters | `{hparams}` |
| signature | `{signature}` |
| layers, dimension, heads, feed-forward | {layers}, {dim}, {heads}, {ffn} |
| parameters | {parameters:,} |
| longest input | {longest} tokens |
| words | {vocabulary}{tokenizer} |

## Use

```python
{imports}from transformers import {auto}, AutoTokenizer

model = {auto}.from_pretrained("DIR")
tokenizer = AutoTokenizer.from_pretrained("DIR")
```
{moses}
## Training

```json
{training}
```

Trained with fairseq and exported by `fairseq-relpos export-hf`. The logits of fairseq's model and of this one differed
by {difference:.2g} at most; the largest was {largest:.3g}.{texts}

## Licence

FILL IN: who made the model, from which data, and what others may do with it. The data's licence may say more than
yours.
"""

#: settings of the training, by the part of fairseq's configuration that has them
TRAINING = {
    "common": ("seed", "fp16", "bf16"),
    "dataset": ("max_tokens", "batch_size"),
    "optimization": ("max_update", "max_epoch", "update_freq", "lr", "clip_norm"),
    "task": ("_name", "source_lang", "target_lang", "tokens_per_sample", "mask_prob", "sample_break_mode"),
    "criterion": ("_name",),
    "optimizer": ("_name", "adam_betas", "adam_eps", "weight_decay"),
    "lr_scheduler": ("_name", "warmup_updates"),
}


def text(cfg: Any, args: Namespace, model: Any, checked: Any, words: Any) -> str:
    """cfg: fairseq's configuration. args: the settings of its model. checked: the result of the comparison."""
    config = model.config
    ours = config.model_type.startswith("relpos_")
    needs_package = ours or (words is not None and words.fast is None)
    kind = type(model).__name__.split("For")[-1]
    pipeline, what = {
        "MaskedLM": ("fill-mask", "A RoBERTa"),
        "SequenceClassification": ("text-classification", "A RoBERTa that was fine-tuned to classify texts"),
        "QuestionAnswering": ("question-answering", "A RoBERTa that was fine-tuned to answer questions"),
        "CausalLM": ("text-generation", "A language model"),
        "ConditionalGeneration": ("translation", "An encoder-decoder model"),
    }[kind]
    # an encoder-decoder model has settings for each stack
    both = kind == "ConditionalGeneration"
    stacks = [config.encoder, config.decoder] if both else [config]

    def of_all(name: str) -> str:
        return " + ".join(dict.fromkeys(str(getattr(stack, name)) for stack in stacks))

    if ours:
        encoding, hparams = of_all("position_encoding"), of_all("position_hparams")
        signature = of_all("position_signature")
        what += f" with the position encoding `{encoding}` of fairseq_relpos."
    else:
        encoding, hparams, signature = args.position_encoding, args.position_hparams, f"pe:{args.position_encoding}"
        needs = "its tokenizer needs fairseq_relpos" if needs_package else "it needs no other package"
        what += f" as transformers has it; {needs}."
    settings = {}
    for part, names in TRAINING.items():
        values = {name: plain(getattr(getattr(cfg, part, None), name, None)) for name in names}
        settings[part] = {name: value for name, value in values.items() if value is not None}
    return CARD.format(
        pipeline=pipeline,
        encoding=encoding,
        what=what,
        hparams=hparams or "none",
        signature=signature.replace("|", "\\|"),  # it stands in a table
        layers=of_all("num_hidden_layers"),
        dim=of_all("hidden_size"),
        heads=of_all("num_attention_heads"),
        ffn=of_all("intermediate_size"),
        parameters=checked.parameters,
        longest=of_all("max_position_embeddings") if ours else args.max_positions,
        vocabulary=of_all("vocab_size"),
        tokenizer="" if words is None else f", {words.kind}",
        imports=f"import fairseq_relpos.hf  # {install_package('hf')}\n" if needs_package else "",
        auto="AutoModelForSeq2SeqLM" if both else f"AutoModelFor{kind}",
        moses="\nThe tokenizer expects text in the tokens of Moses (`sacremoses`), as the training had it.\n"
        if words is not None and words.moses
        else "",
        training=json.dumps(settings, indent=1),
        difference=checked.difference,
        largest=checked.largest,
        texts="" if words is None else f" {checked.texts:,} texts got the same ids from both tokenizers.",
    )


def plain(value: Any) -> Any:
    """The value as JSON has it."""
    if value is None or isinstance(value, (bool, int, float, str)):
        return getattr(value, "value", value)  # fairseq's choices are texts with a value
    try:
        return [plain(item) for item in value]
    except TypeError:
        return str(value)

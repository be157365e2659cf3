"""Print how much of its attention each head gives to <s>: first_token.py DATA SPLIT CHECKPOINT...

The mean over all tokens but <s> of some blocks of the text. Where the encoding has TUPE's reset also theta_2, the
position score of these tokens with <s>, with what tupe_r adds to it.
"""

import os
import sys

BLOCKS = 50


def main(data, split, *checkpoints):
    # takes seconds: after the arguments have been looked at
    import torch
    from fairseq.data import data_utils

    from fairseq_relpos.reports.attention_plot import attention_weights
    from fairseq_relpos.reports.checkpoint import choose_stack, load_model

    for path in checkpoints:
        model, settings, task = load_model(path, data)
        _, stack = choose_stack(model, "encoder")
        text = data_utils.load_indexed_dataset(os.path.join(data, split), task.source_dictionary)
        if text is None:
            raise ValueError(f"no split {split} in {data}: give the name of a file .bin there")
        length = settings.task.tokens_per_sample - 1
        tokens = torch.cat([text[n] for n in range(len(text))])[: BLOCKS * length].long()
        start = tokens.new_tensor([task.source_dictionary.bos()])
        blocks = [torch.cat([start, block])[None] for block in tokens.split(length)]
        with torch.no_grad():
            weights = [attention_weights(stack, block)[:, :, 1:, 0].mean(-1) for block in blocks]
            for layer, shares in enumerate(torch.stack(weights).mean(0), 1):
                print(f"{path}: layer {layer}, attention to <s>: {', '.join(f'{share:.1%}' for share in shares)}")
            if getattr(stack.embed_positions, "untied", False):
                print(f"{path}: theta_2: {', '.join(f'{theta:.1f}' for theta in stack.embed_positions.reset_2H()[1])}")


if __name__ == "__main__":
    if len(sys.argv) < 4:
        sys.exit(__doc__.split("\n\n")[0])
    try:
        main(*sys.argv[1:])
    except (ValueError, OSError) as error:
        sys.exit(f"first_token.py: error: {error}")

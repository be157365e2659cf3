"""The interface that from_pretrained of a RoBERTa returns."""

import torch
from fairseq import utils
from fairseq.models.roberta.hub_interface import RobertaHubInterface

MASK = "<mask>"


class RelPosHubInterface(RobertaHubInterface):
    """fairseq's interface, whose own fill_mask drops <s> and </s> from the words but not from the probabilities: the
    words after them get wrong ones."""

    def fill_mask(self, masked_input: str, topk: int = 5) -> list[tuple[str, float, str]]:
        """Returns the filled text, the probability and the word for each of the ``topk`` most likely words."""
        if masked_input.count(MASK) != 1:
            raise ValueError(f"{masked_input!r}: give a text with one {MASK}")
        symbols = self.task.source_dictionary
        pieces = f" {MASK} ".join(self.bpe.encode(text.rstrip()) for text in masked_input.split(MASK))
        tokens_T = symbols.encode_line(f"<s> {pieces} </s>", append_eos=False, add_if_not_exist=False).long()
        with utils.model_eval(self.model), torch.no_grad():
            logits_BTV, _ = self.model(tokens_T[None].to(self.device))
        (probability_V,) = logits_BTV[0, tokens_T == self.task.mask_idx].softmax(dim=-1)
        best = [i for i in probability_V.argsort(descending=True).tolist() if i not in (symbols.bos(), symbols.eos())]
        replaced = f" {MASK}" if f" {MASK}" in masked_input else MASK
        filled = []
        for i in best[:topk]:
            word = self.bpe.decode(symbols[i])
            if symbols[i].startswith("\u2581"):  # SentencePiece's space, which decode drops
                word = f" {word}"
            filled.append((masked_input.replace(replaced, word), probability_V[i].item(), word))
        return filled

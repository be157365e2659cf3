"""torch.hub: pretrained RoBERTas with any position encoding.

roberta = torch.hub.load(
    "/path/to/this/repository", "roberta", "/path/to/model", source="local",
    checkpoint_file="checkpoint_best.pt", data_name_or_path="/path/to/data-bin",
    bpe="sentencepiece", sentencepiece_model="/path/to/sentencepiece.bpe.model",
)
roberta.fill_mask("The cat <mask> on the mat.")
"""

dependencies = ["torch", "numpy", "fairseq", "sentencepiece"]


def roberta(model, checkpoint_file="model.pt", data_name_or_path=".", **settings):
    """A checkpoint of roberta_NAME behind fairseq's RobertaHubInterface: encode, decode,
    fill_mask, extract_features, register_classification_head, predict.

    model: a folder with the checkpoint in it, or a .tar.gz of one, or the http address of that. An archive is unpacked
    once, in torch.hub's own folder.
    data_name_or_path: where dict.txt is; "." is the model's own folder. A file
    sentencepiece.bpe.model in that folder needs no sentencepiece_model. settings:
    bpe="sentencepiece", and whatever of the checkpoint's settings is to be another.
    """
    from fairseq_relpos.checkpoints import archives
    from fairseq_relpos.models.roberta import RelPosRoberta

    model = archives.unpacked(str(model)) if archives.is_archive(str(model)) else model  # also without the mend
    return RelPosRoberta.from_pretrained(model, checkpoint_file, data_name_or_path, **settings)

"""torch.hub: pretrained RoBERTas with any position encoding.

roberta = torch.hub.load(
    "/path/to/this/repository", "roberta", "/path/to/model", source="local",
    checkpoint_file="checkpoint_best.pt", data_name_or_path="/path/to/data-bin",
    bpe="sentencepiece", sentencepiece_model="/path/to/sentencepiece.bpe.model",
)
roberta.fill_mask("The cat <mask> on the mat.")
"""

import hashlib
import os
import platform
import tarfile
import tempfile

import torch

dependencies = ["torch", "numpy", "fairseq", "sentencepiece"]


def roberta(model, checkpoint_file="model.pt", data_name_or_path=".", **settings):
    """A checkpoint of roberta_NAME behind fairseq's RobertaHubInterface: encode, decode,
    fill_mask, extract_features, register_classification_head, predict.

    model: a folder with the checkpoint in it, or the http address of a .tar.gz of one.
    data_name_or_path: where dict.txt is; "." is the model's own folder. A file
    sentencepiece.bpe.model in that folder needs no sentencepiece_model. settings:
    bpe="sentencepiece", and whatever of the checkpoint's settings is to be another.
    """
    from fairseq_relpos.models.roberta import RelPosRoberta

    if model.startswith(("http://", "https://")):
        model = _downloaded(model)
    return RelPosRoberta.from_pretrained(model, checkpoint_file, data_name_or_path, **settings)


def _downloaded(address):
    """The folder that the archive at ``address`` is of, kept in torch.hub's own folder.

    fairseq could do this too, but with the package requests, and trusting the archive with
    any path on the disk.
    """
    name = hashlib.sha256(address.encode()).hexdigest()[:16]
    folder = os.path.join(torch.hub.get_dir(), "fairseq_relpos", name)
    if not os.path.isdir(folder):
        if not hasattr(tarfile, "data_filter"):
            raise ValueError(
                f"this Python ({platform.python_version()}) cannot unpack an archive from the internet safely: "
                f"update it to 3.10.12, 3.11.4 or newer, or unpack {address} yourself and give the folder"
            )
        os.makedirs(os.path.dirname(folder), exist_ok=True)
        with tempfile.TemporaryDirectory(dir=os.path.dirname(folder)) as work:
            archive, unpacked = os.path.join(work, "archive"), os.path.join(work, "unpacked")
            torch.hub.download_url_to_file(address, archive)
            with tarfile.open(archive) as files:
                files.extractall(unpacked, filter="data")
            os.rename(unpacked, folder)
    inside = [os.path.join(folder, name) for name in os.listdir(folder)]
    return inside[0] if len(inside) == 1 and os.path.isdir(inside[0]) else folder

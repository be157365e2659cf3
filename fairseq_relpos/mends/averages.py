"""The average of the weights that fairseq keeps with --store-ema."""

from .replace import replace


def keep_versions() -> None:
    """Leaves the averaged model its ``version`` at each update. Stock fairseq does not average versions, and loads the
    rest; a stack whose file has no version is taken for an old one, without a norm after its last layer."""
    from fairseq.models.ema.ema import EMA

    @replace(EMA, "restore", "averaged-versions")
    def with_versions(stock, self, state_dict, *args, **kwargs):
        for key, value in self.model.state_dict().items():
            if "version" in key:
                state_dict.setdefault(key, value)
        return stock(self, state_dict, *args, **kwargs)


INSTALLERS = (keep_versions,)

"""What a chosen optimizer, scheduler or criterion cannot do without."""

import dataclasses

from ..shims import replace


def name_the_missing_flag():
    """--lr-scheduler polynomial_decay without --total-num-update, and the like, are one line.

    All versions end in hydra's traceback ("Error merging override lr_scheduler.total_num_update=null").
    """
    from fairseq import options
    from fairseq.registry import REGISTRIES

    @replace(options, "parse_args_and_arch")
    def check(stock, parser, *args, **kwargs):
        parsed = stock(parser, *args, **kwargs)
        given = vars(parsed[0] if isinstance(parsed, tuple) else parsed)
        for kind, registry in REGISTRIES.items():
            chosen = registry["dataclass_registry"].get(given.get(kind))
            for field in dataclasses.fields(chosen) if chosen is not None else ():
                if given.get(field.name, "") is None and field.type in (int, float):
                    flag = field.name.replace("_", "-")
                    raise ValueError(f"--{kind.replace('_', '-')} {given[kind]} needs a number: give --{flag}")
        return parsed

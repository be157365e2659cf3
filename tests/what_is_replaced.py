"""Compares what the plugin replaces in the libraries around it with its catalogue.

    python tests/what_is_replaced.py MENDS ARGUMENT...

Prints JSON: {"found": [...], "listed": [...]}, names such as "fairseq.trainer.Trainer.__new__", after a run of
fairseq-train with the arguments, which has replaced what is replaced late. MENDS "encodings" imports parts of the
package that promise to replace nothing, and runs nothing.
"""

import importlib
import json
import logging
import os
import pkgutil
import sys
import types

LIBRARIES = ("fairseq", "fairseq_cli", "torch", "numpy", "hydra", "omegaconf")


def main(mends, arguments):
    import fairseq_cli.train
    import torch.distributed.nn.functional
    import torch.utils.data  # noqa: F401

    for module in ("generate", "validate", "preprocess", "interactive", "eval_lm"):
        importlib.import_module(f"fairseq_cli.{module}")
    for package in ("fairseq.tasks", "fairseq.models", "fairseq.data", "fairseq.optim"):
        for found in pkgutil.iter_modules(importlib.import_module(package).__path__, f"{package}."):
            try:
                importlib.import_module(found.name)
            except ImportError:
                pass  # of a library that is not installed
    before = snapshot()
    if mends == "encodings":
        for part in ("encodings", "terms", "backends", "positions", "rows", "cli.catalogue", "cli.show", "cli.params"):
            importlib.import_module(f"fairseq_relpos.{part}")
        print(json.dumps({"found": differences(before), "listed": []}))
        return
    os.environ["FAIRSEQ_RELPOS_MENDS"] = mends
    sys.argv = ["fairseq-train", *arguments]
    fairseq_cli.train.cli_main()
    from fairseq_relpos.mends.replace import REPLACED

    logging.shutdown()
    print(json.dumps({"found": differences(before), "listed": sorted(f"{owner}.{name}" for owner, name in REPLACED)}))


def snapshot():
    """{name: object} of all functions, classes and properties of the libraries, and of their classes."""
    found = {}
    for module_name, module in list(sys.modules.items()):
        if module_name.split(".")[0] not in LIBRARIES or getattr(module, "__name__", None) != module_name:
            continue  # some modules have a second, older name
        for name, value in list(vars(module).items()):
            if isinstance(value, types.ModuleType) or (name.startswith("__") and name != "__init__"):
                continue
            if callable(value) or isinstance(value, (property, types.SimpleNamespace)):
                found[f"{module_name}.{name}"] = value
            if isinstance(value, type) and value.__module__ == module_name:
                for attribute, method in vars(value).items():
                    if callable(method) or isinstance(method, (property, classmethod, staticmethod)):
                        found[f"{module_name}.{value.__qualname__}.{attribute}"] = method
    return found


def differences(before):
    """The names whose objects have changed, or are new in a module or class that was there."""
    modules = {name.rsplit(".", 1)[0] for name in before}
    return sorted(
        name
        for name, value in snapshot().items()
        if before.get(name) is not value and name.rsplit(".", 1)[0] in modules and is_of_the_plugin(value)
    )


def is_of_the_plugin(value):
    """A library may put off its own names, too."""
    value = getattr(value, "fget", None) or getattr(value, "__func__", None) or value
    if isinstance(value, types.SimpleNamespace):
        return True
    globals_of = getattr(value, "__globals__", None)
    where = globals_of["__name__"] if globals_of else getattr(value, "__module__", "") or ""
    return where.split(".")[0] == "fairseq_relpos"


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
    # without end-threads, the thread that reads batches ahead may abort the process while Python shuts down
    sys.stdout.flush()
    os._exit(0)

"""The direction of dependencies, and the mathematics without fairseq."""

import ast
import importlib.util
import re
import sys
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
import pythons

PACKAGE = Path(__file__).parents[1] / "fairseq_relpos"
#: every module and package, and __init__ as "fairseq_relpos": each imports only what is listed before it, also inside a
#: function
ORDER = """
version visible command_line once ranks atomic_files diverged vocabulary_files references layer_numbers
tensors positions rows gated terms encodings backends biases segments signature real_tokens self_attention vectors
architectures nn hf attention flags checkpoints mends layers override criterions optim tasks models fairseq_relpos
reports finetuning exchange cli __main__
""".split()
#: the mathematics knows less than what is listed before it
MATHS = {"positions", "rows", "terms"}
ALLOWED = {
    "layer_numbers": set(),
    "tensors": set(),
    "positions": set(),
    "rows": {"tensors"},
    "gated": {"tensors"},
    "terms": {"gated", "rows", "tensors"},
    "encodings": MATHS | {"layer_numbers", "once", "tensors"},
    "backends": {"terms", "positions", "gated", "tensors"},
    "segments": {"once"},
    "signature": {"layer_numbers", "once"},
    "real_tokens": set(),
    "self_attention": {"backends", "encodings", "positions", "real_tokens"},
    "nn": MATHS - {"rows"} | {"backends", "encodings", "layer_numbers", "real_tokens", "self_attention", "signature"},
    "hf": {"encodings", "nn", "signature", "version", "vocabulary_files"},
    "attention": {"backends", "encodings", "positions", "real_tokens", "self_attention"},
}
TORCH_ONLY = ["once", "tensors", "positions", "rows", "terms", "segments", "gated", "encodings", "backends"]
TORCH_ONLY += ["layer_numbers", "signature", "real_tokens", "self_attention", "nn"]
# what a backend imports when it is first used
IMPORTED_LATE = {"triton_kernels.py": {"triton"}}


def files_of(part):
    path = PACKAGE / part
    return sorted(path.glob("**/*.py")) if path.is_dir() else [path.with_suffix(".py")]


def imports(file):
    """Top-level packages outside this one that a file imports."""
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and not node.level:
            yield node.module.split(".")[0]


def module_of(file):
    """The full name of a file's module."""
    name = ".".join(file.relative_to(PACKAGE.parent).with_suffix("").parts)
    return name.removesuffix(".__init__")


MODULES = {module_of(file): file for file in PACKAGE.rglob("*.py")}


def modules_imported(module):
    """The modules of this package that one of them imports, also inside a function."""
    file = MODULES[module]
    package = module if file.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name.split(".")[0] == PACKAGE.name)
        elif isinstance(node, ast.ImportFrom):
            base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
            if base.split(".")[0] == PACKAGE.name:
                names = (f"{base}.{alias.name}" for alias in node.names)
                yield from (name if name in MODULES else base for name in names)


def part_of(module):
    return module.removeprefix(f"{PACKAGE.name}.").split(".")[0]


def test_every_part_has_a_place_in_the_order():
    assert sorted(ORDER) == sorted({part_of(module) for module in MODULES})


def test_the_map_of_the_code_names_every_part():
    code = (PACKAGE.parent / "CONTRIBUTING.md").read_text().split("## Map of the code")[1].split("```")[1]
    named = re.findall(r"^  (\w+)(?:/|\.py)(?: (\w+)/)?", code, re.M)
    assert {name for names in named for name in names if name} == {*ORDER} - {"fairseq_relpos", "__main__"}


@pytest.mark.parametrize("part", ORDER)
def test_parts_import_only_what_is_before_them_in_the_order(part):
    before = {*ORDER[: ORDER.index(part)], part}
    for module in (name for name in MODULES if part_of(name) == part):
        imported = {part_of(name) for name in modules_imported(module)}
        assert imported <= ALLOWED.get(part, before) | {part}, module


def test_no_modules_import_one_another_in_a_circle():
    graph = {module: [name for name in modules_imported(module) if name != module] for module in MODULES}
    TopologicalSorter(graph).prepare()


@pytest.mark.parametrize("part", TORCH_ONLY)
def test_the_mathematics_needs_torch_alone(part):
    for file in files_of(part):
        for name in imports(file):
            known = {"torch", *sys.stdlib_module_names, *IMPORTED_LATE.get(file.name, ())}
            assert name.startswith(".") or name in known, file


def test_models_for_transformers_need_no_fairseq():
    for file in files_of("hf"):
        allowed = {"torch", "transformers", "tokenizers", "sentencepiece", "huggingface_hub", *sys.stdlib_module_names}
        outside = {name for name in imports(file) if not name.startswith(".")} - {"torchaudio"}
        assert outside <= allowed, file


def test_backends_and_attention_name_no_encoding():
    from fairseq_relpos.encodings import ENCODINGS

    for part in ("backends", "attention", "self_attention", "terms", "positions"):
        for file in files_of(part):
            strings = {
                node.value
                for node in ast.walk(ast.parse(file.read_text()))
                if isinstance(node, ast.Constant) and isinstance(node.value, str)
            }
            assert not strings & set(ENCODINGS), file


def test_without_fairseq_the_encodings_and_the_list_work():
    program = (
        "import importlib.util, sys\n"
        "real = importlib.util.find_spec\n"
        "importlib.util.find_spec = lambda name, *a: None if name == 'fairseq' else real(name, *a)\n"
        "sys.modules['fairseq'] = None\n"
        "from fairseq_relpos.encodings import build, Dims\n"
        "build('tupe_r', Dims(8, 2, 9))\n"
        "from fairseq_relpos.cli import main\n"
        "sys.exit(main(['list']))\n"
    )
    assert "tupe_r" in pythons.output("-c", program)


def test_a_fairseq_that_is_present_and_broken_is_an_error(tmp_path):
    broken = tmp_path / "fairseq"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('broken on purpose')\n")
    path = f"{tmp_path}:{PACKAGE.parent}"
    done = pythons.run("-c", "import fairseq_relpos; fairseq_relpos.register()", PYTHONPATH=path)
    assert done.returncode != 0 and "broken on purpose" in done.stderr
    # as the console script does it
    command = "from fairseq_relpos.__main__ import main; main(['list'])"
    assert "tupe_r" in pythons.output("-c", command, PYTHONPATH=path)


@pytest.mark.slow
@pytest.mark.parametrize(
    "program",
    [
        # once, whatever comes first; fairseq logs a line where it is imported before the mends
        "import logging\n"
        "logging.disable()\n"
        "import fairseq_relpos.cli\n"
        "from fairseq_relpos.attention import RelPosMultiheadAttention as found\n"
        "from fairseq_relpos.override import RelPosMultiheadAttention as replaced\n"
        "assert found is replaced",
        "import logging\n"
        "logging.disable()\n"
        "import fairseq_relpos.cli\n"
        "from fairseq_relpos.checkpoints.tupe import official_dictionary",
        "import fairseq_relpos.rows, fairseq_relpos.models.roberta\n"
        "from fairseq.models import MODEL_REGISTRY\n"
        "assert MODEL_REGISTRY['roberta_relpos'] is fairseq_relpos.models.roberta.RelPosRoberta\n"
        "assert 'electra_relpos' in MODEL_REGISTRY",
        # mended before fairseq is imported
        "import logging, sys\n"
        "import fairseq_relpos.cli\n"
        "import fairseq_relpos.mends.command, fairseq_relpos.mends.messages, fairseq_relpos.mends.reading\n"
        "assert 'fairseq' not in sys.modules\n"
        "import fairseq_relpos.exchange.from_transformers\n"
        "assert (logging.root.level, logging.root.handlers) == (logging.WARNING, [])\n"
        "assert fairseq_relpos.mends.replace.REPLACED",
        # archives are unpacked safely although no model has been built
        "import logging\n"
        "logging.disable()\n"
        "import fairseq\n"
        "import fairseq_relpos.encodings\n"
        "from fairseq_relpos.models.roberta import RelPosRoberta\n"
        "from fairseq import file_utils\n"
        "assert not RelPosRoberta.hub_models()\n"
        "assert hasattr(file_utils.load_archive_file, '__wrapped__')",
        # a registration that failed is tried again
        "import sys\n"
        "import fairseq_relpos.cli\n"
        "sys.modules['fairseq_relpos.models.roberta'] = None\n"
        "try:\n"
        "    fairseq_relpos.register()\n"
        "except ImportError:\n"
        "    del sys.modules['fairseq_relpos.models.roberta']\n"
        "fairseq_relpos.register()\n"
        "from fairseq.models import MODEL_REGISTRY\n"
        "assert 'roberta_relpos' in MODEL_REGISTRY and fairseq_relpos.mends.replace.REPLACED",
    ],
)
def test_a_part_may_be_the_first_to_import_fairseq(program):
    done = pythons.run("-c", program)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_module_that_runs_by_itself_may_be_the_first_to_import_fairseq():
    done = pythons.run("-m", "fairseq_relpos.finetuning.prepare", "own")
    assert done.stderr.startswith("prepare: error: "), done.stderr


def test_importing_the_package_imports_nothing_else():
    """Without torch, fairseq and numpy it takes hundredths of a second."""
    program = (
        "import sys, importlib.util\n"
        "before = set(sys.modules)\n"
        "import fairseq_relpos\n"
        "print(*set(sys.modules) - before)\n"
    )
    done = pythons.run("-c", program)
    assert (set(done.stdout.split()), done.stderr) == ({"fairseq_relpos", "fairseq_relpos.version"}, "")

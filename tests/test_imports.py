"""The direction of dependencies, and the mathematics without fairseq."""

import ast
import os
import subprocess
import sys
from pathlib import Path

import pytest

PACKAGE = Path(__file__).parents[1] / "fairseq_relpos"
# what a module may import from the package
MATHS = {"positions", "rows", "terms"}
ALLOWED = {
    "once": set(),
    "ranks": set(),
    "version": set(),
    "positions": set(),
    "rows": set(),
    "gated": set(),
    "terms": {"gated"},
    "encodings": MATHS | {"once"},
    "backends": {"terms", "positions", "gated"},
    "segments": {"once"},
    "signature": {"once"},
    "real_tokens": set(),
    "self_attention": {"backends", "encodings", "positions", "real_tokens"},
    "nn": {"backends", "encodings", "positions", "real_tokens", "self_attention", "signature", "terms"},
    "hf": {"encodings", "nn", "signature", "version"},
    "layers": {"mends", "real_tokens"},
    "attention": {"backends", "encodings", "positions", "real_tokens", "self_attention"},
    "flags": {"backends", "encodings"},
    "override": {"attention", "backends", "encodings", "flags", "layers", "signature"},
    "models": {"checkpoints", "encodings", "flags", "once", "override", "register", "segments", "signature"},
    "checkpoints": {"atomic_files", "encodings", "flags", "ranks", "signature"},
    "exchange": {
        "atomic_files",
        "checkpoints",
        "encodings",
        "finetuning",
        "flags",
        "hf",
        "models",
        "signature",
        "version",
    },
}
TORCH_ONLY = ["once", "positions", "rows", "terms", "segments", "gated", "encodings", "backends"]
TORCH_ONLY += ["signature", "real_tokens", "self_attention", "nn"]
# what a backend imports when it is first used
IMPORTED_LATE = {"triton_kernels.py": {"triton"}}


def files_of(part):
    path = PACKAGE / part
    return sorted(path.glob("**/*.py")) if path.is_dir() else [path.with_suffix(".py")]


def imports(file):
    """Top-level packages, and parts of this package, that a file imports."""
    depth = len(file.relative_to(PACKAGE).parts)
    for node in ast.walk(ast.parse(file.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            inside = node.level and node.level < depth  # a sibling within the same part
            if node.level and not inside:
                names = [node.module] if node.module else [alias.name for alias in node.names]
                yield from ("." + name.split(".")[0] for name in names)
            elif not node.level:
                yield node.module.split(".")[0]


@pytest.mark.parametrize("part", ALLOWED)
def test_parts_import_only_what_lies_below_them(part):
    for file in files_of(part):
        for name in imports(file):
            if name.startswith("."):
                assert name[1:] in ALLOWED[part], f"{file} imports {name}"


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


def test_without_fairseq_the_encodings_and_the_list_work(tmp_path):
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
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    assert "tupe_r" in done.stdout


def test_a_fairseq_that_is_present_and_broken_is_an_error(tmp_path):
    broken = tmp_path / "fairseq"
    broken.mkdir()
    (broken / "__init__.py").write_text("raise ImportError('broken on purpose')\n")
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}:{PACKAGE.parent}"}
    done = subprocess.run(
        [sys.executable, "-c", "import fairseq_relpos; fairseq_relpos.register()"],
        capture_output=True,
        text=True,
        env=environment,
    )
    assert done.returncode != 0 and "broken on purpose" in done.stderr
    # as the console script does it
    command = "from fairseq_relpos.__main__ import main; main(['list'])"
    done = subprocess.run([sys.executable, "-c", command], capture_output=True, text=True, env=environment)
    assert done.returncode == 0 and "tupe_r" in done.stdout


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
    """In a Python of its own: what the preloaded one has imported hides the order."""
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stderr) == (0, "")


def test_a_module_that_runs_by_itself_may_be_the_first_to_import_fairseq(tmp_path):
    command = [
        sys.executable,
        "-m",
        "fairseq_relpos.finetuning.prepare",
        tmp_path / "tables",
        tmp_path / "out",
        "x",
        "y",
    ]
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.stderr.startswith("no task "), done.stderr


def test_importing_the_package_imports_nothing_else():
    """Without torch, fairseq and numpy it takes hundredths of a second."""
    program = (
        "import sys, importlib.util\n"
        "before = set(sys.modules)\n"
        "import fairseq_relpos\n"
        "print(*set(sys.modules) - before)\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(PACKAGE.parent)}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert (set(done.stdout.split()), done.stderr) == ({"fairseq_relpos", "fairseq_relpos.version"}, "")

import pytest
from compilers import needs_compiler
from tiled import SLICES, TILES, set_slices, set_tiles


@pytest.fixture(params=[*SLICES, *(pytest.param(tiles, marks=needs_compiler) for tiles in TILES)])
def way(request, monkeypatch):
    """lean with slices, or fused with tiles, of this size."""
    return (set_slices if request.param in SLICES else set_tiles)(monkeypatch, request.param)


@pytest.fixture(params=TILES)
def room(request, monkeypatch):
    set_tiles(monkeypatch, request.param)

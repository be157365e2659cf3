"""Tests of what is compiled on first use."""

import os
import shutil

import pytest

CXX = os.environ.get("CXX") or "c++"
needs_compiler = pytest.mark.skipif(shutil.which(CXX.split()[0]) is None, reason="no C++ compiler")

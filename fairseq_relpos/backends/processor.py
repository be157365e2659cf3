"""Facts about this machine's processor, from Linux."""

import re
from pathlib import Path

CPUINFO = Path("/proc/cpuinfo")


def has_bf16_units(cpuinfo: Path = CPUINFO) -> bool:
    """Whether this processor has units for products of bfloat16 (AMX, avx512_bf16, those of ARM)."""
    return matches(r"^(flags|Features)\s*:.*\b(amx_bf16|avx512_bf16|bf16|svebf16)\b", cpuinfo)


def has_avx512_but_is_not_intel(cpuinfo: Path = CPUINFO) -> bool:
    """Whether this is an x86 processor with AVX-512 of another maker, such as AMD."""
    other = matches(r"^vendor_id[ \t]*:[ \t]*(?!GenuineIntel)\w", cpuinfo)
    return other and matches(r"^flags\s*:.*\bavx512f\b", cpuinfo)


def matches(expression: str, cpuinfo: Path) -> bool:
    try:
        return re.search(expression, cpuinfo.read_text(), re.M) is not None
    except OSError:
        return False

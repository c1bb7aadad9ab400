"""Known answers of the fingerprint, from big integers alone: no NumPy, and none of its kernels.

Run it to write ``known_answers.json`` beside it. The elements of each case come from a small
generator that any language can repeat: byte k of a case is the top byte of the state after k + 1
steps of ``state = state * 6364136223846793005 + 1442695040888963407 (mod 2^64)``, from the state
`seed`; bytes of bools are taken modulo 2.
"""

import json
from fractions import Fraction
from pathlib import Path

WORD = 2**64
GOLDEN = 0x9E3779B97F4A7C15
SALT = 0x243F6A8885A308D3
SIZES = {
    "bool": 1, "int8": 1, "uint8": 1, "int16": 2, "uint16": 2, "int32": 4, "uint32": 4,
    "int64": 8, "uint64": 8, "float8_e4m3fn": 1, "float8_e5m2": 1, "bfloat16": 2, "float16": 2,
    "float32": 4, "float64": 8,
}  # fmt: skip
FLOATS = {
    "float8_e4m3fn": (3, 4), "float8_e5m2": (2, 5), "bfloat16": (7, 8), "float16": (10, 5),
    "float32": (23, 8), "float64": (52, 11),
}  # fmt: skip
CASES = [
    (dtype, count, block_bytes, seed)
    for dtype in SIZES
    for count, block_bytes, seed in [(1, 1 << 20, 1), (37, 1 << 20, 2), (301, 256, 3)]
]


def content(dtype, count, seed):
    state, out = seed, []
    for _ in range(count * SIZES[dtype]):
        state = (state * 6364136223846793005 + 1442695040888963407) % WORD
        out.append(state >> 56 & (1 if dtype == "bool" else 255))
    return bytes(out)


def mix(word, index):
    z = (word + (index + 1) * GOLDEN) % WORD
    z = (z ^ z >> 30) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ z >> 27) * 0x94D049BB133111EB % WORD
    return z ^ z >> 31


def number(dtype, bits):
    """The exact value of an element, or ``"nan"`` or ``"inf"``."""
    size = 8 * SIZES[dtype]
    if dtype not in FLOATS:
        signed = dtype.startswith("int") and bits >> (size - 1)
        return Fraction(bits - (1 << size) if signed else bits)
    mantissa_bits, exponent_bits = FLOATS[dtype]
    mantissa = bits & ((1 << mantissa_bits) - 1)
    exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1)
    if exponent == (1 << exponent_bits) - 1:
        if dtype != "float8_e4m3fn":
            return "nan" if mantissa else "inf"
        if mantissa == 7:
            return "nan"
    bias = (1 << (exponent_bits - 1)) - 1
    if exponent:
        mantissa += 1 << mantissa_bits
    value = Fraction(mantissa) * Fraction(2) ** (max(exponent, 1) - bias - mantissa_bits)
    return -value if bits >> (size - 1) else value


def fingerprint(data, dtype, block_bytes):
    size, blocks = SIZES[dtype], []
    for start in range(0, len(data), block_bytes):
        block = data[start : start + block_bytes]
        digest = 0
        for offset in range(0, len(block), 8):
            word = int.from_bytes(block[offset : offset + 8], "little")
            digest = (digest + mix(word, (start + offset) // 8)) % WORD
        count = {"nan": 0, "inf": 0}
        finite, sketch = [], [Fraction(0)] * 16
        for offset in range(0, len(block), size):
            value = number(dtype, int.from_bytes(block[offset : offset + size], "little"))
            if isinstance(value, str):
                count[value] += 1
                continue
            finite.append(value)
            window, place = divmod((start + offset) // size, 32)
            mixed = mix(SALT, window)
            lane = (place ^ mixed >> (60 if place < 16 else 56)) % 16
            sketch[lane] += -value if mixed >> place & 1 else value
        blocks.append(
            {
                "digest": f"{digest:016x}",
                "moments": [
                    len(block) // size,
                    count["nan"],
                    count["inf"],
                    *map(rounded, [min(finite), max(finite)] if finite else ["inf", "-inf"]),
                    rounded(sum(finite)),
                    rounded(sum(value * value for value in finite)),
                ],
                "sketch": [rounded(lane) for lane in sketch],
            }
        )
    return blocks


def rounded(value):
    """A float64 as JSON can hold it; sums beyond its range are ``"inf"``."""
    if isinstance(value, str):
        return value
    try:
        return float(value)
    except OverflowError:
        return "-inf" if value < 0 else "inf"


def answers():
    return [
        {
            "dtype": dtype,
            "count": count,
            "block_bytes": block_bytes,
            "seed": seed,
            "blocks": fingerprint(content(dtype, count, seed), dtype, block_bytes),
        }
        for dtype, count, block_bytes, seed in CASES
    ]


if __name__ == "__main__":
    lines = ",\n".join(json.dumps(case) for case in answers())
    Path(__file__).with_suffix(".json").write_text(f"[\n{lines}\n]\n")

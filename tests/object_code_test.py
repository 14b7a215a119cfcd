#!/usr/bin/env python3
"""object_code_test.py OBJDUMP COMPILER OBJECT...: what the compiler (GNU or Clang) made of the kernels' hot loops on x86-64 and
64-bit ARM.

Compilers drop prefetches of inlined functions and spill accumulators without a word, and either costs a fifth of the speed or more. A hot loop
is an innermost loop of a kernel that multiplies vectors at least 4 times and isn't the end of a group, which converts sums. In it
  - what ASKS names has a prefetch for each line of each stream;
  - no vector goes to the stack or comes from there, but where KNOWN allows some.
"""
import os
import re
import sys

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import object_code  # noqa: E402

INTEGERS = (r"^(\{vex\} )?(vpdpbusds?|vpmaddubsw|vpmaddwd|vpdpwssd)\b", r"^vcvtdq2ps")
FLOATS = (r"^vfn?m(add|sub)\w*p[sd]\b", r"^vrndscaleps|^vroundps|^vdivps|^vcvtps2dq")
ARM_INTEGERS = (r"^(u?sdot|usmmla|smull2?)\b", r"^scvtf")
ARM_FLOATS = (r"^fml[as]\b", r"^frint|^fdiv|^fcvtn")
FILES = [(r"int_(avx\w*)", INTEGERS), (r"f32_(avx\w*)", FLOATS), (r"dense_(avx\w*)", FLOATS),
         (r"int_(neon\w*)", ARM_INTEGERS), (r"f32_(neon\w*)", ARM_FLOATS), (r"dense_(neon\w*)", ARM_FLOATS)]

# file, function, fewest multiplications, the streams of memory in a loop: a number, or the group of the pattern that says it. The loop has
# that many prefetches or a multiple, where a step reads several lines of each. Tiles of several rows of x share the asking among them.
ASKS = [(r"int_(avx|neon)", r"direct_tile<\d+, \d+, 1, (\d+)", 4, None), (r"f32_(avx|neon)", r"Gemv|gemv\b", 16, 1)]

# file, function, most stack accesses as a share of a loop's instructions, of g++ and of clang, why.
KNOWN = [
    (r"int_avx(2|vnni)", r".", 0.42, 0.46, "codes, sums of 16 bits and sums of 32 bits of several blocks need more than 16 registers"),
    (r"int_avx512", r"direct", 0.04, 0.37, "g++ reads there what stays the same where 24 sums and 8 vectors of codes take all registers; clang 14 spills codes"),
    (r"f32_avx2", r"gemv|Gemv", 0.40, 0.40, "two blocks of 16 rows and their unpacked codes need more than 16 registers"),
    (r"f32_avx512", r"gemv|Gemv", 0.37, 0.37, "the loops over a group's last columns keep sums there; those over whole lines don't"),
    (r"f32_avx512", r".", 0, 0.12, "clang 14 reads what stays the same in a loop from there"),
    (r"dense_avx", r"tile", 0.10, 0.45, "halves that become floats on the way; clang 14 spills the sums"),
    (r"int_neon", r"direct_tile<(3|5|19),|direct<3", 0.36, 0.36, "g++ loads all lines of a unit of 3 or 5 before it multiplies; 3 digits of 2 rows are 24 sums"),
    (r"int_neon", r"direct_tile<6,", 0.24, 0.24, "the same with units of 3 lines and 2 blocks"),
    (r"int_neon", r"direct_tile<(2|18|20),", 0.13, 0.13, "codes of a unit of 4 steps"),
    (r"int_neon$", r"direct_tile<(3|5|19),|direct<3", 0.50, 0.50, "the same, where a product of bytes takes four registers more"),
    (r"int_neon$", r"direct_tile<(2|6|18),", 0.32, 0.32, "the same"),
    (r"int_neon$", r".", 0.12, 0.12, "the same"),
    (r"f32_neon", r"gemv_blocks<8,", 0.25, 0.25, "two blocks are 16 sums, 8 vectors of codes and their zeros or tables"),
    (r"f32_neon", r"gemv_blocks<[2-6],", 0.52, 0.52, "the same, and g++ loads all lines of a unit before it multiplies"),
    (r"f32_neon", r"tile", 0.06, 0.06, "24 sums, 4 vectors of weights and 6 of x"),
    (r"dense_neon", r"tile_panels<.*, true>", 0.37, 0.37, "the last panel, whose columns are loaded one by one"),
    (r"dense_neon", r"tile", 0.16, 0.16, "24 sums, 4 vectors of weights and 6 of x"),
    (r"dense_neon", r"rms_norm", 0.19, 0.19, "g++ stores the sums in passing"),
]
STACK = r"-?(?:0x[0-9a-f]+)?\(%r[sb]p[^)]*\)"
# x86 names the vector's register last or first, ARM q or v registers first, and saves the frame's own at an address in x29.
SPILL = rf"^v\S+\s+.*%[xyz]mm\d+,\s*{STACK}|^v(?!broadcast|pbroadcast)\S+\s+(?:\$\S+,)?{STACK}(?!\{{1to),.*%[xyz]mm\d+|^(?:ldu?r|ldp|stu?r|stp)\s+[qd]\d+,.*\[(?:sp|x29)\b|^(?:ld1|st1)\s.*\[sp"


def streams(name, function, products):
    for file, pattern, fewest, count in ASKS:
        match = re.search(pattern, function)
        if re.match(file, name) and match and products >= fewest:
            return count or int(match[1])
    return 0


def check(objdump, compiler, path, name, instructions):
    """Lines that describe its hot loops, and what is wrong with them."""
    multiply, end = instructions
    texts, bad = [], []
    functions = object_code.functions(objdump, path)
    if not functions:  # of another architecture than this build's
        return texts, bad
    for loop in object_code.innermost_loops(functions):
        products = loop.count(multiply)
        if products < 4 or loop.count(end) or products * 12 < len(loop):
            continue
        function = re.sub(r"\(.*", "", loop.function).removeprefix("void ").removeprefix("detail::")
        prefetches, spills = loop.count(r"^(prefetch|prfm)"), loop.count(SPILL)
        texts.append(f"{name}: {function}: {len(loop)} instructions, {products} multiplications, {prefetches} prefetches, {spills} stack accesses")
        most = max(((gnu, clang)[compiler == "Clang"] for file, pattern, gnu, clang, _ in KNOWN
                    if re.match(file, name) and re.search(pattern, function)), default=0)
        if spills > most * len(loop):
            bad.append(f"{texts[-1]}; at most {int(most * len(loop))} stack accesses expected")
        asked = streams(name, function, products)
        if asked and (prefetches == 0 or prefetches % asked):
            bad.append(f"{texts[-1]}; {asked} prefetches expected, or a multiple")
    if not texts:
        bad.append(f"{name}: no hot loop found; this test must learn what it looks like now")
    return texts, bad


def main(objdump, compiler, objects):
    texts, bad = [], []
    for path in objects:
        name = os.path.basename(path).split(".")[0]
        for pattern, instructions in FILES:
            if re.fullmatch(pattern, name):
                more, worse = check(objdump, compiler, path, name, instructions)
                texts, bad = texts + more, bad + worse
    print("\n".join(texts + [f"FAILED  {text}" for text in bad]))
    print(f"{len(texts)} hot loops, {len(bad)} not as expected")
    return 1 if bad or not texts else 0


if __name__ == "__main__":
    if sys.argv[1].endswith("NOTFOUND"):
        print("SKIPPED object_code_test: no objdump")
        sys.exit(0)
    sys.exit(main(sys.argv[1], sys.argv[2], sys.argv[3:]))

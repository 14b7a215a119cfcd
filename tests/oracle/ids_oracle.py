#!/usr/bin/env python3
"""qf's token ids against those of `tokenizers`, id by id: ids_oracle.py MODEL_FOLDER TEXT[=COUNT]... With =COUNT the number of ids
must be this. Needs: numpy, tokenizers (last seen with 0.23.3), and QF_LIBRARY."""
import sys
from tokenizers import Tokenizer as Other
from qf_library import Tokenizer

folder = sys.argv[1]
ours, other = Tokenizer(folder), Other.from_file(folder + "/tokenizer.json")
bad = 0
for argument in sys.argv[2:]:
    path, _, count = argument.partition("=")
    text = open(path, encoding="utf-8", newline="").read()
    a, b = ours.encode(text), other.encode(text, add_special_tokens=False).ids
    where = next((i for i, (x, y) in enumerate(zip(a, b)) if x != y), min(len(a), len(b)))
    same = a == b and (not count or len(a) == int(count))
    bad += not same
    name = path.rsplit("/", 1)[-1]
    if same: print(f"ok      {name}: {len(a)} ids equal")
    else: print(f"FAILED  {name}: {len(a)} ids, {len(b)} of `tokenizers`, {count or 'any number'} expected; first difference at {where}")
sys.exit(bad > 0)

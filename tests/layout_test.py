#!/usr/bin/env python3
"""The structs and constants of qf.h as other languages see them: the fields that the ctypes example declares against what the
C compiler says. layout_test.py SOURCE CC"""
import ctypes, importlib.util, pathlib, re, subprocess, sys, tempfile

source, cc = pathlib.Path(sys.argv[1]), sys.argv[2]
sys.dont_write_bytecode = True
spec = importlib.util.spec_from_file_location("ctypes_qf", source / "examples/ctypes_qf.py")
example = importlib.util.module_from_spec(spec)
spec.loader.exec_module(example)

structs = {name: cls for name, cls in vars(example).items()
           if isinstance(cls, type) and issubclass(cls, ctypes.Structure) and name.startswith("qf_")}
header = re.sub(r"/\*.*?\*/", "", (source / "capi/qf.h").read_text(), flags=re.S)
declared = set(re.findall(r"typedef struct (qf_\w+) \{", header))
missing = declared - set(structs)
if missing: sys.exit(f"examples/ctypes_qf.py lacks {sorted(missing)}")
print_c = "".join(f'printf("{name} %zu\\n", sizeof({name}));' + "".join(
    f'printf("{name}.{field[0]} %zu %zu\\n", offsetof({name}, {field[0]}), sizeof((({name}*)0)->{field[0]}));' for field in cls._fields_)
    for name, cls in sorted(structs.items()))
constants = {name: value for name, value in vars(example).items() if re.fullmatch("QF_[A-Z0-9_]+", name)}
print_c += "".join(f'printf("{name} %d\\n", (int){name});' for name in constants)
want = []
for name, cls in sorted(structs.items()):
    want.append(f"{name} {ctypes.sizeof(cls)}")
    want += [f"{name}.{f[0]} {getattr(cls, f[0]).offset} {getattr(cls, f[0]).size}" for f in cls._fields_]
want += [f"{name} {value}" for name, value in constants.items()]
with tempfile.TemporaryDirectory() as folder:
    c = pathlib.Path(folder) / "layout.c"
    c.write_text(f'#include <stdio.h>\n#include "qf.h"\nint main(void) {{ {print_c} return 0; }}\n')
    subprocess.run([cc, "-std=c99", "-I", str(source / "capi"), str(c), "-o", folder + "/layout"], check=True)
    got = subprocess.run([folder + "/layout"], check=True, capture_output=True, text=True).stdout.split("\n")[:-1]
bad = [f"ctypes says '{w}', C says '{g}'" for w, g in zip(want, got) if w != g]
# No field of C may be missing: together they have to fill each struct but for padding.
for name in declared:
    body = re.search(rf"typedef struct {name} \{{(.*?)\}} {name};", header, re.S)[1]
    count = sum(len(re.sub(r"\(\*(\w+)\)\(.*\)", r"\1", line).split(",")) for line in body.split(";") if line.strip())
    if count != len(structs[name]._fields_): bad.append(f"{name}: {count} fields in C, {len(structs[name]._fields_)} in ctypes")
print("\n".join(bad) if bad else f"{len(structs)} structs, {len(constants)} constants agree")
sys.exit(bool(bad))

#!/usr/bin/env python3
"""A full disk: full_disk.py QF BF16_MODEL F32_MODEL FOLDER. Needs root, since it mounts a small tmpfs on FOLDER.

`qf quantize` and `qf convert`, to a folder and to a GGUF file, must end with exit code 4 and a message that names the file and says why, and leave
nothing under the final name. When there is room, the same commands must succeed."""
import os, pathlib, subprocess, sys

SMALL, ROOM = "48m", "1500m"


def main():
    qf, bf16, f32, folder = sys.argv[1], sys.argv[2], sys.argv[3], pathlib.Path(sys.argv[4])
    folder.mkdir(parents=True, exist_ok=True)
    if os.geteuid(): print("SKIPPED full-disk: needs root to mount a tmpfs"); return 0
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={SMALL}", "qf-full-disk", folder], capture_output=True, text=True)
    if mount.returncode: print(f"SKIPPED full-disk: {mount.stderr.strip()}"); return 0
    gguf = folder / "x.gguf"
    commands = [("quantize", folder / "w4", [qf, "quantize", bf16, "--out", folder / "w4", "--bits", "4", "--group", "64", "-q"]),
                ("convert to GGUF", gguf, [qf, "convert", f32, "--out", gguf, "--type", "q8_0", "-q"]),
                ("convert to a folder", folder / "x", [qf, "convert", pathlib.Path(f32).with_suffix(".gguf"), "--out", folder / "x", "--type", "bf16", "-q"])]
    bad = 0
    try:
        for name, out, command in commands:
            subprocess.run(["mount", "-o", f"remount,size={SMALL}", folder], check=True)
            full = subprocess.run(command, capture_output=True, text=True)
            message = full.stderr.strip()
            fine = full.returncode == 4 and "No space left on device" in message and str(folder) in message and not out.exists()
            left = sorted(p.name for p in folder.iterdir())
            subprocess.run(["mount", "-o", f"remount,size={ROOM}", folder], check=True)
            then = subprocess.run(command, capture_output=True, text=True)
            after = sorted(p.name for p in folder.iterdir())
            whole = then.returncode == 0 and out.exists() and after == [out.name]
            bad += not (fine and whole)
            print(f"{'ok    ' if fine and whole else 'FAILED'}  full disk, {name}: exit code {full.returncode}, '{message}', left {left}; with room: exit code "
                  f"{then.returncode}{'' if whole else ' ' + then.stderr.strip() + ' ' + str(after)}")
            subprocess.run(f"rm -rf {folder}/*", shell=True, check=True)
    finally:
        subprocess.run(["umount", folder], check=True)
    return bad


if __name__ == "__main__":
    sys.exit(main())

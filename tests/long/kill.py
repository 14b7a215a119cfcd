#!/usr/bin/env python3
"""`qf quantize` killed with SIGKILL at random moments goes on to the same bytes: kill.py QF MODEL FOLDER [KILLS [SEED]]

Each time the run is killed, the final name must not exist unless the run was over, and the same command must then end with a folder
whose files are those of an undisturbed run. Every other time it is killed twice before."""
import hashlib, json, pathlib, random, shutil, subprocess, sys, time


def hashes(folder):
    return {str(p.relative_to(folder)): hashlib.sha256(p.read_bytes()).hexdigest() for p in sorted(folder.rglob("*")) if p.is_file()}


def main():
    qf, model, folder = sys.argv[1], sys.argv[2], pathlib.Path(sys.argv[3])
    times = int(sys.argv[4]) if len(sys.argv) > 4 else 20
    seed = int(sys.argv[5]) if len(sys.argv) > 5 else random.SystemRandom().randrange(1 << 32)
    rng = random.Random(seed)
    whole, out = folder / "undisturbed", folder / "killed"
    partial = folder / "killed.partial"

    def command(target): return [qf, "quantize", model, "--out", str(target), "--bits", "4", "--group", "64", "-q", "--json"]

    def clear(*paths):
        for path in paths: shutil.rmtree(path, ignore_errors=True)

    def bad(text):
        print(f"FAILED  kill: {text} (seed {seed}; what was left is in {folder})")
        return 1

    clear(whole, f"{whole}.partial", out, partial)
    folder.mkdir(parents=True, exist_ok=True)
    start = time.monotonic()
    subprocess.run(command(whole), check=True, stdout=subprocess.DEVNULL)
    span, want = time.monotonic() - start, hashes(whole)
    killed = resumed = runs = 0
    while killed < times:
        if runs == 10 * times: return bad(f"only {killed} of {runs} runs were killed before they ended")
        clear(out, partial)
        for _ in range(1 + runs % 2):
            if out.exists(): break
            run = subprocess.Popen(command(out), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            try: run.wait(rng.uniform(0, span))
            except subprocess.TimeoutExpired:
                run.kill()
                run.wait()
            killed += run.returncode == -9
            if run.returncode not in (0, -9): return bad(f"exit code {run.returncode}")
            if out.exists() and hashes(out) != want: return bad(f"run {runs}: a folder under its final name that isn't whole")
        if not out.exists():
            done = subprocess.run(command(out), capture_output=True, text=True)
            if done.returncode: return bad(f"run {runs}: going on ended with {done.returncode}: {done.stderr.strip()}")
            resumed += json.loads(done.stdout)["resumed_tensors"] > 0
            if partial.exists(): return bad(f"run {runs}: {partial} is left")
        got = hashes(out)
        if got != want: return bad(f"run {runs}: other bytes in {sorted(k for k in want.keys() | got.keys() if want.get(k) != got.get(k))}")
        runs += 1
    clear(whole, out)
    # Without kills in the midst of the work nothing was shown.
    if resumed < times // 4: return bad(f"only {resumed} of {runs} runs had work to go on from")
    print(f"ok      kill: {killed} kills in {runs} runs, {resumed} went on from work done; each folder identical to the undisturbed one (seed {seed})")
    return 0


if __name__ == "__main__":
    sys.exit(main())

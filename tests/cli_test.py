"""The program qf as a person meets it: help, results, messages, exit codes, Ctrl-C. Usage: cli_test.py PATH_OF_QF"""
import filecmp
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
from cli_model import write_model  # noqa: E402

QF = None
GOOD, JUDGEMENT, USAGE, INPUT, IO, INTERRUPTED = 0, 1, 2, 3, 4, 130
COMMANDS = ["inspect", "quantize", "eval", "run", "convert", "kernels", "kv-sim", "completion"]


def qf(*arguments, stdin="", **options):
    options.setdefault("env", {**os.environ, "TERM": "dumb"})
    return subprocess.run([QF, *map(str, arguments)], input=stdin, capture_output=True, text=True, timeout=300, **options)


class Case(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = pathlib.Path(tempfile.mkdtemp(prefix="qf-cli-test-"))
        cls.model = cls.folder / "model"
        write_model(cls.model)
        cls.text = cls.folder / "text.txt"
        cls.text.write_text("The quick brown fox jumps over the lazy dog. " * 20)

    @classmethod
    def tearDownClass(cls):
        shutil.rmtree(cls.folder)

    def run_ok(self, *arguments, **options):
        done = qf(*arguments, **options)
        self.assertEqual(done.returncode, GOOD, done.stderr)
        return done

    def run_bad(self, code, message, *arguments, **options):
        """Fails with `code`, nothing on stdout, and one line on stderr that holds `message`."""
        done = qf(*arguments, **options)
        self.assertEqual(done.returncode, code, done.stdout + done.stderr)
        self.assertEqual(done.stdout, "")
        errors = [line for line in done.stderr.splitlines() if line.startswith("qf: error: ")]
        self.assertEqual(len(errors), 1, done.stderr)
        self.assertIn(message, errors[0])
        return done


class Help(Case):
    def test_every_command_explains_itself(self):
        top = self.run_ok("--help")
        for command in COMMANDS:
            self.assertIn(f"\n  {command} ", top.stdout)
            page = self.run_ok(command, "--help")
            self.assertEqual(page.stderr, "")
            for part in ("Usage: qf " + command, "Examples:\n  ", "Exit codes:", "130 interrupted", "--threads", "--quiet"):
                self.assertIn(part, page.stdout)

    def test_version(self):
        self.assertRegex(self.run_ok("--version").stdout, r"^qf \d+\.\d+\.\d+\n$")

    def test_documentation_names_every_option(self):
        manual = (pathlib.Path(__file__).resolve().parent.parent / "docs/cli.md").read_text()
        for command in COMMANDS:
            self.assertIn(f"qf {command}", manual)
            for word in self.run_ok(command, "--help").stdout.replace(",", " ").split():
                if word.startswith("--") and word.strip("-").replace("-", "").isalnum():
                    self.assertIn(f"`{word}", manual, f"docs/cli.md says nothing of {word} of qf {command}")


class Usage(Case):
    def test_bad_usage(self):
        self.run_bad(USAGE, "no command given; 'qf --help' lists them")
        self.run_bad(USAGE, "no command 'frobnicate'", "frobnicate")
        self.run_bad(USAGE, "see 'qf inspect --help'", "inspect")
        self.run_bad(USAGE, "--nonsense", "inspect", self.model, "--nonsense")
        self.run_bad(USAGE, "--bits", "quantize", self.model, "--out", "x", "--bits", "9")
        self.run_bad(USAGE, "--method", "quantize", self.model, "--out", "x", "--method", "magic")
        self.run_bad(USAGE, "--recipe", "quantize", self.model, "--out", "x", "--recipe", "r.json", "--bits", "4")
        self.run_bad(USAGE, "--threads", "kernels", "--threads", "many")
        self.run_bad(USAGE, "--out is required", "quantize", self.model)
        self.run_bad(USAGE, "--reference", "eval", self.model, "--text", self.text, "--max-kl", "1")

    def test_no_half_result_on_a_full_disk(self):
        with open("/dev/full", "w") as full:
            done = subprocess.run([QF, "kernels"], stdout=full, stderr=subprocess.PIPE, text=True)
        self.assertEqual(done.returncode, IO)
        self.assertEqual(done.stderr, "qf: error: cannot write to standard output: No space left on device\n")

    def test_closed_streams_dont_end_in_a_model(self):
        script = 'exec "$0" quantize "$1" --out "$2" >&- 2>&-'
        out = self.folder / "closed"
        self.assertEqual(subprocess.run(["sh", "-c", script, QF, self.model, out]).returncode, IO)
        self.run_ok("inspect", out)


class BadInput(Case):
    def test_missing_files_are_named(self):
        for command in (["inspect"], ["run", "--prompt", "x"], ["eval", "--text", self.text]):
            done = self.run_bad(INPUT, "nowhere", command[0], self.folder / "nowhere", *command[1:])
            self.assertEqual(done.stderr.count("\n"), 1, done.stderr)
        self.run_bad(INPUT, "no.txt", "eval", self.model, "--text", self.folder / "no.txt")

    def test_not_a_checkpoint(self):
        pointer = self.folder / "pointer.safetensors"
        pointer.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\nsize 1\n")
        self.run_bad(INPUT, "LFS", "inspect", pointer)

    def test_text_too_short(self):
        self.run_bad(USAGE, "windows", "eval", self.model, "--text", self.text, "--context", "128", "--windows", "99")

    def test_control_bytes_of_a_file_dont_reach_the_terminal(self):
        folder = self.folder / "esc"
        shutil.copytree(self.model, folder)
        config = json.loads((folder / "config.json").read_text())
        config["model_type"] = "evil\x1b[2J"
        (folder / "config.json").write_text(json.dumps(config))
        done = self.run_bad(INPUT, "evil", "run", folder, "--prompt", "x")
        self.assertNotIn("\x1b", done.stderr)


    def test_control_bytes_of_a_name_dont_reach_the_terminal(self):
        done = self.run_bad(INPUT, r"no\x1b[31mwhere\x0a, straße", "inspect", "no\x1b[31mwhere\n, straße")
        self.assertEqual(done.stderr.count("\n"), 1, done.stderr)

    def test_an_empty_name_is_not_an_option_left_out(self):
        self.run_bad(USAGE, "--reference", "eval", self.model, "--text", self.text, "--reference", "")
        self.run_bad(USAGE, "--recipe", "quantize", self.model, "--dry-run", "--recipe", "")

    def test_a_broken_recipe_is_bad_input(self):
        recipe = self.folder / "broken.json"
        recipe.write_text('{"version": 1, "rules": [{"match": "*", "bits": 9}]}')
        self.run_bad(INPUT, "rule 1", "quantize", self.model, "--dry-run", "--recipe", recipe)

    def test_a_fifo_is_refused_at_once(self):
        fifo = self.folder / "fifo"
        os.mkfifo(fifo)
        self.run_bad(INPUT, "fifo", "run", fifo, "--prompt", "x")
        self.run_bad(INPUT, "fifo", "eval", self.model, "--text", self.text, "--context", "16", "--reference", fifo)
        folder = self.folder / "with-fifo"
        shutil.copytree(self.model, folder)
        (folder / "config.json").unlink()
        os.mkfifo(folder / "config.json")
        self.run_bad(INPUT, "config.json", "run", folder, "--prompt", "x")

    def test_an_output_that_holds_the_input_is_refused(self):
        folder = self.folder / "own"
        shutil.copytree(self.model, folder)
        before = {p.name: p.read_bytes() for p in folder.iterdir()}
        for out in (folder, f"{folder}/", folder / ".." / "own"):
            self.run_bad(USAGE, "holds the input", "quantize", folder, "--out", out, "--overwrite")
        shutil.copytree(folder, self.folder / "outer")
        shutil.copytree(folder, self.folder / "outer" / "inner")
        self.run_bad(USAGE, "holds the input", "quantize", self.folder / "outer" / "inner", "--out", self.folder / "outer", "--overwrite")
        for name in ("model.safetensors", "config.json"):
            self.run_bad(USAGE, "belongs to the input", "convert", folder, "--to", "gguf", "--out", folder / name,
                         "--overwrite")
        self.assertEqual({p.name: p.read_bytes() for p in folder.iterdir()}, before)
        gguf = self.folder / "own.gguf"
        self.run_ok("convert", folder, "--out", gguf)
        self.run_bad(USAGE, "belongs to the input", "convert", gguf, "--to", "folder", "--out", gguf, "--overwrite")

    def test_a_dangling_link_is_an_output_that_exists(self):
        link = self.folder / "link.gguf"
        link.symlink_to("nowhere")
        self.run_bad(USAGE, "exists already", "convert", self.model, "--out", link)

    def test_an_input_that_cannot_be_looked_at_is_not_called_missing(self):
        loop = self.folder / "loop"
        loop.symlink_to("loop")
        self.run_bad(IO, "symbolic links", "convert", loop, "--out", self.folder / "loop.gguf")

    def test_a_path_too_long_is_an_error_like_others(self):
        done = qf("quantize", self.model, "--out", "a/" * 3000)
        self.assertIn(done.returncode, (USAGE, INPUT, 4), done.stderr)

    def test_more_threads_than_the_system_gives(self):
        limit = lambda: resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
        if qf("--version", preexec_fn=limit).returncode != GOOD:
            self.skipTest("a sanitizer needs more address space than that")
        self.run_ok("quantize", self.model, "--out", self.folder / "many", "--threads", "1000", preexec_fn=limit)


class Results(Case):
    def test_inspect(self):
        done = self.run_ok("inspect", self.model, "--json")
        data = json.loads(done.stdout)
        self.assertEqual(len(data["tensors"]), 2 + 2 * 9)
        self.assertEqual(data["format"], "safetensors")
        self.assertEqual(data["config"]["layers"], 2)
        by_name = {t["name"]: t for t in data["tensors"]}
        self.assertEqual(by_name["model.layers.1.mlp.down_proj.weight"],
                         {"name": "model.layers.1.mlp.down_proj.weight", "type": "BF16", "shape": [64, 128],
                          "bits_per_element": 16.0, "bytes": 16384})
        self.assertRegex(self.run_ok("inspect", self.model).stdout,
                         r"\nmodel\.layers\.1\.mlp\.down_proj\.weight +BF16 +\[64, 128\] +16 +16384\n")

    def test_kernels(self):
        data = json.loads(self.run_ok("kernels", "--json").stdout)
        self.assertTrue(any(k["used_for_rows"] for k in data["kernels"]))
        for k in data["kernels"]:  # what each reads, and how codebooks choose
            self.assertTrue(set(k["codes"]) <= {"numbers", "short_table", "table", "row_tables"} and k["codes"], k)
            self.assertEqual(list(k["used_for_rows_by_codes"]), k["codes"])
            self.assertEqual(k["used_for_rows_by_codes"].get("numbers", ""), k["used_for_rows"])
            if "_i24_" in k["name"]: self.assertEqual(k["codes"], ["numbers"])
        exact = [k for k in data["kernels"] if k["accuracy"] == "exact" and k["layout"] == "rows16"]
        for kind in ["numbers", "table", "row_tables"]:  # some kernel serves one row of x, whatever the codes mean
            self.assertEqual(len([k for k in exact if k["used_for_rows_by_codes"].get(kind, "").split(", ")[0] == "1"]), 1, kind)
        self.assertRegex(self.run_ok("kernels").stdout, r"KERNEL +OP +ACCURACY +LAYOUT +BITS +CODES +NEEDS")
        narrow = json.loads(qf("kernels", "--json", env={**os.environ, "QF_MAX_ISA": "none"}).stdout)
        self.assertTrue(all(k["isa"] == narrow["isa"] for k in narrow["kernels"] if k["runs_here"]))
        wrong = qf("kernels", env={**os.environ, "QF_MAX_ISA": "sse9"})
        self.assertNotEqual(wrong.returncode, 0)
        self.assertIn("QF_MAX_ISA is 'sse9', expected none|avx2|", wrong.stderr)

    def test_quantize_then_judge_and_run(self):
        out = self.folder / "w4"
        plan = json.loads(self.run_ok("quantize", self.model, "--dry-run", "--json").stdout)
        self.assertEqual(sum(t["action"] == "quantize" for t in plan["tensors"]), 14)
        self.assertFalse(out.exists())
        done = self.run_ok("quantize", self.model, "--out", out, "--calibration", self.text, "--json")
        self.assertIn("needs no calibration", done.stderr)
        report = json.loads(done.stdout)
        self.assertEqual(report["quantized"], 14)
        self.assertAlmostEqual(report["bits_per_weight"], 4 + 20 / 64, places=6)
        self.run_bad(USAGE, "w4", "quantize", self.model, "--out", out)
        self.run_ok("quantize", self.model, "--out", out, "--overwrite")
        self.assertIn("w4g64", self.run_ok("inspect", out).stdout)

        judge = ["--text", self.text, "--context", "128", "--windows", "2", "--json"]
        alone = json.loads(self.run_ok("eval", self.model, *judge).stdout)
        self.assertEqual(alone["tokens"], 2 * 127)
        self.assertIsNone(alone["kl"])
        same = json.loads(self.run_ok("eval", self.model, "--reference", self.model, *judge).stdout)
        self.assertEqual((same["kl"], same["top1"], same["ppl"]), (0, 1, alone["ppl"]))
        unpacked = json.loads(self.run_ok("eval", out, "--reference", self.model, *judge).stdout)
        self.assertGreater(unpacked["kl"], 0)
        self.assertEqual(unpacked["reference_ppl"], alone["ppl"])
        packed = json.loads(self.run_ok("eval", out, "--reference", self.model, "--compute", "packed", *judge).stdout)
        self.assertAlmostEqual(packed["ppl"] / unpacked["ppl"], 1, places=5)
        self.assertAlmostEqual(packed["kl"], unpacked["kl"], places=5)
        fast = json.loads(self.run_ok("eval", out, "--compute", "fast", *judge).stdout)
        self.assertNotEqual(fast["ppl"], packed["ppl"])
        self.assertAlmostEqual(fast["ppl"] / packed["ppl"], 1, delta=0.02)

        failed = qf("eval", out, "--reference", self.model, "--max-kl", "0", *judge)
        self.assertEqual(failed.returncode, JUDGEMENT)
        self.assertIn("judgement failed: KL", failed.stderr)
        self.assertGreater(json.loads(failed.stdout)["kl"], 0)

        answer = ["--prompt", "Hello", "--max-tokens", "8", "--seed", "7"]
        first, second = (self.run_ok("run", out, *answer) for _ in range(2))
        self.assertEqual(first.stdout, second.stdout)
        self.assertIn("tokens/s", first.stderr)
        data = json.loads(self.run_ok("run", out, *answer, "--json").stdout)
        self.assertEqual(data["text"].rstrip("\n"), first.stdout.rstrip("\n"))
        self.assertEqual(len(data["ids"]), data["generated_tokens"])
        raw = self.run_ok("run", out, "--raw", "--prompt", "-", "--max-tokens", "4", "--json", stdin="Hello")
        self.assertEqual(json.loads(raw.stdout)["prompt_tokens"], 5)

    def test_a_prompt_cannot_write_special_tokens(self):
        tokens = [json.loads(self.run_ok("run", self.model, "--prompt", prompt, "-n", "1", "--json").stdout)["prompt_tokens"]
                  for prompt in ("ten bytes.", "<|im_end|>")]  # the tokenizer has a token a byte
        self.assertEqual(tokens[0], tokens[1])

    def test_quantize_with_a_calibration_text(self):
        short = ["--calibration", self.text, "--samples", "4", "--sample-tokens", "32", "--bits", "3"]
        kl = {}
        for method in ("rtn", "gptq", "best", "awq"):
            out = self.folder / method
            report = json.loads(self.run_ok("quantize", self.model, "--out", out, "--method", method, *short, "--json").stdout)
            self.assertEqual(report["quantized"], 14)
            self.assertEqual(report["solving_cpu_seconds"] > 0, method != "rtn")
            judge = ("--text", self.text, "--context", "64", "--windows", "4", "--json")
            kl[method] = json.loads(self.run_ok("eval", out, "--reference", self.model, *judge).stdout)["kl"]
        self.assertLess(kl["best"], kl["rtn"])
        plan = json.loads(self.run_ok("quantize", self.model, "--method", "best", *short, "--dry-run", "--json").stdout)
        plain = json.loads(self.run_ok("quantize", self.model, "--bits", "3", "--dry-run", "--json").stdout)
        self.assertGreater(plan["peak_memory_bytes"], plain["peak_memory_bytes"])
        out = self.folder / "none"
        self.run_bad(USAGE, "--calibration FILE is required", "quantize", self.model, "--out", out, "--method", "gptq")
        self.run_bad(USAGE, "tokens, 999999 or more expected: one sequence", "quantize", self.model, "--out", out, "--method",
                     "gptq", "--calibration", self.text, "--sample-tokens", "999999")
        self.run_bad(INPUT, "none.txt", "quantize", self.model, "--out", out, "--method", "gptq", "--calibration",
                     self.folder / "none.txt")
        self.assertFalse(out.exists())

    def test_windows_beyond_the_models_context_are_said(self):
        for context, said in ((512, False), (513, True)):
            done = self.run_ok("eval", self.model, "--text", self.text, "--context", context, "--windows", "1")
            self.assertEqual("longer than the 512 that the model is made for" in done.stderr, said, done.stderr)

    def test_convert(self):
        gguf, back = self.folder / "model.gguf", self.folder / "back"
        self.run_ok("convert", self.model, "--out", gguf, "--type", "bf16")
        self.assertEqual(json.loads(self.run_ok("inspect", gguf, "--json").stdout)["format"], "gguf")
        self.run_ok("convert", gguf, "--out", back, "--type", "bf16")
        judge = ["--text", self.text, "--context", "128", "--windows", "2", "--json"]
        figures = [json.loads(self.run_ok("eval", m, *judge).stdout)["ppl"] for m in (self.model, gguf, back)]
        self.assertEqual(figures[0], figures[1])
        self.assertEqual(figures[0], figures[2])
        self.run_bad(USAGE, "model.gguf", "convert", self.model, "--out", gguf)

    def test_quiet_is_silent(self):
        out = self.folder / "quiet"
        done = self.run_ok("quantize", self.model, "--out", out, "--quiet", "--calibration", self.text)
        self.assertEqual(done.stderr, "")
        self.assertEqual(self.run_ok("run", out, "-q", "--prompt", "x", "--max-tokens", "2").stderr, "")

    def test_threads_dont_change_a_byte(self):
        for threads in ("1", "3"):
            self.run_ok("quantize", self.model, "--out", self.folder / f"t{threads}", "--threads", threads)
        left, right = (self.folder / f"t{t}" / "model.safetensors" for t in ("1", "3"))
        self.assertTrue(filecmp.cmp(left, right, shallow=False))


class Interrupt(Case):
    def test_at_a_prompt(self):
        with subprocess.Popen([QF, "run", str(self.model), "--prompt", "-"], stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                              stderr=subprocess.PIPE, text=True) as process:
            # The program sleeps in read() once its tokenizer is loaded; signals before that are seen there.
            time.sleep(0.5)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
        self.assertEqual(process.returncode, INTERRUPTED, errors)

    def test_quantize_leaves_nothing_half_written(self):
        model = self.folder / "larger"
        write_model(model, layers=4, hidden=256, ffn=1024, heads=4, kv_heads=4)
        whole = self.folder / "whole"
        self.run_ok("quantize", model, "--out", whole)
        stopped = 0
        for attempt in range(12):
            out = self.folder / f"stopped{attempt}"
            process = subprocess.Popen([QF, "quantize", str(model), "--out", str(out)], stdout=subprocess.PIPE,
                                       stderr=subprocess.PIPE, text=True)
            deadline = time.monotonic() + 60
            while process.poll() is None and not any(self.folder.glob(out.name + "*")) and time.monotonic() < deadline:
                time.sleep(0.0005)
            process.send_signal(signal.SIGINT)
            _, errors = process.communicate(timeout=60)
            self.assertIn(process.returncode, (GOOD, INTERRUPTED), errors)
            if process.returncode == INTERRUPTED:
                stopped += 1
                self.assertFalse(out.exists(), "an interrupted run must not leave its output's name")
            self.run_ok("quantize", model, "--out", out, *(["--overwrite"] if out.exists() else []))
            self.assertTrue(filecmp.cmp(whole / "model.safetensors", out / "model.safetensors", shallow=False))
            self.assertEqual(sorted(p.name for p in self.folder.glob(out.name + "*")), [out.name])
            shutil.rmtree(out)
        self.assertGreater(stopped, 0, "no run was stopped while at work")


class KvSim(Case):
    TRACE = '{"timestamp": 0, "hash_ids": [1, 2, 3]}\n{"hash_ids": [1, 2]}\n{"hash_ids": [4]}\n{"hash_ids": [1, 2, 3]}\n'

    def trace(self, text, name="trace.jsonl"):
        path = self.folder / name
        path.write_text(text)
        return path

    def test_json_and_table(self):
        trace = self.trace(self.TRACE)
        chart = self.folder / "hits.svg"
        arguments = ("kv-sim", trace, "--policy", "lru,default,belady", "--capacity", "0.75,1", "--svg", chart)
        done = json.loads(self.run_ok(*arguments, "--json").stdout)
        self.assertEqual((done["format"], done["requests"], done["blocks"], done["unique_blocks"]), ("mooncake", 4, 9, 4))
        self.assertEqual([(r["policy"], r["capacity"]) for r in done["results"]],
                         [(p, c) for p in ("lru", "default", "belady") for c in (0.75, 1)])
        by = {(r["policy"], r["capacity"]): r for r in done["results"]}
        self.assertAlmostEqual(by["lru", 0.75]["hit_ratio"], 4 / 9)  # 3 pages: 4 takes the place of the leaf 3
        self.assertEqual(by["belady", 0.75]["share_of_attainable"], 1)
        for policy in ("lru", "default", "belady"):
            self.assertAlmostEqual(by[policy, 1]["hit_ratio"], 5 / 9)
        self.assertTrue(chart.read_text().startswith("<svg ") and chart.read_text().endswith("</svg>\n"))
        self.assertEqual(chart.read_text().count("<polyline"), 3)
        table = self.run_ok(*arguments).stdout
        for word in ("75 %", "0.4444", "0.5556", "OF ATTAINABLE", "NS/ACCESS"):
            self.assertIn(word, table)

    def test_nothing_to_hit(self):
        trace = self.trace("TIMESTAMP,ContextTokens,GeneratedTokens\n0,1025,3\n1,10,3\n", "azure.csv")
        done = self.run_ok("kv-sim", trace, "--json", "--policy", "lru", "--capacity", "1")
        self.assertEqual(json.loads(done.stdout)["unique_blocks"], 4)
        self.assertIn("no block of this trace is used twice", done.stderr)

    def test_refusals(self):
        trace = self.trace(self.TRACE)
        self.run_bad(USAGE, "no policy 'mru'; there are default, lru,", "kv-sim", trace, "--policy", "lru,mru")
        for capacity in ("0", "1.5", "-1", "nan"):
            self.run_bad(USAGE, "--capacity", "kv-sim", trace, "--capacity=" + capacity)
        self.run_bad(INPUT, "none.jsonl", "kv-sim", self.folder / "none.jsonl")
        broken = self.trace(self.TRACE + '{"hash_ids": [1, "x"]}\n', "broken.jsonl")
        self.run_bad(INPUT, "broken.jsonl:5: ", "kv-sim", broken)
        self.run_bad(INPUT, "no-folder", "kv-sim", trace, "--svg", self.folder / "no-folder" / "hits.svg")


class Completion(Case):
    def test_scripts_parse_and_know_the_commands(self):
        for shell in ("bash", "zsh", "fish"):
            script = self.run_ok("completion", shell).stdout
            for word in [*COMMANDS, "overwrite", "sample-tokens"]:
                self.assertIn(word, script)
            if not shutil.which(shell):
                print(f"SKIPPED completion of {shell}: there is no {shell}", flush=True)
                continue
            done = subprocess.run([shell, "-n"], input=script, capture_output=True, text=True)
            self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_bash_completes(self):
        script = self.run_ok("completion", "bash").stdout
        def complete(*words):
            line = f'COMP_WORDS=({" ".join(repr(w) for w in words)}); COMP_CWORD={len(words) - 1}; _qf; echo "${{COMPREPLY[@]}}"'
            return subprocess.run(["bash", "-c", script + line], capture_output=True, text=True).stdout.split()
        self.assertEqual(complete("qf", "qua"), ["quantize"])
        self.assertEqual(complete("qf", "quantize", "--sam"), ["--samples", "--sample-tokens"])
        self.assertEqual(complete("qf", "completion", "f"), ["fish"])
        self.assertEqual(complete("qf", "quantize", "--scale", "b"), ["bf16"])


if __name__ == "__main__":
    QF = sys.argv.pop(1)
    unittest.main(verbosity=2)

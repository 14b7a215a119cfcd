"""A whole model, one step of a comparison a line: `prompt` tokens at once from nothing, or as many of `generate` one by one from nothing. The ids are
the same for everyone and nothing is sampled. --program qf: a model folder and QF_LIBRARY; --program llama: a GGUF file and llama-cpp-python."""
import ctypes
import os
import pathlib
import sys

import numpy as np
import peer


def ids(count):
    return [int(i) for i in np.random.default_rng(3).integers(1000, 40000, count)]


def qf(a, most):
    sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests/oracle"))
    import qf_library as q
    byref, pointer = ctypes.byref, ctypes.c_void_p
    pool, model, sequence = pointer(), pointer(), pointer()
    q.qf.call("qf_pool_create", a["threads"], byref(pool))
    parallel = q.c.qf_parallel(ctypes.sizeof(q.c.qf_parallel))
    q.qf.call("qf_pool_parallel", pool, byref(parallel))
    options = q.c.qf_model_options(ctypes.sizeof(q.c.qf_model_options), parallel=ctypes.pointer(parallel), compute=1,
                                   accuracy={"exact": 0, "fast": 1}[a["accuracy"]])
    q.qf.call("qf_model_load", os.fsencode(a["file"]), byref(options), byref(model))
    info = q.c.qf_model_info(ctypes.sizeof(q.c.qf_model_info))
    q.qf.call("qf_model_get_info", model, byref(info))
    q.qf.call("qf_sequence_create", model, most, byref(sequence))
    q.qf.lib.qf_sequence_truncate.argtypes = [pointer, ctypes.c_int64, pointer]
    logits = np.zeros((1, info.vocab), np.float32)
    view = q.qf.matrix(logits.ctypes.data, 1, info.vocab)

    def forward(tokens):
        q.qf.call("qf_model_forward", model, sequence, tokens, len(tokens), byref(view))

    def reset():
        q.qf.lib.qf_sequence_truncate(sequence, 0, None)

    alive = [parallel, options]
    return forward, reset, lambda: logits[0] + 0 * len(alive), info.weight_bytes


def llama(a, most):
    import llama_cpp as lc
    model_params = lc.llama_model_default_params()
    lc.llama_backend_init()
    quiet = lc.llama_log_callback(lambda *_: None)
    lc.llama_log_set(quiet, None)
    model = lc.llama_model_load_from_file(a["file"].encode(), model_params)
    params = lc.llama_context_default_params()
    params.n_ctx, params.n_batch, params.n_ubatch = most, most, 512
    params.n_threads = params.n_threads_batch = a["threads"]
    context = lc.llama_init_from_model(model, params)
    vocab = lc.llama_vocab_n_tokens(lc.llama_model_get_vocab(model))

    def forward(tokens):
        if lc.llama_decode(context, lc.llama_batch_get_one(tokens, len(tokens))):
            raise SystemExit("llama_decode failed")

    def reset():
        lc.llama_memory_clear(lc.llama_get_memory(context), True)

    def logits():
        return np.ctypeslib.as_array(lc.llama_get_logits_ith(context, -1), (vocab,)).copy() if quiet else None

    return forward, reset, logits, lc.llama_model_size(model)


def main():
    a = peer.arguments()
    prompt, generate = a["ms"]
    forward, reset, logits, size = {"qf": qf, "llama": llama}[a["program"]](a, max(prompt, generate))
    as_array = lambda values: (ctypes.c_int32 * len(values))(*values)
    whole, single = as_array(ids(prompt)), [as_array([i]) for i in ids(generate)]

    def run_prompt():
        reset()
        forward(whole)

    def run_generate():
        reset()
        for token in single:
            forward(token)

    run_prompt()
    last = logits()
    about = {"relative_rms": {}, "bytes": size, "likeliest": int(last.argmax()), "sample": [float(v) for v in last[::97]]}
    peer.serve(about, {prompt: (run_prompt, 1), generate: (run_generate, generate)}, least=0.0)


main()

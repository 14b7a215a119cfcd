"""ONNX Runtime's MatMulNBits. --kind bits, --group, --level accuracy_level."""
import numpy as np
import onnx
import onnxruntime as ort
import peer
from onnx import TensorProto, helper


def raw(name, array, kind):
    return helper.make_tensor(name, kind, array.shape, array.tobytes(), raw=True)


def main():
    a = peer.arguments()
    n, k, group, bits = a["n"], a["k"], a["group"], int(a["kind"])
    codes, scales = peer.weights(n, k, group, bits)
    right = peer.values(codes, scales, bits)
    packed = codes if bits == 8 else codes[:, 0::2] | codes[:, 1::2] << 4
    packed = peer.repeat(packed.reshape(peer.ROWS, k // group, -1), n)
    scales = peer.repeat(scales.astype(np.float32), n)
    size = packed.nbytes + scales.nbytes
    works, rms, sessions = {}, {}, {}

    def tensors(i):  # copies differ, in a row that isn't checked, so that nobody takes them for one
        b, s = packed.copy(), scales.copy()
        b[-1, 0, 0], s[-1, 0] = i, 0.01 * (i + 1)
        return raw(f"b{i}", b, TensorProto.UINT8), raw(f"s{i}", s, TensorProto.FLOAT)

    for m in a["ms"]:
        count = peer.copies(size, m, a["cache"])
        if count not in sessions:
            nodes = [helper.make_node("MatMulNBits", ["x", f"b{i}", f"s{i}"], [f"y{i}"], domain="com.microsoft", K=k, N=n, bits=bits,
                                      block_size=group, accuracy_level=int(a["level"])) for i in range(count)]
            graph = helper.make_graph(nodes, "products", [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["m", k])],
                                      [helper.make_tensor_value_info(f"y{i}", TensorProto.FLOAT, ["m", n]) for i in range(count)],
                                      [t for i in range(count) for t in tensors(i)])
            model = helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 17), helper.make_opsetid("com.microsoft", 1)])
            options = ort.SessionOptions()
            options.intra_op_num_threads = a["threads"]
            options.inter_op_num_threads = 1
            sessions[count] = ort.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
        session, x = sessions[count], peer.activations(m, k)
        binding = session.io_binding()
        binding.bind_cpu_input("x", x)
        outputs = [ort.OrtValue.ortvalue_from_numpy(np.zeros((m, n), np.float32)) for _ in range(count)]
        for i, y in enumerate(outputs):
            binding.bind_ortvalue_output(f"y{i}", y)
        session.run_with_iobinding(binding)
        rms[m] = peer.relative_rms(outputs[-1].numpy(), x, right)
        works[m] = (lambda session=session, binding=binding: session.run_with_iobinding(binding), count)
    peer.serve({"relative_rms": rms, "bytes": size}, works)


main()

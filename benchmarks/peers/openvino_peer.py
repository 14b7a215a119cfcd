"""OpenVINO's matrix product with u4 or u8 constants and f16 scales. --kind bits, --group."""
import numpy as np
import openvino as ov
import peer
from openvino import opset13 as op


def main():
    a = peer.arguments()
    n, k, group, bits = a["n"], a["k"], a["group"], int(a["kind"])
    codes, scales = peer.weights(n, k, group, bits)
    right = peer.values(codes, scales, bits)
    packed = peer.repeat(codes if bits == 8 else codes[:, 0::2] | codes[:, 1::2] << 4, n)
    scales = peer.repeat(scales, n)[..., None]
    kind = ov.Type.u4 if bits == 4 else ov.Type.u8
    size = packed.nbytes + scales.nbytes
    works, rms, compiled, alive = {}, {}, {}, []
    core = ov.Core()
    for m in a["ms"]:
        count = peer.copies(size, m, a["cache"])
        if count not in compiled:
            x = op.parameter([-1, k], np.float32, name="x")
            products = []
            for i in range(count):
                # Copies that are equal would be merged: the first scale differs in rows that aren't checked.
                mine = scales.copy()
                mine[-1, 0, 0] += np.float16(2.0**-6 * i)
                arrays = [packed.reshape(-1).copy(), np.array([0x88 if bits == 4 else 128], np.uint8)]
                alive.append(arrays)  # tensors of 4-bit numbers don't own their memory
                code = op.constant(ov.Tensor(arrays[0], [n, k // group, group], kind))
                zero = op.constant(ov.Tensor(arrays[1], [1, 1, 1], kind))
                w = op.multiply(op.subtract(op.convert(code, "f16"), op.convert(zero, "f16")), op.constant(mine))
                w = op.convert(op.reshape(w, op.constant(np.array([n, k])), False), "f32")
                products.append(op.matmul(x, w, False, True))
            config = {"INFERENCE_NUM_THREADS": a["threads"], "PERFORMANCE_HINT": "LATENCY", "DYNAMIC_QUANTIZATION_GROUP_SIZE": str(group),
                      "INFERENCE_PRECISION_HINT": "f32"}
            compiled[count] = core.compile_model(ov.Model(products, [x], "products"), "CPU", config)
        request, x = compiled[count].create_infer_request(), peer.activations(m, k)
        request.set_input_tensor(ov.Tensor(x, shared_memory=True))
        request.infer()
        rms[m] = peer.relative_rms(request.get_output_tensor(count - 1).data, x, right)
        works[m] = (lambda request=request, x=x: request.infer(), count)
    peer.serve({"relative_rms": rms, "bytes": size}, works)


main()

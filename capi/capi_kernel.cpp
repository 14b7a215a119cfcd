// Kernels, packed weights and multiplying.
#include "capi/bridge.hpp"

using namespace qf;
using namespace qf::capi;

static_assert(QF_EXACT == static_cast<int>(kernel::Accuracy::exact) &&
              QF_FAST == static_cast<int>(kernel::Accuracy::fast) &&
              QF_INT16 == static_cast<int>(kernel::Accuracy::int16));
static_assert(QF_LAYOUT_CANONICAL == static_cast<int>(kernel::Layout::canonical) &&
              QF_LAYOUT_ROWS16 == static_cast<int>(kernel::Layout::rows16));
static_assert(QF_CODES_NUMBERS == kernel::codes::numbers &&
              QF_CODES_SHORT_TABLE == kernel::codes::short_table && QF_CODES_TABLE == kernel::codes::table &&
              QF_CODES_ROW_TABLES == kernel::codes::row_tables);

namespace {

// What a caller's options say, for as long as this lives.
class HostMatmul {
 public:
  Status read(const qf_matmul_options* given) {
    QF_TRY(read_struct(given, "options", &c));
    if (c.accuracy < QF_EXACT || c.accuracy > QF_INT16)
      return bad(cat({"options.accuracy is ", num(c.accuracy), ", expected 0 to 2"}));
    QF_TRY(parallel_.read(c.parallel));
    o.accuracy = static_cast<kernel::Accuracy>(c.accuracy);
    o.parallel = parallel_.get();
    if (c.kernel) {
      o.kernel = kernel::find_kernel(c.kernel);
      if (!o.kernel) return Status(Errc::not_found, cat({"no kernel ", printable(c.kernel)}));
    }
    return {};
  }
  // For calls whose products are f32 and have biases of their own, or none.
  Status read_plain(const qf_matmul_options* given) {
    QF_TRY(read(given));
    if (c.bias) return bad("options.bias is set, expected NULL");
    if (c.x_scales) return bad("options.x_scales is set, expected NULL: x is f32");
    return {};
  }

  qf_matmul_options c = QF_MATMUL_OPTIONS_INIT;
  kernel::MatmulOptions o;

 private:
  HostParallel parallel_;
};

std::span<const float> bias_of(const float* bias, const kernel::PackedWeight& w) {
  return {bias, bias ? static_cast<std::size_t>(w.n()) : 0};
}

}  // namespace

int32_t qf_kernel_count(void) {
  return static_cast<int32_t>(kernel::kernels().size());
}
qf_status qf_kernel_get_info(int32_t index, qf_kernel_info* out, qf_error* error) {
  return guard(error, [&]() -> Status {
    if (index < 0 || index >= qf_kernel_count())
      return bad(cat({"kernel ", num(index), ", expected 0 to ", num(qf_kernel_count() - 1)}));
    const kernel::Kernel& k = *kernel::kernels()[static_cast<std::size_t>(index)];
    return write_struct(
        qf_kernel_info{0, k.bits, k.name, k.op == kernel::Op::gemm, static_cast<int32_t>(k.accuracy),
                       static_cast<int32_t>(k.layout), (k.isa & ~kernel::cpu_isa()) == 0, k.m_min, k.m_max,
                       k.n_step, k.codes, 0},
        out, "out");
  });
}
qf_status qf_cpu_isa(char* out, size_t capacity, size_t* size, qf_error* error) {
  return guard(error, [&] { return write_text(kernel::isa_name(kernel::cpu_isa()), out, capacity, size); });
}

void qf_pack_options_init(qf_pack_options* options, size_t size) {
  init_struct(qf_pack_options QF_PACK_OPTIONS_INIT, options, size);
}
qf_status qf_weight_pack(const qf_matrix* matrix, const qf_pack_options* options, qf_weight** out,
                         qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(take_out(out));
    QF_TRY(need(matrix, "matrix"));
    qf_pack_options c = QF_PACK_OPTIONS_INIT;
    QF_TRY(read_struct(options, "options", &c));
    if (c.layout < QF_LAYOUT_CANONICAL || c.layout > QF_LAYOUT_ROWS16)
      return bad(cat({"options.layout is ", num(c.layout), ", expected 0 or 1"}));
    HostParallel parallel;
    QF_TRY(parallel.read(c.parallel));
    kernel::PackOptions pack;
    pack.layout = static_cast<kernel::Layout>(c.layout);
    pack.parallel = parallel.get();
    QF_TRY_ASSIGN(kernel::PackedWeight w, kernel::prepack(matrix->value, pack));
    return give(std::move(w), out);
  });
}
qf_status qf_weight_buffer(const qf_weight* weight, const void** data, size_t* size, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(need(weight, "weight"));
    QF_TRY(need(data, "data"));
    QF_TRY(need(size, "size"));
    *data = weight->value.buffer().data();
    *size = weight->value.buffer().size();
    return {};
  });
}
qf_status qf_weight_from_buffer(const void* data, size_t size, qf_weight** out, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(take_out(out));
    if (size) QF_TRY(need(data, "data"));
    QF_TRY_ASSIGN(auto copy, Array<std::byte>::make(size));
    if (size) std::memcpy(copy.data(), data, size);
    QF_TRY_ASSIGN(kernel::PackedWeight w, kernel::PackedWeight::from_buffer(std::move(copy), "data"));
    return give(std::move(w), out);
  });
}
void qf_weight_destroy(qf_weight* weight) {
  delete weight;
}
int64_t qf_weight_n(const qf_weight* weight) {
  return weight ? weight->value.n() : 0;
}
int64_t qf_weight_k(const qf_weight* weight) {
  return weight ? weight->value.k() : 0;
}
int32_t qf_weight_layout(const qf_weight* weight) {
  return weight ? static_cast<int32_t>(weight->value.layout()) : QF_LAYOUT_CANONICAL;
}

void qf_matmul_options_init(qf_matmul_options* options, size_t size) {
  init_struct(qf_matmul_options QF_MATMUL_OPTIONS_INIT, options, size);
}
qf_status qf_matmul(const qf_tensor* x, const qf_weight* w, qf_tensor* y, const qf_matmul_options* options,
                    qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(need(w, "w"));
    QF_TRY(need(x, "x"));
    QF_TRY_ASSIGN(const auto result, matrix_view<float>(y, "y"));
    HostMatmul call;
    QF_TRY(call.read(options));
    const std::span<const float> bias = bias_of(call.c.bias, w->value);
    switch (static_cast<DType>(x->dtype)) {
      case DType::f16: {
        QF_TRY_ASSIGN(const auto in, matrix_view<const f16>(x, "x"));
        return kernel::matmul(in, w->value, result, bias, call.o);
      }
      case DType::bf16: {
        QF_TRY_ASSIGN(const auto in, matrix_view<const bf16>(x, "x"));
        return kernel::matmul(in, w->value, result, bias, call.o);
      }
      case DType::i8: {
        kernel::Int8Rows in;
        QF_TRY_ASSIGN(in.q, matrix_view<const std::int8_t>(x, "x"));
        QF_TRY(need(call.c.x_scales, "options.x_scales"));
        QF_TRY_ASSIGN(in.scales, matrix_view<const float>(call.c.x_scales, "options.x_scales"));
        in.group = call.c.x_group;
        return kernel::matmul(in, w->value, result, bias, call.o);
      }
      default: {
        QF_TRY_ASSIGN(const auto in, matrix_view<const float>(x, "x"));
        return kernel::matmul(in, w->value, result, bias, call.o);
      }
    }
  });
}

qf_status qf_matmul_many(const qf_product* products, size_t count, const qf_matmul_options* options,
                         qf_error* error) {
  return guard(error, [&]() -> Status {
    if (count) QF_TRY(need(products, "products"));
    HostMatmul call;
    QF_TRY(call.read_plain(options));
    QF_TRY_ASSIGN(auto all, Array<kernel::Product>::make(count));
    for (std::size_t i = 0; i < count; ++i) {
      const auto name = [&](std::string_view field) { return cat({"products[", num(i), "].", field}); };
      const qf_product& p = products[i];
      QF_TRY(need(p.w, name("w")));
      QF_TRY_ASSIGN(const auto x, matrix_view<const float>(p.x, name("x")));
      QF_TRY_ASSIGN(const auto y, matrix_view<float>(p.y, name("y")));
      all[i] = {x, &p.w->value, y, bias_of(p.bias, p.w->value)};
    }
    return kernel::matmul(all, call.o);
  });
}

qf_status qf_matmul_swiglu(const qf_tensor* x, const qf_weight* gate, const qf_weight* up, qf_tensor* y,
                           const qf_matmul_options* options, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(need(gate, "gate"));
    QF_TRY(need(up, "up"));
    QF_TRY_ASSIGN(const auto in, matrix_view<const float>(x, "x"));
    QF_TRY_ASSIGN(const auto out, matrix_view<float>(y, "y"));
    HostMatmul call;
    QF_TRY(call.read_plain(options));
    return kernel::matmul_swiglu(in, gate->value, up->value, out, call.o);
  });
}

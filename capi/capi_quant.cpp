// Choosing codes.
#include "capi/bridge.hpp"
#include "qf/quant/pipeline.hpp"
#include "qf/quant/rtn.hpp"

using namespace qf;
using namespace qf::capi;

namespace {

template <class T>
void widen(const qf_tensor& from, MatrixView<float> to) {
  const auto view = view_as<const T>(from);
  for (std::int64_t r = 0; r < to.shape[0]; ++r)
    for (std::int64_t c = 0; c < to.shape[1]; ++c) to.row(r)[c] = view.row(r)[c];
}

}  // namespace

void qf_quantize_options_init(qf_quantize_options* options, size_t size) {
  init_struct(qf_quantize_options QF_QUANTIZE_OPTIONS_INIT, options, size);
}

qf_status qf_quantize(const qf_tensor* w, const qf_scheme* scheme, const qf_quantize_options* options,
                      qf_matrix** out, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(take_out(out));
    QF_TRY(check_matrix(w, "w"));
    qf_quantize_options c = QF_QUANTIZE_OPTIONS_INIT;
    QF_TRY(read_struct(options, "options", &c));
    HostParallel parallel;
    QF_TRY(parallel.read(c.parallel));
    const quant::Rtn rtn;
    if (!c.method || c.method != rtn.name())
      return Status(Errc::unsupported,
                    cat({"no method ", c.method ? printable(c.method) : "NULL", ", expected 'rtn'"}));

    quant::QuantizerInput in;
    QF_TRY_ASSIGN(in.scheme, read_scheme(scheme));
    in.name = c.name ? c.name : "w";
    in.parallel = parallel.get();
    Array<float> wide;
    if (w->dtype == QF_F32) {
      in.w = view_as<const float>(*w);
    } else if (w->dtype == QF_F16 || w->dtype == QF_BF16) {
      QF_TRY_ASSIGN(wide, Array<float>::make(static_cast<std::size_t>(w->shape[0] * w->shape[1])));
      const MatrixView<float> view(wide.data(), {w->shape[0], w->shape[1]});
      w->dtype == QF_F16 ? widen<f16>(*w, view) : widen<bf16>(*w, view);
      in.w = view;
    } else {
      return bad(cat({"w has dtype ", num(w->dtype), ", expected F32, F16 or BF16 (0 to 2)"}));
    }
    QF_TRY_ASSIGN(QuantizedMatrix matrix, rtn.quantize(in));
    return give(std::move(matrix), out);
  });
}

void qf_convert_options_init(qf_convert_options* options, size_t size) {
  init_struct(qf_convert_options QF_CONVERT_OPTIONS_INIT, options, size);
}

qf_status qf_quantize_checkpoint(const char* input, const char* output, const qf_convert_options* options,
                                 qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(need(input, "input"));
    QF_TRY(need(output, "output"));
    qf_convert_options c = QF_CONVERT_OPTIONS_INIT;
    QF_TRY(read_struct(options, "options", &c));
    HostParallel parallel;
    QF_TRY(parallel.read(c.parallel));
    HostProgress progress(c.progress, c.progress_user);
    quant::Recipe recipe;
    if (c.recipe) {
      QF_TRY_ASSIGN(recipe, quant::Recipe::parse(c.recipe, "options.recipe"));
    } else {
      QF_TRY(need(c.method, "options.method"));
      QF_TRY_ASSIGN(const Scheme scheme, read_scheme(c.scheme));
      QF_TRY_ASSIGN(recipe, quant::default_recipe(c.method, scheme));
    }
    quant::PipelineOptions pipeline;
    pipeline.parallel = parallel.get();
    pipeline.progress = progress.get();
    pipeline.overwrite = c.overwrite != 0;
    return quant::quantize_checkpoint(input, output, recipe, pipeline).status();
  });
}

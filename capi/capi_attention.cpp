// Attention over keys and values that are tensors or pages.
#include <algorithm>
#include <cmath>
#include <vector>

#include "capi/bridge.hpp"
#include "qf/kernel/attention.hpp"

struct qf_scratch {
  qf::kernel::AttentionScratch value;
};

using namespace qf;
using namespace qf::capi;

namespace {

// Far beyond any memory, and small enough that nothing overflows.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 48;

// [kv_heads, tokens, head_dim] in memory that holds it.
Status check_heads(const qf_tensor* t, std::string_view name) {
  QF_TRY(need(t, name));
  if (t->device_type != QF_CPU) return bad(cat({name, " is not on the CPU"}));
  if (t->rank != 3) return bad(cat({name, " has rank ", num(t->rank), ", expected 3"}));
  QF_TRY(check_float(t->dtype, name));
  const std::span<const std::int64_t> shape(t->shape, 3), stride(t->stride, 3);
  bool fits = true;
  std::int64_t last = 0;  // element that is reached
  for (std::size_t d = 0; d < 3; ++d) {
    std::int64_t reach = 0;
    if (shape[d] < 0 || shape[d] > kMostTokens) return bad(cat({name, " has shape ", shape_text(shape)}));
    if (shape[d] < 2) continue;
    fits = fits && stride[d] >= 0 && !__builtin_mul_overflow(shape[d] - 1, stride[d], &reach) &&
           !__builtin_add_overflow(last, reach, &last) && last < INT64_MAX / 4;
  }
  if (!fits || (shape[2] > 1 && stride[2] != 1) || (shape[1] > 1 && stride[1] < shape[2]))
    return bad(cat({name, " has strides ", shape_text(stride), ", expected rows of ", num(shape[2]),
                    " or more elements with stride 1"}));
  if (shape[0] && shape[1] && shape[2] && !t->data) return bad(cat({name, ".data is NULL"}));
  return {};
}

// What both kinds of keys and values lack: queries, options, where to write.
class Call {
 public:
  kernel::AttentionArgs args;

  Status read(const qf_tensor* q, qf_tensor* out, const qf_attention_options* given) {
    QF_TRY_ASSIGN(args.q, matrix_view<const float>(q, "q"));
    QF_TRY_ASSIGN(args.out, matrix_view<float>(out, "out"));
    qf_attention_options c = QF_ATTENTION_OPTIONS_INIT;
    QF_TRY(read_struct(given, "options", &c));
    if (c.window < 0) return bad(cat({"options.window is ", num(c.window), ", expected 0 or more"}));
    QF_TRY(parallel_.read(c.parallel));
    args.window = c.window;
    args.scale = c.scale;
    if (c.scratch) scratch_ = &c.scratch->value;
    return {};
  }
  // Of what the keys hold, q is the end.
  Status place(std::int64_t kv_heads, std::int64_t head_dim, std::int64_t tokens, std::string_view keys) {
    if (kv_heads < 1 || head_dim < 1)
      return bad(cat({keys, " of ", num(kv_heads), " KV heads of ", num(head_dim), ", expected 1 or more"}));
    args.tokens = args.q.shape[0];
    args.heads = args.q.shape[1] / head_dim;
    args.kv_heads = kv_heads;
    args.head_dim = head_dim;
    args.position = tokens - args.tokens;
    if (args.position < 0)
      return bad(
          cat({keys, " of ", num(tokens), " tokens, expected at least the ", num(args.tokens), " of q"}));
    if (args.heads == 0 || args.q.shape[1] % head_dim || args.heads % kv_heads)
      return bad(cat({"q has shape ", shape_text(args.q.shape), ", expected rows of heads of ", num(head_dim),
                      ", a multiple of ", num(kv_heads)}));
    if (args.scale == 0) args.scale = static_cast<float>(1 / std::sqrt(static_cast<double>(head_dim)));
    return {};
  }
  // The first token that any of q sees.
  std::int64_t first_seen() const {
    return args.window && args.window <= args.position ? args.position - args.window + 1 : 0;
  }
  Status run() { return kernel::attention(args, *scratch_, parallel_.get()); }

 private:
  HostParallel parallel_;
  kernel::AttentionScratch own_;
  kernel::AttentionScratch* scratch_ = &own_;
};

// One side of a tensor as pages, one for each KV head.
struct Heads {
  std::vector<const void*> data;
  std::vector<const void* const*> pages;
  std::vector<std::int64_t> stride;

  explicit Heads(const qf_tensor& t) {
    const auto heads = static_cast<std::size_t>(t.shape[0]);
    const std::int64_t bytes = dtype_bits(static_cast<DType>(t.dtype)) / 8;
    const std::int64_t step = t.shape[0] > 1 ? t.stride[0] * bytes : 0;
    data.resize(heads);
    stride.assign(heads, t.shape[1] > 1 ? t.stride[1] : t.shape[2]);
    for (std::size_t h = 0; h < heads; ++h) {
      data[h] = static_cast<const std::byte*>(t.data) + static_cast<std::int64_t>(h) * step;
      pages.push_back(&data[h]);
    }
  }
};

// Every page that is looked into.
Status check_pages(const void* const* const* pages, const std::int64_t* stride, const qf_kv_pages& kv,
                   std::int64_t first_seen, std::string_view name) {
  QF_TRY(need(pages, cat({"kv.", name, "_pages"})));
  QF_TRY(need(stride, cat({"kv.", name, "_stride"})));
  const std::int64_t page = kv.page_tokens ? kv.page_tokens : std::max<std::int64_t>(1, kv.tokens);
  for (std::int64_t h = 0; h < kv.kv_heads; ++h) {
    if (stride[h] < kv.head_dim || stride[h] > kMostTokens)
      return bad(cat({"kv.", name, "_stride[", num(h), "] is ", num(stride[h]), ", expected ",
                      num(kv.head_dim), " or more"}));
    if (!pages[h]) return bad(cat({"kv.", name, "_pages[", num(h), "] is NULL"}));
    for (std::int64_t i = first_seen / page; i * page < kv.tokens; ++i)
      if (!pages[h][i]) return bad(cat({"kv.", name, "_pages[", num(h), "][", num(i), "] is NULL"}));
  }
  return {};
}

}  // namespace

qf_status qf_scratch_create(qf_scratch** out, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(take_out(out));
    return give(kernel::AttentionScratch(), out);
  });
}
void qf_scratch_destroy(qf_scratch* scratch) {
  delete scratch;
}

void qf_attention_options_init(qf_attention_options* options, size_t size) {
  init_struct(qf_attention_options QF_ATTENTION_OPTIONS_INIT, options, size);
}
void qf_kv_pages_init(qf_kv_pages* pages, size_t size) {
  init_struct(qf_kv_pages QF_KV_PAGES_INIT, pages, size);
}

qf_status qf_attention(const qf_tensor* q, const qf_tensor* keys, const qf_tensor* values, qf_tensor* out,
                       const qf_attention_options* options, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(check_heads(keys, "keys"));
    QF_TRY(check_heads(values, "values"));
    if (!std::equal(keys->shape, keys->shape + 3, values->shape) || keys->dtype != values->dtype)
      return bad(
          cat({"keys ", shape_text({keys->shape, 3}), " of dtype ", num(keys->dtype), ", values ",
               shape_text({values->shape, 3}), " of dtype ", num(values->dtype), ", expected the same"}));
    Call call;
    QF_TRY(call.read(q, out, options));
    QF_TRY(call.place(keys->shape[0], keys->shape[2], keys->shape[1], "keys"));
    const Heads k(*keys), v(*values);
    call.args.kv_type = static_cast<DType>(keys->dtype);
    call.args.key_pages = k.pages, call.args.value_pages = v.pages;
    call.args.key_stride = k.stride, call.args.value_stride = v.stride;
    return call.run();
  });
}

qf_status qf_attention_paged(const qf_tensor* q, const qf_kv_pages* kv, qf_tensor* out,
                             const qf_attention_options* options, qf_error* error) {
  return guard(error, [&]() -> Status {
    QF_TRY(need(kv, "kv"));
    qf_kv_pages c = QF_KV_PAGES_INIT;
    QF_TRY(read_struct(kv, "kv", &c));
    QF_TRY(check_float(c.dtype, "kv"));
    if (c.tokens < 0 || c.tokens > kMostTokens || c.page_tokens < 0 || c.kv_heads > kMostTokens ||
        c.head_dim > kMostTokens)
      return bad(cat({"kv of ", num(c.tokens), " tokens in pages of ", num(c.page_tokens), ", ",
                      num(c.kv_heads), " KV heads of ", num(c.head_dim)}));
    Call call;
    QF_TRY(call.read(q, out, options));
    QF_TRY(call.place(c.kv_heads, c.head_dim, c.tokens, "kv"));
    const std::int64_t first = call.first_seen();
    QF_TRY(check_pages(c.key_pages, c.key_stride, c, first, "key"));
    QF_TRY(check_pages(c.value_pages, c.value_stride, c, first, "value"));
    const auto heads = static_cast<std::size_t>(c.kv_heads);
    call.args.kv_type = static_cast<DType>(c.dtype);
    call.args.page_tokens = c.page_tokens;
    call.args.key_pages = {c.key_pages, heads}, call.args.value_pages = {c.value_pages, heads};
    call.args.key_stride = {c.key_stride, heads}, call.args.value_stride = {c.value_stride, heads};
    return call.run();
  });
}

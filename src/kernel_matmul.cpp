// matmul(): checks once, chooses a kernel, lets it prepare x, splits the outputs over the host's threads.
#include <algorithm>
#include <array>

#include "kernels/cpu/dense_ops.hpp"
#include "qf/core/align.hpp"
#include "qf/kernel/dense.hpp"
#include "qf/kernel/matmul.hpp"
#include "src/kernel_env.hpp"

namespace qf::kernel {
namespace {

// Rows that are there, contiguous and apart.
template <class T>
Status check_matrix(std::string_view name, const MatrixView<T>& view) {
  const std::int64_t rows = view.shape[0], columns = view.shape[1];
  if (rows == 0 || columns == 0) return {};
  if (!view.data) return Status(Errc::invalid_argument, cat({"matmul: ", name, " has no data"}));
  if ((columns > 1 && view.stride[1] != 1) || (rows > 1 && view.stride[0] < columns))
    return Status(Errc::invalid_argument, cat({"matmul: strides of ", name, " ", shape_text(view.stride),
                                               ", expected [", num(columns), " or more, 1]"}));
  return {};
}

template <class T>
Status check_shapes(const MatrixView<T>& x, const PackedWeight& w, const MatrixView<float>& y,
                    std::span<const float> bias) {
  const std::int64_t m = x.shape[0], n = w.n(), k = w.k();
  if (m < 0 || x.shape[1] != k || y.shape[0] != m || y.shape[1] != n)
    return Status(Errc::invalid_argument,
                  cat({"matmul: x ", shape_text(x.shape), ", w ", shape_text(std::array{n, k}), ", y ",
                       shape_text(y.shape), "; expected x [m, k], w [n, k], y [m, n]"}));
  if (!bias.empty() && static_cast<std::int64_t>(bias.size()) != n)
    return Status(Errc::invalid_argument,
                  cat({"matmul: bias of ", num(bias.size()), ", expected ", num(n), " or none"}));
  QF_TRY(check_matrix("x", x));
  return check_matrix("y", y);
}

// Whether every chain lies in one group of x.
Status check_int8(const Int8Rows& x, const PackedWeight& w) {
  if (w.layout() != Layout::rows16)
    return Status(Errc::invalid_argument, cat({"matmul: integer x needs weights in layout rows16, these are ",
                                               scheme_name(w.scheme()), " in layout canonical"}));
  const std::int64_t k = w.k(), group = x.group == 0 ? k : x.group, of_w = w.scheme().group_size(k);
  const std::int64_t groups = group > 0 ? (k + group - 1) / group : 0;
  if (group < 0 || x.scales.shape[0] != x.q.shape[0] || x.scales.shape[1] != groups)
    return Status(Errc::invalid_argument,
                  cat({"matmul: scales of x ", shape_text(x.scales.shape), ", x ", shape_text(x.q.shape),
                       " in groups of ", num(x.group), " columns"}));
  if (!w.column_order().empty() && group < k)
    return Status(Errc::invalid_argument, cat({"matmul: the columns of w are permuted, and x has groups of ",
                                               num(group), " columns, expected one group a row"}));
  for (std::int64_t first = 0; first < k; first += of_w)
    for (std::int64_t c = first, end = std::min(k, first + of_w); c < end; c += kChainColumns) {
      const std::int64_t last = std::min(c + kChainColumns, end) - 1;
      if (c / group != last / group)
        return Status(
            Errc::invalid_argument,
            cat({"matmul: columns ", num(c), " to ", num(last), " of ", scheme_name(w.scheme()),
                 " are summed up together, and lie in two groups of x, which has groups of ", num(group)}));
    }
  return check_matrix("scales of x", x.scales);
}

// Memory of one call. Not zeroed and not an Array for that reason.
class Scratch {
 public:
  Scratch() = default;
  ~Scratch() {
    if (memory_) allocator_->release(allocator_->user, memory_, bytes_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  Status reserve(const Allocator* allocator, std::int64_t bytes) {
    if (bytes == 0) return {};
    allocator_ = allocator;
    bytes_ = static_cast<std::size_t>(bytes);
    memory_ = allocator->allocate(allocator->user, bytes_, kBufferAlignment);
    if (memory_) return {};
    return Status(Errc::out_of_memory, cat({"matmul: no memory for ", num(bytes), " bytes of scratch"}));
  }
  std::byte* at(std::int64_t offset) { return memory_ ? static_cast<std::byte*>(memory_) + offset : nullptr; }

 private:
  const Allocator* allocator_ = nullptr;
  std::size_t bytes_ = 0;
  void* memory_ = nullptr;
};

// A product that has passed every check.
struct Job {
  const PackedWeight* w;
  const Kernel* kernel;
  MatmulArgs args;
  std::int64_t prepared_at;  // in the memory of all
  bool prepares;             // false: x has been prepared for an earlier job
  std::int64_t ordered_at;   // x in the order of the weight's columns, in the memory of all; -1: as it is
  std::int64_t steps;        // of n_step outputs
  double step_work;          // multiplications
  double work() const { return static_cast<double>(steps) * step_work; }
};

// Whether `b` finds x as it wants it where `a` has prepared it: the form depends on x, the kernel and where groups
// and units lie.
bool same_preparation(const Job& a, const Job& b) {
  const Scheme &one = a.w->scheme(), &two = b.w->scheme();
  return a.kernel == b.kernel && a.ordered_at < 0 && b.ordered_at < 0 && a.args.x && a.args.x == b.args.x &&
         a.args.m == b.args.m && a.args.x_stride == b.args.x_stride && a.args.k == b.args.k &&
         one.bits == two.bits && one.group_size(a.args.k) == two.group_size(b.args.k) &&
         one.codebook == two.codebook;
}

// A call costs some microseconds on another thread: below that much work it stays here.
constexpr double kWorkOfTask = 1 << 18;  // multiplications

std::int64_t tasks_for(double work, std::int64_t most) {
  return std::clamp<std::int64_t>(static_cast<std::int64_t>(work / kWorkOfTask), 1,
                                  std::max<std::int64_t>(1, most));
}

class Call {
 public:
  explicit Call(const MatmulOptions& options) : options_(options) {}

  Status reserve_jobs(std::size_t most) {
    QF_TRY_ASSIGN(memory_of_jobs_, Array<Job>::make(most));
    return {};
  }

  // Check a product and queue it; those without work are done at once.
  Status add(const Product& p) {
    QF_TRY(check_shapes(p.x, *p.w, p.y, p.bias));
    if (p.x.shape[0] == 0 || p.w->n() == 0 || p.w->k() == 0) return only_bias(p);
    QF_TRY_ASSIGN(const Kernel* kernel, choose_kernel(*p.w, p.x.shape[0], options_));
    return queue(p, kernel, args_of(p, p.x.shape[0]));
  }
  Status add(const Int8Rows& x, const Product& p) {
    QF_TRY(check_shapes(x.q, *p.w, p.y, p.bias));
    QF_TRY(check_int8(x, *p.w));
    if (x.q.shape[0] == 0 || p.w->n() == 0 || p.w->k() == 0) return only_bias(p);
    QF_TRY_ASSIGN(const Kernel* kernel, choose_int8_kernel(*p.w, x.q.shape[0], options_));
    MatmulArgs args = args_of(p, x.q.shape[0]);
    args.x_stride = x.q.stride[0];
    args.x_i8 = x.q.data;
    args.x_scales = x.scales.data;
    args.x_scales_stride = x.scales.stride[0];
    args.x_group = x.group == 0 ? p.w->k() : x.group;
    return queue(p, kernel, args);
  }

  // y = x w^T + bias of every queued product.
  Status run() {
    const std::int64_t tasks = plan_tasks();
    QF_TRY(reserve(tasks, scratch_bytes_));
    prepare();
    parallel_for(options_.parallel, tasks, [&](std::int64_t task) {
      double before = 0;
      for (Job& job : jobs()) {
        run_steps(job, step_at(job, before, task, tasks), step_at(job, before, task + 1, tasks), task);
        before += job.work();
      }
    });
    return {};
  }

  // The two queued products of one shape become y = silu(first) * second in the y of the first.
  Status run_swiglu() {
    if (job_count_ == 0) return {};
    const std::int64_t step = std::max(jobs()[0].kernel->n_step, jobs()[1].kernel->n_step) *
                              (jobs()[0].kernel->n_step == jobs()[1].kernel->n_step
                                   ? 1
                                   : std::min(jobs()[0].kernel->n_step, jobs()[1].kernel->n_step));
    // The second product stays in the cache until the first is multiplied with it.
    const MatmulArgs& first = jobs()[0].args;
    const std::int64_t steps = (first.n + step - 1) / step;
    const std::int64_t piece = std::max<std::int64_t>(1, (std::int64_t{1} << 16) / first.m / step) * step;
    const std::int64_t up_at = scratch_bytes_, up_stride = std::min(piece, align64(first.n));
    const std::int64_t tasks = std::min(steps, plan_tasks());
    QF_TRY(reserve(tasks, up_at + align64(first.m * up_stride * static_cast<std::int64_t>(sizeof(float)))));
    prepare();
    parallel_for(options_.parallel, tasks, [&](std::int64_t task) {
      auto* up = reinterpret_cast<float*>(scratch_at(task) + up_at);
      const std::int64_t end = std::min(first.n, steps * (task + 1) / tasks * step);
      for (std::int64_t j = steps * task / tasks * step; j < end; j += piece) {
        const std::int64_t count = std::min(piece, end - j);
        MatmulArgs gate = part(jobs()[0], j, j + count, task), second = part(jobs()[1], j, j + count, task);
        second.y = up - j, second.y_stride = up_stride;  // column j of y is the first of `up`
        jobs()[0].kernel->functions->run(gate);
        jobs()[1].kernel->functions->run(second);
        for (std::int64_t i = 0; i < first.m; ++i)
          silu_mul(first.y + i * first.y_stride + j, up + i * up_stride, count);
      }
    });
    return {};
  }

 private:
  static Status only_bias(const Product& p) {
    for (std::int64_t i = 0; i < p.y.shape[0]; ++i)
      for (std::int64_t j = 0; j < p.y.shape[1]; ++j)
        p.y.data[i * p.y.stride[0] + j] = p.bias.empty() ? 0.0f : p.bias[static_cast<std::size_t>(j)];
    return {};
  }

  static MatmulArgs args_of(const Product& p, std::int64_t m) {
    MatmulArgs args{};
    args.m = m, args.n = p.w->n(), args.k = p.w->k();
    args.x = p.x.data, args.x_stride = p.x.stride[0];
    args.weight = p.w->buffer().data();
    args.y = p.y.data, args.y_stride = p.y.stride[0];
    args.bias = p.bias.empty() ? nullptr : p.bias.data();
    args.n_end = args.n;
    args.ahead_bytes = prefetch_bytes();
    return args;
  }

  Status queue(const Product& p, const Kernel* kernel, const MatmulArgs& args) {
    Job job{};
    job.w = p.w, job.kernel = kernel, job.args = args;
    job.steps = (args.n + kernel->n_step - 1) / kernel->n_step;
    job.step_work =
        static_cast<double>(args.m) * static_cast<double>(args.k) * static_cast<double>(kernel->n_step);
    job.ordered_at = -1;
    if (!p.w->column_order().empty()) {
      job.ordered_at = prepared_bytes_;
      prepared_bytes_ += align64(args.m * args.k * (args.x ? static_cast<std::int64_t>(sizeof(float)) : 1));
    }
    const KernelFunctions& f = *kernel->functions;
    scratch_bytes_ = std::max(scratch_bytes_, align64(f.scratch_bytes(job.args)));
    if (f.prepare) {
      job.prepares = true;
      for (const Job& before : jobs())
        if (same_preparation(before, job)) job.prepares = false, job.prepared_at = before.prepared_at;
      if (job.prepares) {
        job.prepared_at = prepared_bytes_;
        prepared_bytes_ += align64(f.prepared_bytes(job.args));
      }
    }
    memory_of_jobs_[job_count_++] = job;
    work_ += job.work();
    return {};
  }

  std::span<Job> jobs() { return {memory_of_jobs_.data(), job_count_}; }
  std::span<const Job> jobs() const { return {memory_of_jobs_.data(), job_count_}; }

  std::int64_t plan_tasks() const {
    std::int64_t steps = 0, rows = 0;
    for (const Job& job : jobs()) {
      steps += job.steps;
      rows = std::max(rows, job.args.m);
    }
    const std::int64_t threads = options_.parallel.run ? options_.parallel.threads : 1;
    return threads <= 1 ? 1 : tasks_for(work_, std::min(steps, threads * (rows == 1 ? 1 : 2)));
  }

  // The step of a job, with work `before` it, at which task `task` begins.
  std::int64_t step_at(const Job& job, double before, std::int64_t task, std::int64_t tasks) const {
    const double wanted = work_ * static_cast<double>(task) / static_cast<double>(tasks) - before;
    return std::clamp<std::int64_t>(static_cast<std::int64_t>(wanted / job.step_work + 0.5), 0, job.steps);
  }

  Status reserve(std::int64_t tasks, std::int64_t each) {
    task_bytes_ = each;
    std::int64_t total = 0;
    if (__builtin_mul_overflow(each, tasks, &total) || __builtin_add_overflow(total, prepared_bytes_, &total))
      return Status(Errc::out_of_memory, "matmul: scratch");
    return memory_.reserve(options_.allocator, total);
  }
  std::byte* scratch_at(std::int64_t task) { return memory_.at(prepared_bytes_ + task * task_bytes_); }

  // Columns of x as the weight has them.
  template <class T>
  const T* in_order(const Job& job, const T* x) {
    auto* ordered = reinterpret_cast<T*>(memory_.at(job.ordered_at));
    const std::span<const std::int32_t> order = job.w->column_order();
    const std::int64_t k = job.args.k;
    parallel_for(options_.parallel, job.args.m, [&](std::int64_t row) {
      for (std::int64_t c = 0; c < k; ++c)
        ordered[row * k + c] = x[row * job.args.x_stride + order[static_cast<std::size_t>(c)]];
    });
    return ordered;
  }
  void order_columns(Job& job) {
    if (job.args.x)
      job.args.x = in_order(job, job.args.x);
    else
      job.args.x_i8 = in_order(job, job.args.x_i8);
    job.args.x_stride = job.args.k;
  }

  void prepare() {
    for (Job& job : jobs()) {
      if (job.ordered_at >= 0) order_columns(job);
      const KernelFunctions& f = *job.kernel->functions;
      if (!f.prepare) continue;
      job.args.prepared = memory_.at(job.prepared_at);
      if (!job.prepares) continue;
      const std::int64_t rows = job.args.m, steps = (rows + f.prepare_step - 1) / f.prepare_step;
      // Some operations for each element, not one.
      const double work = 8.0 * static_cast<double>(rows) * static_cast<double>(job.args.k);
      const std::int64_t tasks =
          options_.parallel.run ? tasks_for(work, std::min<std::int64_t>(steps, options_.parallel.threads))
                                : 1;
      parallel_for(options_.parallel, tasks, [&](std::int64_t task) {
        const std::int64_t begin = steps * task / tasks * f.prepare_step;
        const std::int64_t end = std::min(rows, steps * (task + 1) / tasks * f.prepare_step);
        if (begin < end) f.prepare(job.args, begin, end);
      });
    }
  }

  MatmulArgs part(const Job& job, std::int64_t begin, std::int64_t end, std::int64_t task) {
    MatmulArgs args = job.args;
    args.n_begin = begin;
    args.n_end = end;
    args.scratch = scratch_at(task);
    return args;
  }
  void run_steps(const Job& job, std::int64_t begin, std::int64_t end, std::int64_t task) {
    if (begin >= end) return;
    const std::int64_t n_step = job.kernel->n_step;
    job.kernel->functions->run(part(job, begin * n_step, std::min(job.args.n, end * n_step), task));
  }

  const MatmulOptions& options_;
  Array<Job> memory_of_jobs_;
  std::size_t job_count_ = 0;
  double work_ = 0;  // of all jobs
  std::int64_t scratch_bytes_ = 0, prepared_bytes_ = 0, task_bytes_ = 0;
  Scratch memory_;
};

}  // namespace

Status matmul(std::span<const Product> products, const MatmulOptions& options) {
  Call call(options);
  QF_TRY(call.reserve_jobs(products.size()));
  for (const Product& p : products) QF_TRY(call.add(p));
  return call.run();
}

Status matmul(MatrixView<const float> x, const PackedWeight& w, MatrixView<float> y,
              std::span<const float> bias, const MatmulOptions& options) {
  const Product product{x, &w, y, bias};
  return matmul({&product, 1}, options);
}

template <class T>
static Status matmul_widened(detail::Stored type, MatrixView<const T> x, const PackedWeight& w,
                             MatrixView<float> y, std::span<const float> bias, const MatmulOptions& options) {
  QF_TRY(check_shapes(x, w, y, bias));
  const std::int64_t m = x.shape[0], k = x.shape[1];
  Scratch wide;
  QF_TRY(wide.reserve(options.allocator, m * k * static_cast<std::int64_t>(sizeof(float))));
  auto* rows = reinterpret_cast<float*>(wide.at(0));
  const auto widen = detail::dense_ops().widen[type];
  for (std::int64_t i = 0; k > 0 && i < m; ++i) widen(x.row(i), k, rows + i * k);
  return matmul(MatrixView<const float>(rows, {m, k}), w, y, bias, options);
}

Status matmul(MatrixView<const f16> x, const PackedWeight& w, MatrixView<float> y,
              std::span<const float> bias, const MatmulOptions& options) {
  return matmul_widened(detail::kF16, x, w, y, bias, options);
}
Status matmul(MatrixView<const bf16> x, const PackedWeight& w, MatrixView<float> y,
              std::span<const float> bias, const MatmulOptions& options) {
  return matmul_widened(detail::kBf16, x, w, y, bias, options);
}

Status matmul(const Int8Rows& x, const PackedWeight& w, MatrixView<float> y, std::span<const float> bias,
              const MatmulOptions& options) {
  Call call(options);
  QF_TRY(call.reserve_jobs(1));
  QF_TRY(call.add(x, {{}, &w, y, bias}));
  return call.run();
}

Status matmul_swiglu(MatrixView<const float> x, const PackedWeight& gate, const PackedWeight& up,
                     MatrixView<float> y, const MatmulOptions& options) {
  if (gate.n() != up.n())
    return Status(Errc::invalid_argument, cat({"matmul_swiglu: gate of ", num(gate.n()), " outputs, up of ",
                                               num(up.n()), ", expected the same"}));
  Call call(options);
  QF_TRY(call.reserve_jobs(2));
  QF_TRY(call.add({x, &gate, y, {}}));
  QF_TRY(call.add({x, &up, y, {}}));
  if (gate.k() > 0) return call.run_swiglu();
  return {};
}

}  // namespace qf::kernel

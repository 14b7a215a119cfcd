// qf kernels: what this build has, and what this machine uses it for.
#include <algorithm>
#include <tuple>

#include "qf/kernel/matmul.hpp"
#include "src/cli/cli.hpp"

namespace qf::cli {
namespace {

// Rows of x for which the table's choice is worked out; beyond them nothing changes.
constexpr std::int64_t kRows = 64;

const char* accuracy_name(kernel::Accuracy a) {
  return a == kernel::Accuracy::exact ? "exact" : a == kernel::Accuracy::int16 ? "int16" : "fast";
}
const char* op_name(kernel::Op op) {
  return op == kernel::Op::gemv ? "gemv" : "gemm";
}
const char* layout_name(kernel::Layout layout) {
  return layout == kernel::Layout::canonical ? "canonical" : "rows16";
}

bool runs_here(const kernel::Kernel& k, kernel::IsaMask cpu) {
  return (k.isa & ~cpu) == 0;
}

// Numbers of rows of x for which the first fitting row of the table is `wanted`: "1", "2-8", "9 and more".
std::string used_for(const kernel::Kernel& wanted, kernel::IsaMask cpu) {
  std::string text;
  std::int64_t first = 0;
  for (std::int64_t m = 1; m <= kRows + 1; ++m) {
    const kernel::Kernel* chosen = nullptr;
    for (const kernel::Kernel* k : kernel::kernels()) {
      if (m > kRows || k->accuracy != wanted.accuracy || k->layout != wanted.layout ||
          k->bits != wanted.bits || m < k->m_min || m > k->m_max || !runs_here(*k, cpu))
        continue;
      chosen = k;
      break;
    }
    const bool ours = chosen == &wanted;
    if (ours && !first) first = m;
    if (!ours && first) {
      if (!text.empty()) text += ", ";
      text += num(first);
      if (m > kRows)
        text += " and more";
      else if (m - 1 > first)
        text += "-" + num(m - 1);
      first = 0;
    }
  }
  return text;
}

Result<Verdict> list(Session& session, bool as_json) {
  QF_TRY(kernel::check_environment());
  const kernel::IsaMask cpu = kernel::cpu_isa();
  OrderedJson rows = OrderedJson::array();
  std::vector<std::vector<std::string>> text{
      {"KERNEL", "OP", "ACCURACY", "LAYOUT", "BITS", "NEEDS", "RUNS HERE", "USED FOR ROWS OF X"}};
  for (const kernel::Kernel* k : kernel::kernels()) {
    const bool runs = runs_here(*k, cpu);
    const std::string used = runs ? used_for(*k, cpu) : "";
    rows.push_back({{"name", k->name},
                    {"op", op_name(k->op)},
                    {"accuracy", accuracy_name(k->accuracy)},
                    {"layout", layout_name(k->layout)},
                    {"bits", k->bits},
                    {"isa", kernel::isa_name(k->isa)},
                    {"rows_min", k->m_min},
                    {"rows_max", k->m_max},
                    {"runs_here", runs},
                    {"used_for_rows", used}});
    text.push_back({k->name, op_name(k->op), accuracy_name(k->accuracy), layout_name(k->layout),
                    k->bits ? num(k->bits) : "any", kernel::isa_name(k->isa), runs ? "yes" : "no", used});
  }
  if (as_json) {
    QF_TRY(session.print(json_text({{"isa", kernel::isa_name(cpu)}, {"kernels", rows}})));
  } else {
    QF_TRY(session.print("This machine: " + kernel::isa_name(cpu) + "\n" + table(text, {4})));
  }
  return Verdict::good;
}

}  // namespace

void add_kernels(Program& program) {
  auto as_json = std::make_shared<bool>(false);
  CLI::App* command = program.add(
      "kernels", "List the kernels of this build and which are in use for what",
      {"qf kernels", "qf kernels --json", "QF_MAX_ISA=avx2 qf kernels    # as on an older machine"},
      [as_json](Session& session) { return list(session, *as_json); });
  command->add_flag("--json", *as_json, "One JSON object on stdout");
}

}  // namespace qf::cli

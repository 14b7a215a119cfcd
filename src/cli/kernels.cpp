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

// What codes may mean, in the words of kernels.inc.
struct CodeKind {
  kernel::CodeMask bit;
  const char* name;
};
constexpr CodeKind kCodeKinds[] = {{kernel::codes::numbers, "numbers"},
                                   {kernel::codes::short_table, "short_table"},
                                   {kernel::codes::table, "table"},
                                   {kernel::codes::row_tables, "row_tables"}};

// The kinds of a mask: "any", or their names.
std::string codes_text(kernel::CodeMask mask) {
  if (mask == kernel::codes::any) return "any";
  std::string text;
  for (const CodeKind& kind : kCodeKinds)
    if (mask & kind.bit) text += (text.empty() ? "" : ", ") + std::string(kind.name);
  return text;
}

bool runs_here(const kernel::Kernel& k, kernel::IsaMask cpu) {
  return (k.isa & ~cpu) == 0;
}

// Numbers of rows of x for which the first row of the table that fits codes of one kind is `wanted`: "1", "2-8",
// "9 and more".
std::string used_for(const kernel::Kernel& wanted, kernel::CodeMask kind, kernel::IsaMask cpu) {
  std::string text;
  std::int64_t first = 0;
  for (std::int64_t m = 1; m <= kRows + 1; ++m) {
    const kernel::Kernel* chosen = nullptr;
    for (const kernel::Kernel* k : kernel::kernels()) {
      if (m > kRows || k->accuracy != wanted.accuracy || k->layout != wanted.layout ||
          k->bits != wanted.bits || !(k->codes & kind) || m < k->m_min || m > k->m_max || !runs_here(*k, cpu))
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

// The same for all kinds of codes: what holds for each that the kernel reads stands alone, else the kinds are named.
std::string used_text(const kernel::Kernel& k, kernel::IsaMask cpu) {
  std::string text;
  kernel::CodeMask told = 0;
  for (const CodeKind& kind : kCodeKinds) {
    if (!(k.codes & kind.bit) || (told & kind.bit)) continue;
    const std::string used = used_for(k, kind.bit, cpu);
    kernel::CodeMask same = 0;
    for (const CodeKind& other : kCodeKinds)
      if ((k.codes & other.bit) && used_for(k, other.bit, cpu) == used) same |= other.bit;
    told |= same;
    if (used.empty()) continue;
    if (!text.empty()) text += "; ";
    text += same == k.codes ? used : used + " (" + codes_text(same) + ")";
  }
  return text;
}

Result<Verdict> list(Session& session, bool as_json) {
  QF_TRY(kernel::check_environment());
  const kernel::IsaMask cpu = kernel::cpu_isa();
  OrderedJson rows = OrderedJson::array();
  std::vector<std::vector<std::string>> text{
      {"KERNEL", "OP", "ACCURACY", "LAYOUT", "BITS", "CODES", "NEEDS", "RUNS HERE", "USED FOR ROWS OF X"}};
  for (const kernel::Kernel* k : kernel::kernels()) {
    const bool runs = runs_here(*k, cpu);
    OrderedJson kinds = OrderedJson::array(), used = OrderedJson::object();
    for (const CodeKind& kind : kCodeKinds) {
      if (!(k->codes & kind.bit)) continue;
      kinds.push_back(kind.name);
      used[kind.name] = runs ? used_for(*k, kind.bit, cpu) : "";
    }
    rows.push_back({{"name", k->name},
                    {"op", op_name(k->op)},
                    {"accuracy", accuracy_name(k->accuracy)},
                    {"layout", layout_name(k->layout)},
                    {"bits", k->bits},
                    {"codes", kinds},
                    {"isa", kernel::isa_name(k->isa)},
                    {"rows_min", k->m_min},
                    {"rows_max", k->m_max},
                    {"runs_here", runs},
                    {"used_for_rows", used.value("numbers", "")},
                    {"used_for_rows_by_codes", used}});
    text.push_back({k->name, op_name(k->op), accuracy_name(k->accuracy), layout_name(k->layout),
                    k->bits ? num(k->bits) : "any", codes_text(k->codes), kernel::isa_name(k->isa),
                    runs ? "yes" : "no", runs ? used_text(*k, cpu) : ""});
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

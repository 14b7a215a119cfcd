// The option --compute, which several subcommands have.
#include "src/cli/cli.hpp"

namespace qf::cli {
namespace {

struct Way {
  const char* name;
  model::Compute compute;
  kernel::Accuracy accuracy;
};
constexpr Way kWays[] = {
    {"f32", model::Compute::f32, kernel::Accuracy::exact},
    {"packed", model::Compute::packed, kernel::Accuracy::exact},
    {"int16", model::Compute::packed, kernel::Accuracy::int16},
    {"fast", model::Compute::packed, kernel::Accuracy::fast},
};

}  // namespace

void add_compute(CLI::App* command, std::string& how) {
  std::vector<std::string> names;
  for (const Way& way : kWays) names.emplace_back(way.name);
  command
      ->add_option(
          "--compute", how,
          "f32 expands every weight; packed runs on the low-bit kernels, with the same results to 1e-5; "
          "int16 and fast do so with activations of 16 bits (3e-5 a layer) and 8 bits (1 % a layer)")
      ->capture_default_str()
      ->type_name("HOW")
      ->check(CLI::IsMember(names));
}

void set_compute(const std::string& how, model::LoadOptions& options) {
  for (const Way& way : kWays)
    if (how == way.name) options.compute = way.compute, options.accuracy = way.accuracy;
}

}  // namespace qf::cli

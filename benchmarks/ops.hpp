// What qf-bench can time. A new operation is a function here and a row in kOps.
#pragma once

#include <functional>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "benchmarks/limits.hpp"
#include "qf/core/parallel.hpp"
#include "qf/kernel/matmul.hpp"

namespace qf::bench {

// One thing to time. All but `about`, `run` and the checks may be 0: then there is no such limit.
struct Case {
  std::string kernel;
  nlohmann::json about;  // fields of the problem, which identify it together with the kernel
  double relative_rms = 0, relative_rms_allowed = 0;  // against f64, already measured
  double bytes = 0;                                   // read from memory in a call
  double operations = 0;                              // in a call, 2 a multiply-add
  const PeakLoop* peak = nullptr;                     // what multiplies them at best
  bool cold = true;                                   // else its bytes are in a cache
  int copies = 1;                                     // calls after which memory is read again
  std::function<void()> run;
};

struct Request {
  std::vector<std::string> weights, shapes;
  std::string kernel;                                  // only this; "": all that fit
  kernel::Accuracy accuracy = kernel::Accuracy::fast;  // whose choice stands first
  bool models = false, warm = false, small_pages = false,
       chosen_only = false;  // chosen_only: only what the library would choose
  int threads = 1;
  ParallelFor parallel;
};

// Calls `use` once a problem, with its cases: first what the library itself would choose. Memory of the cases
// lives until `use` returns. Returns the first result of `use` that isn't 0; 2 after a message if the request
// makes no sense.
using Use = std::function<int(std::vector<Case>&)>;
int matmul_cases(const Request& request, const Use& use);
int dense_cases(const Request& request, const Use& use);      // float matrices
int attention_cases(const Request& request, const Use& use);  // over paged keys and values
int small_cases(const Request& request, const Use& use);      // norms, rotation, softmax, SwiGLU
int cache_cases(const Request& request, const Use& use);      // policies of the prefix cache
int solve_cases(const Request& request, const Use& use);      // codes from Hessians; "weights": methods

struct Op {
  const char* name;
  int (*cases)(const Request& request, const Use& use);
};
inline constexpr Op kOps[] = {{"matmul", matmul_cases},       {"dense", dense_cases},
                              {"attention", attention_cases}, {"small", small_cases},
                              {"cache", cache_cases},         {"solve", solve_cases}};

}  // namespace qf::bench

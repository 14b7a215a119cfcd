// Progress and cancelling: the library never prints, it reports.
#pragma once

#include <cstdint>
#include <string_view>

#include "qf/core/result.hpp"

namespace qf {

struct ProgressEvent {
  std::string_view stage;  // "quantize", "evaluate", ...: what a bar is titled with
  std::string_view item;   // the tensor or file at hand; may be empty
  std::uint64_t done = 0, total = 0;
  std::string_view unit;  // "bytes", "tokens", "tensors"
};

// Called from the thread that called the library. Returns false to cancel: the call ends with Errc::cancelled
// and leaves nothing half-written under a final name.
struct Progress {
  bool (*on_event)(void* user, const ProgressEvent& event) = nullptr;
  void* user = nullptr;

  Status report(const ProgressEvent& event) const {
    if (on_event && !on_event(user, event)) return Status(Errc::cancelled, "cancelled");
    return {};
  }
};

}  // namespace qf

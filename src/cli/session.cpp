// Exit codes, signals, and the two voices: results on stdout, everything else on stderr.
#include <fcntl.h>
#include <fmt/format.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>

#include "src/cli/cli.hpp"

namespace qf::cli {
namespace {

volatile std::sig_atomic_t g_interrupted = 0;

void on_signal(int) {
  g_interrupted = 1;
  static constexpr char kText[] = "\nqf: stopping; once more to stop at once\n";
  if (isatty(STDERR_FILENO)) {
    [[maybe_unused]] const auto written = write(STDERR_FILENO, kText, sizeof kText - 1);
  }
}

}  // namespace

std::string fit_to_show(std::string_view raw) {
  std::string text;
  for (std::size_t at = 0; at < raw.size();) {
    const auto lead = static_cast<unsigned char>(raw[at]);
    const std::size_t bytes = lead < 0x80   ? 1
                              : lead < 0xc2 ? 0
                              : lead < 0xe0 ? 2
                              : lead < 0xf0 ? 3
                              : lead < 0xf5 ? 4
                                            : 0;
    bool good = bytes != 0 && at + bytes <= raw.size() && lead >= 0x20 && lead != 0x7f;
    for (std::size_t i = 1; good && i < bytes; ++i)
      good = (static_cast<unsigned char>(raw[at + i]) & 0xc0) == 0x80;
    if (good && lead == 0xc2)
      good = static_cast<unsigned char>(raw[at + 1]) >= 0xa0;  // C1 control characters
    if (good)
      text += raw.substr(at, bytes);
    else
      text += fmt::format("\\x{:02x}", lead);
    at += good ? bytes : 1;
  }
  return text;
}

Exit exit_of(Errc code) {
  switch (code) {
    case Errc::ok:
      return Exit::good;
    case Errc::invalid_argument:
      return Exit::usage;
    case Errc::unsupported:
    case Errc::not_found:
    case Errc::bad_format:
      return Exit::input;
    case Errc::io_error:
      return Exit::io;
    case Errc::out_of_memory:
      return Exit::memory;
    case Errc::cancelled:
      return Exit::interrupted;
    case Errc::internal:
      return Exit::internal;
  }
  return Exit::internal;
}

std::string exit_code_help() {
  return "Exit codes:\n"
         "  0 good   1 a judgement failed   2 bad usage   3 bad input   4 I/O error, such as a full disk\n"
         "  5 out of memory   70 internal error   130 interrupted";
}

void hold_standard_streams() {
  // Open the wrong way round, so that using them fails as it does where they are closed.
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO})
    if (fcntl(fd, F_GETFD) < 0) {
      [[maybe_unused]] const int held = open("/dev/null", fd == STDIN_FILENO ? O_WRONLY : O_RDONLY);
    }
}

void install_signals() {
  struct sigaction action {};
  action.sa_handler = on_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND);  // the second signal finds the default: the end
  sigaction(SIGINT, &action, nullptr);
  sigaction(SIGTERM, &action, nullptr);
}

bool interrupted() {
  return g_interrupted != 0;
}

ParallelFor Session::parallel() {
  if (!pool_) pool_.emplace(threads);
  return pool_->parallel_for();
}

Progress Session::progress() {
  if (quiet) printer_.be_quiet();
  return printer_.progress();
}

void Session::note(std::string_view text) {
  if (quiet) return;
  printer_.clear();
  std::fputs(cat({"qf: ", fit_to_show(text), "\n"}).c_str(), stderr);
}

void Session::error(std::string_view text) {
  printer_.clear();
  std::fputs(cat({"qf: error: ", fit_to_show(text), "\n"}).c_str(), stderr);
}

Status Session::print(std::string_view text) {
  printer_.clear();
  if (std::fwrite(text.data(), 1, text.size(), stdout) != text.size() || std::fflush(stdout) != 0)
    return Status(Errc::io_error, cat({"cannot write to standard output: ", std::strerror(errno)}));
  return {};
}

std::string table(const std::vector<std::vector<std::string>>& rows, const std::vector<std::size_t>& right) {
  std::vector<std::size_t> width;
  for (const auto& row : rows) {
    width.resize(std::max(width.size(), row.size()));
    for (std::size_t c = 0; c < row.size(); ++c) width[c] = std::max(width[c], row[c].size());
  }
  std::string text;
  for (const auto& row : rows) {
    std::string line;
    for (std::size_t c = 0; c < row.size(); ++c) {
      if (c) line += "  ";
      const bool flush_right = std::find(right.begin(), right.end(), c) != right.end();
      line += flush_right ? fmt::format("{:>{}}", row[c], width[c]) : fmt::format("{:<{}}", row[c], width[c]);
    }
    line.erase(line.find_last_not_of(' ') + 1);
    text += line + "\n";
  }
  return text;
}

std::string json_text(const OrderedJson& json) {
  return json.dump(2, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

}  // namespace qf::cli

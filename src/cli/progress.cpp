#include <fmt/format.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "src/cli/cli.hpp"

namespace qf::cli {
namespace {

constexpr double kRedrawSeconds = 0.1;  // of a bar
constexpr double kLogSeconds = 10;      // between the lines in a log

bool set_and_not_empty(const char* variable) {
  const char* value = std::getenv(variable);
  return value && *value;
}

int terminal_columns() {
  winsize size{};
  return ioctl(STDERR_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_col >= 20 ? size.ws_col : 80;
}

std::string rate_text(const ProgressEvent& event, double per_second) {
  if (event.unit == "bytes") return human_bytes(per_second) + "/s";
  return fmt::format("{:.{}f} {}/s", per_second, per_second < 10 ? 1 : 0, event.unit);
}

}  // namespace

std::string human_bytes(double bytes) {
  static constexpr const char* kUnits[] = {"B", "kB", "MB", "GB", "TB", "PB"};
  std::size_t unit = 0;
  while (bytes >= 999.5 && unit + 1 < std::size(kUnits)) bytes /= 1000, ++unit;
  return fmt::format("{:.{}f} {}", bytes, unit == 0 || bytes >= 99.5 ? 0 : 1, kUnits[unit]);
}

std::string human_seconds(double seconds) {
  const auto s = static_cast<std::int64_t>(std::max(seconds, 0.0) + 0.5);
  if (s >= 3600) return fmt::format("{}:{:02}:{:02}", s / 3600, s / 60 % 60, s % 60);
  return fmt::format("{}:{:02}", s / 60, s % 60);
}

bool ProgressPrinter::on_event(void* user, const ProgressEvent& event) {
  static_cast<ProgressPrinter*>(user)->show(event);
  return !interrupted();
}

void ProgressPrinter::show(const ProgressEvent& event) {
  if (style_ == Style::quiet) return;
  if (style_ == Style::unknown) {
    const char* terminal = std::getenv("TERM");
    const bool capable = terminal && *terminal && std::strcmp(terminal, "dumb") != 0;
    style_ = isatty(STDERR_FILENO) && capable ? Style::bar : Style::log;
    color_ = !set_and_not_empty("NO_COLOR");
  }
  const auto now = Clock::now();
  const bool finished = event.total > 0 && event.done >= event.total;
  if (stage_ != event.stage) {
    clear();
    stage_ = event.stage;
    start_ = last_ = now;
    first_done_ = event.done;
    if (!finished && style_ == Style::bar) draw(event, 0);
    return;
  }
  const double since_last = std::chrono::duration<double>(now - last_).count();
  if (since_last < (style_ == Style::bar ? kRedrawSeconds : kLogSeconds) && !(finished && drawn_)) return;
  last_ = now;
  const double seconds = std::chrono::duration<double>(now - start_).count();
  style_ == Style::bar ? draw(event, seconds) : log(event, seconds);
  if (finished) {
    clear();
    stage_.clear();
  }
}

void ProgressPrinter::draw(const ProgressEvent& event, double seconds) {
  const double share = event.total ? static_cast<double>(event.done) / static_cast<double>(event.total) : 0;
  const double rate =
      seconds > 0 ? static_cast<double>(event.done - std::min(first_done_, event.done)) / seconds : 0;
  std::string tail = fmt::format(" {:3.0f} %", 100 * share);
  if (rate > 0) {
    tail += "  " + rate_text(event, rate);
    if (event.total >= event.done)
      tail += "  " + human_seconds(static_cast<double>(event.total - event.done) / rate) + " left";
  }
  const int columns = terminal_columns() - 1;
  const int room = columns - static_cast<int>(stage_.size() + tail.size()) - 3;
  const int bar = std::clamp(room, 0, 30), full = static_cast<int>(share * bar + 0.5);
  std::string line = stage_ + " [" + (color_ ? "\033[32m" : "") +
                     std::string(static_cast<std::size_t>(full), '#') + (color_ ? "\033[0m" : "") +
                     std::string(static_cast<std::size_t>(bar - full), '.') + "]" + tail;
  const int left = room - bar - 2;
  if (!event.item.empty() && left > 8) {
    const std::string item = printable(event.item);
    line += "  " + item.substr(1, std::min(item.size() - 2, static_cast<std::size_t>(left)));
  }
  std::fputs(("\r\033[K" + line).c_str(), stderr);
  std::fflush(stderr);
  drawn_ = true;
}

void ProgressPrinter::log(const ProgressEvent& event, double seconds) {
  std::string line = "qf: " + stage_;
  if (event.total)
    line += fmt::format(": {:.0f} % ({} of {} {})",
                        100 * static_cast<double>(event.done) / static_cast<double>(event.total), event.done,
                        event.total, event.unit);
  line += ", " + human_seconds(seconds);
  std::fputs((line + "\n").c_str(), stderr);
  drawn_ = true;
}

void ProgressPrinter::clear() {
  if (drawn_ && style_ == Style::bar) {
    std::fputs("\r\033[K", stderr);
    std::fflush(stderr);
  }
  drawn_ = false;
}

}  // namespace qf::cli

// What the subcommands of the program qf share. Each has a file of its own with one add_<name>().
#pragma once

#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "qf/core/parallel.hpp"
#include "qf/core/progress.hpp"
#include "qf/core/result.hpp"
#include "qf/model/decoder.hpp"

namespace qf::cli {

using OrderedJson = nlohmann::ordered_json;

// What the program ends with.
enum class Exit : int {
  good = 0,
  judgement = 1,  // everything worked, and the answer is no
  usage = 2,
  input = 3,
  io = 4,
  memory = 5,
  internal = 70,
  interrupted = 130,
};
// The one place where a library's error becomes an exit code.
Exit exit_of(Errc code);
std::string exit_code_help();

// What a subcommand that worked has to say.
enum class Verdict { good, failed };

// --compute of the subcommands that run a model: how its linear layers are computed.
void add_compute(CLI::App* command, std::string& how);
void set_compute(const std::string& how, model::LoadOptions& options);

// Keeps closed standard streams from being the next file that is opened: what is printed would end in a model.
void hold_standard_streams();

// SIGINT and SIGTERM: the first asks to stop, which the library hears through its Progress; the second kills.
void install_signals();
bool interrupted();

// Progress on stderr: a bar on a terminal, a line now and then in a log, nothing with --quiet.
class ProgressPrinter {
 public:
  void be_quiet() { style_ = Style::quiet; }
  Progress progress() { return {&ProgressPrinter::on_event, this}; }
  void clear();  // takes the bar away, so that other text can be written
 private:
  using Clock = std::chrono::steady_clock;
  enum class Style { unknown, quiet, log, bar };
  static bool on_event(void* user, const ProgressEvent& event);
  void show(const ProgressEvent& event);
  void draw(const ProgressEvent& event, double seconds);
  void log(const ProgressEvent& event, double seconds);
  Style style_ = Style::unknown;
  bool color_ = false, drawn_ = false;
  std::string stage_;
  Clock::time_point start_, last_;
  std::uint64_t first_done_ = 0;
};
std::string human_bytes(double bytes);
std::string human_seconds(double seconds);

// `raw` with control characters and broken UTF-8 as \xNN: on one line, and without power over a terminal.
std::string fit_to_show(std::string_view raw);

// One run of the program: its global options, threads and voice.
class Session {
 public:
  int threads = 0;  // 0: as many as the machine has cores
  bool quiet = false;

  ParallelFor parallel();  // the program's one pool, made on first use
  Progress progress();
  void note(std::string_view text);     // one line on stderr, not with --quiet
  void error(std::string_view text);    // one line on stderr, always
  Status print(std::string_view text);  // to stdout, at once; nothing else writes there

 private:
  std::optional<ThreadPool> pool_;
  ProgressPrinter printer_;
};

using Action = std::function<Result<Verdict>(Session&)>;

// The command line as CLI11 knows it, and what each subcommand does.
struct Program {
  Program();
  // `examples`: command lines without explanation, one a line of the help.
  CLI::App* add(const std::string& name, const std::string& description,
                const std::vector<std::string>& examples, Action action);

  CLI::App app;
  Session session;
  std::vector<std::pair<CLI::App*, Action>> commands;
};

void add_inspect(Program& program);
void add_eval(Program& program);
void add_quantize(Program& program);
void add_run(Program& program);
void add_convert(Program& program);
void add_kernels(Program& program);
void add_kv_sim(Program& program);
void add_completion(Program& program);

// A table whose columns line up; the first row is the heading. Columns named in `right` are flushed right.
std::string table(const std::vector<std::vector<std::string>>& rows, const std::vector<std::size_t>& right);
// JSON for stdout: bytes that aren't UTF-8 are replaced, a line break ends it.
std::string json_text(const OrderedJson& json);

}  // namespace qf::cli

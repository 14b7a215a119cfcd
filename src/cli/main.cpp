// The program qf.
#include <cstdio>
#include <exception>
#include <new>
#include <sstream>

#include "src/cli/cli.hpp"

namespace qf::cli {

Program::Program()
    : app("Low-bit models: choose the codes, prove how wrong they are, write files, run them.", "qf") {
  app.set_version_flag("--version", "qf " QF_VERSION_STRING, "Print the version and leave");
  app.set_help_flag("-h,--help", "Print this help and leave");
  app.require_subcommand(1);
  app.footer("'qf COMMAND --help' explains a command, with examples.\n\n" + exit_code_help());
}

CLI::App* Program::add(const std::string& name, const std::string& description,
                       const std::vector<std::string>& examples, Action action) {
  CLI::App* command = app.add_subcommand(name, description);
  command->set_help_flag("-h,--help", "Print this help and leave");
  command->add_option("-t,--threads", session.threads, "Threads to use; 0: as many as the machine has cores")
      ->type_name("N")
      ->check(CLI::Range(0, 1024))
      ->group("Common options");
  command->add_flag("-q,--quiet", session.quiet, "No progress and no notes on stderr, errors only")
      ->group("Common options");
  std::string footer = "Examples:\n";
  for (const std::string& example : examples) footer += "  " + example + "\n";
  command->footer(footer + "\n" + exit_code_help());
  commands.emplace_back(command, std::move(action));
  return command;
}

namespace {

// The text of CLI11's complaint as one line, with a way to the help.
std::string usage_error(const CLI::App& app, const CLI::ParseError& e) {
  if (app.get_subcommands().empty()) {
    const auto rest = app.remaining();
    if (rest.empty()) return "no command given; 'qf --help' lists them";
    return "no command " + printable(rest.front()) + "; 'qf --help' lists them";
  }
  std::string text = e.what();
  for (char& c : text)
    if (c == '\n') c = ' ';
  while (!text.empty() && text.back() == ' ') text.pop_back();
  return text + "; see 'qf " + app.get_subcommands().front()->get_name() + " --help'";
}

Exit run(int argc, char** argv) {
  Program program;
  add_inspect(program);
  add_quantize(program);
  add_eval(program);
  add_run(program);
  add_convert(program);
  add_kernels(program);
  add_kv_sim(program);
  add_completion(program);
  // An empty name is a variable that wasn't set, and not the wish to leave the option out.
  for (auto& [app, action] : program.commands)
    for (CLI::Option* option : app->get_options())
      if (const std::string type = option->get_type_name(); type == "PATH" || type == "FILE" || type == "DIR")
        option->check([](const std::string& value) {
          return value.empty() ? std::string("a name expected, nothing found") : std::string();
        });

  auto report = [&](const Status& status) {
    program.session.error(status.text());
    return exit_of(status.code());
  };
  try {
    program.app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() != 0) return report({Errc::invalid_argument, usage_error(program.app, e)});
    std::ostringstream text;
    program.app.exit(e, text, text);
    const Status printed = program.session.print(text.str());
    return printed.ok() ? Exit::good : report(printed);
  }
  for (auto& [app, action] : program.commands) {
    if (!app->parsed()) continue;
    const Result<Verdict> verdict = action(program.session);
    if (!verdict.ok()) return report(verdict.status());
    return *verdict == Verdict::good ? Exit::good : Exit::judgement;
  }
  return report({Errc::internal, "a command without an action"});
}

}  // namespace
}  // namespace qf::cli

int main(int argc, char** argv) {
  using qf::cli::Exit;
  qf::cli::hold_standard_streams();
  qf::cli::install_signals();
  auto failed = [](qf::Errc code, const char* text) {
    std::fprintf(stderr, "qf: error: %s\n", text);
    return static_cast<int>(qf::cli::exit_of(code));
  };
  try {
    return static_cast<int>(qf::cli::run(argc, argv));
  } catch (const std::bad_alloc&) {
    return failed(qf::Errc::out_of_memory, "out of memory");
  } catch (const std::exception& e) {
    return failed(qf::Errc::internal, e.what());
  }
}

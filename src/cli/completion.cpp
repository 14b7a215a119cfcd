// Completion scripts, made from the definition of the command line, so that they can't fall behind it.
#include <algorithm>
#include <string>

#include "src/cli/cli.hpp"

namespace qf::cli {
namespace {

// What a shell needs to know of an option or a positional argument.
struct Argument {
  std::vector<std::string> names;    // "--out", "-o"; empty: positional
  std::vector<std::string> choices;  // the only values, if any
  std::string description;
  bool takes_value = false, is_path = false;
};

struct Entry {
  std::string name, description;
  std::vector<Argument> arguments;
};

// CLI11 shows a set of allowed values as "{a,b,c}" at the end of the option's type.
std::vector<std::string> choices_of(const std::string& type) {
  std::vector<std::string> choices;
  const auto begin = type.find('{'), end = type.rfind('}');
  if (begin == std::string::npos || end == std::string::npos || end < begin) return choices;
  std::string word;
  for (char c : type.substr(begin + 1, end - begin - 1) + ",") {
    if (c != ',') {
      word += c;
    } else if (!word.empty()) {
      choices.push_back(std::move(word));
      word.clear();
    }
  }
  return choices;
}

std::vector<Argument> arguments_of(const CLI::App& app) {
  std::vector<Argument> arguments;
  for (const CLI::Option* option : app.get_options()) {
    Argument a;
    for (const auto& name : option->get_lnames()) a.names.push_back("--" + name);
    for (const auto& name : option->get_snames()) a.names.push_back("-" + name);
    a.description = option->get_description();
    const std::string type = option->get_type_name();
    a.choices = choices_of(type);
    a.takes_value = option->get_items_expected_max() > 0;
    for (const char* path : {"PATH", "FILE", "DIR"}) a.is_path |= type.find(path) == 0;
    arguments.push_back(std::move(a));
  }
  return arguments;
}

std::vector<Entry> entries_of(const CLI::App& app) {
  std::vector<Entry> entries;
  for (const CLI::App* sub : app.get_subcommands([](const CLI::App*) { return true; }))
    entries.push_back({sub->get_name(), sub->get_description(), arguments_of(*sub)});
  return entries;
}

std::string joined(const std::vector<std::string>& words, const char* between = " ") {
  std::string text;
  for (const auto& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

std::string names_of(const std::vector<Argument>& arguments) {
  std::vector<std::string> names;
  for (const auto& a : arguments) names.insert(names.end(), a.names.begin(), a.names.end());
  return joined(names);
}

// Inside single quotes, where only the quote itself ends the text.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string bash(const CLI::App& app) {
  const auto entries = entries_of(app);
  std::vector<std::string> commands;
  for (const auto& e : entries) commands.push_back(e.name);
  std::string text =
      "# bash completion for qf: source <(qf completion bash)\n"
      "_qf() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} command=${COMP_WORDS[1]}\n"
      "  COMPREPLY=()\n"
      "  if [ \"$COMP_CWORD\" -eq 1 ]; then\n"
      "    COMPREPLY=($(compgen -W " +
      quoted(joined(commands) + " " + names_of(arguments_of(app))) +
      " -- \"$word\"))\n"
      "    return\n"
      "  fi\n"
      "  case $command in\n";
  for (const auto& e : entries) {
    text += "    " + e.name + ")\n      case $before in\n";
    std::vector<std::string> positional_words;
    bool positional_path = false;
    for (const auto& a : e.arguments) {
      if (a.names.empty()) {
        positional_words.insert(positional_words.end(), a.choices.begin(), a.choices.end());
        positional_path |= a.is_path;
      } else if (a.takes_value) {
        text += "        " + joined(a.names, "|") + ") ";
        if (!a.choices.empty())
          text += "COMPREPLY=($(compgen -W " + quoted(joined(a.choices)) + " -- \"$word\")); ";
        else if (a.is_path)
          text += "COMPREPLY=($(compgen -f -- \"$word\")); ";
        text += "return ;;\n";
      }
    }
    text += "      esac\n      case $word in\n        -*) COMPREPLY=($(compgen -W " +
            quoted(names_of(e.arguments)) + " -- \"$word\")) ;;\n        *) ";
    if (positional_path)
      text += "COMPREPLY=($(compgen -f -- \"$word\")) ;;\n";
    else
      text += "COMPREPLY=($(compgen -W " + quoted(joined(positional_words)) + " -- \"$word\")) ;;\n";
    text += "      esac ;;\n";
  }
  return text + "  esac\n}\ncomplete -o filenames -F _qf qf\n";
}

// Descriptions in zsh's [brackets] and before its colons.
std::string zsh_escaped(const std::string& text) {
  std::string out;
  for (char c : text) {
    if (c == '[' || c == ']' || c == ':' || c == '\\') out += '\\';
    out += c;
  }
  return out;
}

std::string zsh_value(const Argument& a) {
  if (!a.choices.empty()) return ":value:(" + joined(a.choices) + ")";
  return a.is_path ? ":path:_files" : ":value: ";
}

std::string zsh(const CLI::App& app) {
  std::string text =
      "#compdef qf\n# zsh completion for qf: put it into a folder of $fpath as _qf\n_qf() {\n"
      "  local -a commands\n  commands=(\n";
  const auto entries = entries_of(app);
  for (const auto& e : entries) text += "    " + quoted(e.name + ":" + zsh_escaped(e.description)) + "\n";
  text +=
      "  )\n  if (( CURRENT == 2 )); then\n    _describe command commands\n    return\n  fi\n"
      "  local command=$words[2]\n  shift words\n  (( CURRENT-- ))\n  case $command in\n";
  for (const auto& e : entries) {
    text += "    " + e.name + ")\n      _arguments";
    int position = 0;
    for (const auto& a : e.arguments) {
      if (a.names.empty()) {
        text += " \\\n        " + quoted(num(++position) + zsh_value(a));
        continue;
      }
      for (const auto& name : a.names)
        text += " \\\n        " +
                quoted(name + "[" + zsh_escaped(a.description) + "]" + (a.takes_value ? zsh_value(a) : ""));
    }
    text += " ;;\n";
  }
  return text +
         "  esac\n}\n"
         "# Sourced, it registers; found through $fpath, zsh has called it and it completes at once.\n"
         "if [ \"$funcstack[1]\" = _qf ]; then _qf \"$@\"; else compdef _qf qf; fi\n";
}

std::string fish_option(const Argument& a) {
  std::string text;
  for (const auto& name : a.names)
    text += name.rfind("--", 0) == 0 ? " -l " + name.substr(2) : " -s " + name.substr(1);
  if (a.takes_value) text += a.is_path ? " -r -F" : " -x";
  if (!a.choices.empty()) text += " -a " + quoted(joined(a.choices));
  return text + " -d " + quoted(a.description);
}

std::string fish(const CLI::App& app) {
  std::string text =
      "# fish completion for qf: qf completion fish | source\n"
      "complete -c qf -e\n";
  for (const auto& a : arguments_of(app))
    text += "complete -c qf -n __fish_use_subcommand" + fish_option(a) + "\n";
  for (const auto& e : entries_of(app)) {
    text += "complete -c qf -f -n __fish_use_subcommand -a " + e.name + " -d " + quoted(e.description) + "\n";
    const std::string condition = " -n " + quoted("__fish_seen_subcommand_from " + e.name);
    for (const auto& a : e.arguments) {
      if (!a.names.empty())
        text += "complete -c qf" + condition + fish_option(a) + "\n";
      else if (!a.choices.empty())
        text += "complete -c qf -f" + condition + " -a " + quoted(joined(a.choices)) + "\n";
    }
  }
  return text;
}

}  // namespace

void add_completion(Program& program) {
  auto shell = std::make_shared<std::string>();
  CLI::App* command = program.add(
      "completion", "Print a completion script for a shell",
      {"source <(qf completion bash)", "qf completion zsh > ~/.zfunc/_qf",
       "qf completion fish > ~/.config/fish/completions/qf.fish"},
      [shell, &program](Session& session) -> Result<Verdict> {
        const CLI::App& app = program.app;
        QF_TRY(session.print(*shell == "bash" ? bash(app) : *shell == "zsh" ? zsh(app) : fish(app)));
        return Verdict::good;
      });
  command->add_option("shell", *shell, "The shell")
      ->required()
      ->type_name("SHELL")
      ->check(CLI::IsMember({"bash", "zsh", "fish"}));
}

}  // namespace qf::cli

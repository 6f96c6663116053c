// Completion of shells, made of the tree of commands (cli/command_line.h).
#include <sstream>

#include "cli/command_line.h"

namespace allot {
namespace {

struct Choice {
  std::string word;
  std::string meaning;
};

struct OptionWords {
  std::vector<std::string> names;  // "--output", "-o"
  std::string meaning;
  bool has_value = false;
  std::vector<std::string> values;  // the allowed ones; empty: any
};

struct CommandWords {
  std::string path;  // "show question"; "" for allot itself
  std::vector<Choice> parts;
  std::vector<OptionWords> options;
};

// Returns json, yaml and table for "TEXT:{json,yaml,table}".
std::vector<std::string> valuesIn(const std::string& type) {
  const size_t from = type.find('{'), to = type.find('}');
  std::vector<std::string> values;
  if (from == std::string::npos || to == std::string::npos || to < from) return values;
  std::istringstream list(type.substr(from + 1, to - from - 1));
  for (std::string value; std::getline(list, value, ',');) values.push_back(value);
  return values;
}

void collect(const CLI::App* app, const std::string& path, std::vector<CommandWords>* commands) {
  CommandWords command{path, {}, {}};
  for (const CLI::Option* option : app->get_options()) {
    OptionWords one{{}, option->get_description(), option->get_items_expected_max() > 0, {}};
    for (const std::string& name : option->get_lnames()) one.names.push_back("--" + name);
    for (const std::string& name : option->get_snames()) one.names.push_back("-" + name);
    if (one.has_value) one.values = valuesIn(option->get_type_name());
    if (!one.names.empty()) command.options.push_back(std::move(one));
  }
  const size_t place = commands->size();
  commands->push_back(std::move(command));
  for (const CLI::App* part : app->get_subcommands([](const CLI::App*) { return true; })) {
    if (part->get_group().empty()) continue;
    (*commands)[place].parts.push_back({part->get_name(), part->get_description()});
    collect(part, path.empty() ? part->get_name() : path + " " + part->get_name(), commands);
  }
}

// Quotes a word for bash and zsh.
std::string quoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

// Quotes a word for fish, which escapes ' and \ within single quotes.
std::string fishQuoted(const std::string& text) {
  std::string out = "'";
  for (const char c : text) {
    if (c == '\'' || c == '\\') out += '\\';
    out += c;
  }
  return out + "'";
}

std::string joinedBy(const std::vector<std::string>& words, const std::string& between) {
  std::string text;
  for (const std::string& word : words) text += (text.empty() ? "" : between) + word;
  return text;
}

// Returns ' run', 'show question', ...: a command so far, and the word that leads on.
std::vector<std::string> steps(const std::vector<CommandWords>& commands) {
  std::vector<std::string> found;
  for (const CommandWords& command : commands) {
    for (const Choice& part : command.parts)
      found.push_back(quoted(command.path + " " + part.word));
  }
  return found;
}

std::vector<std::string> optionWords(const CommandWords& command) {
  std::vector<std::string> words;
  for (const OptionWords& option : command.options) {
    words.insert(words.end(), option.names.begin(), option.names.end());
  }
  return words;
}

std::string bashScript(const std::vector<CommandWords>& commands) {
  std::string script =
      "# bash completion of allot, made by `allot completion bash`\n"
      "_allot() {\n"
      "  local word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]}\n"
      "  local command='' parts='' options='' i\n"
      "  for ((i = 1; i < COMP_CWORD; i++)); do\n"
      "    case \"$command ${COMP_WORDS[i]}\" in\n"
      "      " +
      joinedBy(steps(commands), " | ") +
      ")\n"
      "        command=\"${command:+$command }${COMP_WORDS[i]}\" ;;\n"
      "    esac\n"
      "  done\n"
      "  case \"$command $before\" in\n";
  for (const CommandWords& command : commands) {
    for (const OptionWords& option : command.options) {
      if (option.values.empty()) continue;
      std::vector<std::string> at;
      for (const std::string& name : option.names) at.push_back(quoted(command.path + " " + name));
      script += "    " + joinedBy(at, " | ") + ")\n      COMPREPLY=($(compgen -W " +
                quoted(joinedBy(option.values, " ")) + " -- \"$word\")); return ;;\n";
    }
  }
  script += "  esac\n  case \"$command\" in\n";
  for (const CommandWords& command : commands) {
    std::vector<std::string> parts;
    for (const Choice& part : command.parts) parts.push_back(part.word);
    script += "    " + quoted(command.path) + ") parts=" + quoted(joinedBy(parts, " ")) +
              "\n      options=" + quoted(joinedBy(optionWords(command), " ")) + " ;;\n";
  }
  return script +
         "  esac\n"
         "  # Without a reply bash completes names of files.\n"
         "  [[ $word == -* ]] && parts=$options\n"
         "  COMPREPLY=($(compgen -W \"$parts\" -- \"$word\"))\n"
         "}\n"
         "complete -o default -F _allot allot\n";
}

// Returns a "name:meaning" for _describe.
std::string described(const std::string& word, const std::string& meaning) {
  return quoted(word + ":" + meaning);
}

std::string zshScript(const std::vector<CommandWords>& commands) {
  std::string script =
      "#compdef allot\n"
      "# zsh completion of allot, made by `allot completion zsh`\n"
      "_allot() {\n"
      "  local command='' i\n"
      "  local -a parts options\n"
      "  for ((i = 2; i < CURRENT; i++)); do\n"
      "    case \"$command ${words[i]}\" in\n"
      "      (" +
      joinedBy(steps(commands), "|") +
      ")\n"
      "        command=\"${command:+$command }${words[i]}\" ;;\n"
      "    esac\n"
      "  done\n"
      "  case \"$command ${words[CURRENT-1]}\" in\n";
  for (const CommandWords& command : commands) {
    for (const OptionWords& option : command.options) {
      if (option.values.empty()) continue;
      std::vector<std::string> at;
      for (const std::string& name : option.names) at.push_back(quoted(command.path + " " + name));
      script += "    (" + joinedBy(at, "|") + ") compadd " + joinedBy(option.values, " ") +
                "; return ;;\n";
    }
  }
  script += "  esac\n  case \"$command\" in\n";
  for (const CommandWords& command : commands) {
    script += "    (" + quoted(command.path) + ")\n      parts=(";
    for (const Choice& part : command.parts) {
      script += "\n        " + described(part.word, part.meaning);
    }
    script += ")\n      options=(";
    for (const OptionWords& option : command.options) {
      for (const std::string& name : option.names) {
        script += "\n        " + described(name, option.meaning);
      }
    }
    script += ") ;;\n";
  }
  return script +
         "  esac\n"
         "  if [[ $PREFIX == -* ]]; then\n"
         "    _describe option options\n"
         "  elif (( $#parts )); then\n"
         "    _describe command parts\n"
         "  else\n"
         "    _files\n"
         "  fi\n"
         "}\n"
         "compdef _allot allot\n";
}

std::string fishScript(const std::vector<CommandWords>& commands) {
  std::string script =
      "# fish completion of allot, made by `allot completion fish`\n"
      "function __allot_command\n"
      "  set -l command ''\n"
      "  for word in (commandline -opc)[2..-1]\n"
      "    switch \"$command $word\"\n"
      "      case " +
      joinedBy(steps(commands), " ") +
      "\n"
      "        set command (string trim \"$command $word\")\n"
      "    end\n"
      "  end\n"
      "  echo $command\n"
      "end\n"
      "function __allot_at\n"
      "  test (__allot_command) = $argv[1]\n"
      "end\n";
  for (const CommandWords& command : commands) {
    const std::string at =
        "complete -c allot -n " + fishQuoted("__allot_at " + fishQuoted(command.path));
    for (const Choice& part : command.parts) {
      script += at + " -f -a " + part.word + " -d " + fishQuoted(part.meaning) + "\n";
    }
    for (const OptionWords& option : command.options) {
      script += at;
      for (const std::string& name : option.names) {
        script += name.starts_with("--") ? " -l " + name.substr(2) : " -s " + name.substr(1);
      }
      if (option.has_value) script += " -r";
      if (!option.values.empty()) script += " -f -a " + quoted(joinedBy(option.values, " "));
      script += " -d " + fishQuoted(option.meaning) + "\n";
    }
  }
  return script;
}

}  // namespace

std::string completionScript(const CLI::App& app, const std::string& shell) {
  std::vector<CommandWords> commands;
  collect(&app, "", &commands);
  if (shell == "zsh") return zshScript(commands);
  return shell == "fish" ? fishScript(commands) : bashScript(commands);
}

}  // namespace allot
